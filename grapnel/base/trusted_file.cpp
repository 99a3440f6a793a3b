#include "grapnel/base/trusted_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "grapnel/base/error.h"

namespace grapnel::base {

namespace {

bool ours_or_roots(const struct stat& info) {
  return info.st_uid == 0 || info.st_uid == geteuid();
}

/// Folders such as /tmp, where others can make files but neither remove nor replace ours.
bool is_sticky(const struct stat& info) { return (info.st_mode & S_ISVTX) != 0; }

std::string described(const std::filesystem::path& path, const struct stat& info) {
  if (!ours_or_roots(info)) return str(path.string(), " belongs to user ", info.st_uid);
  char mode[8];
  std::snprintf(mode, sizeof mode, "%o", static_cast<unsigned>(info.st_mode & 07777));
  return str(path.string(), " can be written by others (mode ", mode, ")");
}

std::string why_folders_untrusted(const std::filesystem::path& file) {
  struct stat info;
  bool nearest = true;
  for (std::filesystem::path folder = file.parent_path();; folder = folder.parent_path()) {
    if (stat(folder.c_str(), &info) != 0) return str(folder.string(), ": ", std::strerror(errno));
    // What lies in a sticky folder is safe if it is ours, which was looked at before. Not so in the
    // nearest one, where the file may be a second name of an old file of ours.
    const bool fine =
        ours_or_roots(info) && (!others_may_write(info) || (!nearest && is_sticky(info)));
    if (!fine) return described(folder, info);
    nearest = false;
    if (folder == folder.root_path()) return "";
  }
}

}  // namespace

bool others_may_write(const struct stat& info) {
  return !ours_or_roots(info) || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

std::string why_untrusted(const std::filesystem::path& file) {
  std::error_code problem;
  const std::filesystem::path real = std::filesystem::canonical(file, problem);
  if (problem) return problem.message();
  struct stat info;
  if (stat(real.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISREG(info.st_mode)) return str(real.string(), " is no plain file");
  if (others_may_write(info)) return described(real, info);
  // Both ways there: that of the name, whose links could be changed, and that of the file.
  const std::string why =
      why_folders_untrusted(std::filesystem::absolute(file).lexically_normal());
  return why.empty() ? why_folders_untrusted(real) : why;
}

const char* trusted_environment(const char* name) { return secure_getenv(name); }

}  // namespace grapnel::base
