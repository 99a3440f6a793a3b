/// Warnings: things a user should know that are no reason to stop.
#pragma once

#include <functional>
#include <string>

#include "grapnel/base/source_site.h"

namespace grapnel {

/// Who receives warnings. The default writes one line to standard error; an empty function silences
/// them.
void set_warning_handler(std::function<void(const std::string&)> handler);

namespace base {
/// Hands a warning to the handler, which prints it unless it was replaced.
void warn(const std::string& message);
/// True for one caller per `what` (a literal) and place in the program: what happens in a loop is
/// said once.
bool first_at(const void* call_site, const char* what);
/// The same for a line of the source.
bool first_at(const SourceLine& site, const char* what);
}  // namespace base

}  // namespace grapnel
