/// Who could have written a file. This is asked before code is taken from a path that nobody named:
/// beside the program, in the folder of the installation.
///
/// Note [Guessed paths]
/// A path that the user wrote down is the user's word. A path that the library makes up is not: in
/// a folder where others can write, anybody may have put something there. So
/// - code is loaded from a guessed path only if nobody but root and the user of this process can
///   have put or changed it: the file, its folder and every folder above;
/// - variables of the environment that name code, or a folder of code, are not heard in programs
///   that run with more rights than their caller;
/// - a file with a made-up name is created, never taken over: see Note [Atomic files] in io/file.h.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>

namespace grapnel::base {

/// Whether somebody other than root and the user of this process owns it or may write to it.
bool others_may_write(const struct stat& info);

/// Why code should not be taken from this file: a half sentence, such as "/tmp can be written by
/// others (mode 1777)" or "No such file or directory". Empty if it may be.
std::string why_untrusted(const std::filesystem::path& file);

/// The value of a variable that names code; null in programs that run with more rights than their
/// caller, such as those that are set-user-ID.
const char* trusted_environment(const char* name);

}  // namespace grapnel::base
