#include "grapnel/codegen/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/error.h"
#include "grapnel/base/trusted_file.h"
#include "grapnel/base/warn.h"

namespace grapnel::codegen {
namespace {

/// FNV-1a. Good enough to name files and to notice damage; equality of keys is checked in full.
uint64_t hash(std::string_view bytes, uint64_t state = 0xcbf29ce484222325) {
  for (const char c : bytes) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return state;
}

constexpr char kExtension[] = ".kernel";
/// A few thousand kernels.
constexpr uint64_t kCacheLimit = uint64_t{256} << 20;
std::atomic<uint64_t> cache_limit{kCacheLimit};
/// One entry in 128 has the whole folder looked at before it is written. Its key decides, so that
/// short programs do their share, and do not all begin with it.
bool is_due_to_prune(std::string_view key) { return hash(key) * 0x9e3779b97f4a7c15 >> 57 == 0; }

struct Header {
  char magic[8];
  uint64_t key_size, object_size, checksum;
};
constexpr char kMagic[8] = {'G', 'R', 'A', 'P', 'N', 'E', 'L', 1};

uint64_t checksum(std::string_view key, std::string_view object) { return hash(object, hash(key)); }

class File {
 public:
  explicit File(int descriptor) : fd_(descriptor) {}
  ~File() { close(); }
  File(const File&) = delete;
  bool ok() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
  }
  bool read(void* to, size_t size) const {
    for (char* p = static_cast<char*>(to); size > 0;) {
      const ssize_t got = ::read(fd_, p, size);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      p += got, size -= static_cast<size_t>(got);
    }
    return true;
  }
  bool write(const void* from, size_t size) const {
    for (const char* p = static_cast<const char*>(from); size > 0;) {
      const ssize_t put = ::write(fd_, p, size);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return false;
      p += put, size -= static_cast<size_t>(put);
    }
    return true;
  }

 private:
  int fd_;
};

/// Code is executed from here, so nobody else may be able to put it there.
bool is_ours_alone(const struct stat& info) {
  return info.st_uid == geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// Once for a folder, since it would be said for every kernel.
void warn_of_folder(const std::string& folder, const struct stat& info) {
  static constinit base::ProcessMutex mutex{base::ForkOrder::settings};
  static std::set<std::string>* const told = new std::set<std::string>();
  {
    const std::lock_guard lock(mutex);
    if (!told->insert(folder).second) return;
  }
  const bool foreign = info.st_uid != geteuid();
  base::warn(str("compiled kernels are not kept on disk: ", folder,
                 foreign ? str(" belongs to user ", info.st_uid) : " can be written by others",
                 ", who could put other code there.\n",
                 foreign ? "GRAPNEL_CACHE_DIR names another folder." : "chmod go-w " + folder));
}

bool folder_is_safe(const std::string& folder) {
  struct stat info;
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  if (is_ours_alone(info)) return true;
  warn_of_folder(folder, info);
  return false;
}

/// Whether a folder may be made there without leaving ours in somebody else's home, as a program
/// that root runs with a user's environment would.
bool is_ours_to_make(const std::filesystem::path& folder) {
  struct stat info;
  for (std::filesystem::path p = folder;; p = p.parent_path()) {
    if (stat(p.c_str(), &info) == 0) return info.st_uid == geteuid() || info.st_uid == 0;
    if (p == p.parent_path()) return false;
  }
}

bool read_checked(const File& file, std::string_view key, std::string& object) {
  struct stat info;
  Header header;
  if (fstat(file.fd(), &info) != 0 || !S_ISREG(info.st_mode) || !is_ours_alone(info)) return false;
  if (!file.read(&header, sizeof header) || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return false;
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  if (header.key_size != key.size() || header.object_size > size ||
      sizeof header + header.key_size + header.object_size != size)
    return false;
  std::string stored(header.key_size, '\0');
  object.resize(header.object_size);
  return file.read(stored.data(), stored.size()) && file.read(object.data(), object.size()) &&
         stored == key && header.checksum == checksum(stored, object);
}

/// Removes what was used least recently, until three quarters of the limit are left, and drafts
/// that nobody finished.
void prune(const std::string& folder) {
  struct Item {
    std::filesystem::path path;
    std::filesystem::file_time_type used;
    uint64_t size;
  };
  std::vector<Item> items;
  uint64_t total = 0;
  std::error_code problem;
  const auto an_hour_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    const Item item{entry.path(), entry.last_write_time(problem), entry.file_size(problem)};
    const bool is_entry = item.path.extension() == kExtension;
    const bool is_draft =
        item.path.filename().string().find(std::string(kExtension) + ".") != std::string::npos;
    if (is_entry) {
      items.push_back(item);
      total += item.size;
    } else if (is_draft && item.used < an_hour_ago) {
      std::filesystem::remove(item.path, problem);
    }
  }
  if (total <= cache_limit.load()) return;
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return a.used < b.used; });
  for (const Item& item : items) {
    if (total <= cache_limit.load() / 4 * 3) return;
    if (std::filesystem::remove(item.path, problem)) total -= item.size;
  }
}

}  // namespace

void set_cache_limit_for_testing(uint64_t bytes) { cache_limit.store(bytes); }

std::string cache_folder() {
  if (const char* own = base::trusted_environment("GRAPNEL_CACHE_DIR")) {
    std::string folder = own;
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    return folder;
  }
  for (const auto& [variable, below] :
       {std::pair("XDG_CACHE_HOME", "/grapnel"), {"HOME", "/.cache/grapnel"}})
    if (const char* home = base::trusted_environment(variable); home && *home == '/') {
      const std::string folder = std::string(home) + below;
      return is_ours_to_make(folder) ? folder : "";
    }
  return {};
}

std::string entry_path(const std::string& folder, std::string_view key) {
  char name[64];
  std::snprintf(name, sizeof name, "/%016llx%s", static_cast<unsigned long long>(hash(key)),
                kExtension);
  return folder + name;
}

Entry read_entry(const std::string& folder, std::string_view key) {
  if (folder.empty() || !folder_is_safe(folder)) return {};
  const File file(open(entry_path(folder, key).c_str(),
                       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.ok()) return {};
  Entry entry;
  entry.found = read_checked(file, key, entry.object) ? Found::yes : Found::rejected;
  futimens(file.fd(), nullptr);  // used now
  return entry;
}

bool write_entry(const std::string& folder, std::string_view key, std::string_view object) {
  if (folder.empty()) return false;
  std::error_code problem;
  if (!std::filesystem::exists(folder, problem)) {
    std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), problem);
    if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) return false;
  }
  if (!folder_is_safe(folder)) return false;
  static std::atomic<uint64_t> count{0};
  const uint64_t number = count++;
  if (is_due_to_prune(key)) prune(folder);
  const std::string path = entry_path(folder, key), draft = str(path, ".", getpid(), ".", number);
  File file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.ok()) return false;
  Header header{{}, key.size(), object.size(), checksum(key, object)};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  const bool written = file.write(&header, sizeof header) && file.write(key.data(), key.size()) &&
                       file.write(object.data(), object.size());
  if (file.close() && written && std::rename(draft.c_str(), path.c_str()) == 0) return true;
  ::unlink(draft.c_str());
  return false;
}

}  // namespace grapnel::codegen
