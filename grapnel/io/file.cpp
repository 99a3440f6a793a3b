#include "grapnel/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace grapnel::io {

namespace {
/// One call moves at most this much, which every system accepts.
constexpr size_t most_at_once = size_t{1} << 30;

template <class Call>
auto retried(Call call) {
  for (;;)
    if (const auto result = call(); result >= 0 || errno != EINTR) return result;
}
}  // namespace

// --- reading ---

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // Without waiting, or a pipe would keep us until somebody writes into it.
  constexpr int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  fd_ = retried([&] { return ::open(path_.c_str(), flags); });
  check(fd_ >= 0, path_.string(), ": cannot be opened: ", std::strerror(errno), ".");
  struct stat info;
  const bool known = ::fstat(fd_, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    const int error = errno;
    ::close(std::exchange(fd_, -1));
    fail(path_.string(),
         ": cannot be read: ", known ? "it is not a plain file" : std::strerror(error), ".");
  }
  size_ = static_cast<uint64_t>(info.st_size);
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void InputFile::read_at(uint64_t offset, void* out, size_t bytes) const {
  auto* to = static_cast<char*>(out);
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = retried([&] {
      return ::pread(fd_, to + done, std::min(bytes - done, most_at_once),
                     static_cast<off_t>(offset + done));
    });
    check(got >= 0, path_.string(), ": cannot be read: ", std::strerror(errno), ".");
    check(got > 0, path_.string(), ": ends at byte ", offset + done, ", ", bytes - done,
          " bytes before it should.");
    done += static_cast<size_t>(got);
  }
}

std::string read_text(const std::filesystem::path& path, uint64_t most) {
  const InputFile file(path);
  check(file.size() <= most, path.string(), ": has ", file.size(), " bytes; ", most,
        " are the limit.");
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

// --- writing ---

namespace {

/// Links lead to links; more of them in a row are a circle.
constexpr int most_links = 40;

bool same_file_as(const std::filesystem::path& path, const struct stat& info) {
  struct stat found;
  return ::lstat(path.c_str(), &found) == 0 && found.st_dev == info.st_dev &&
         found.st_ino == info.st_ino;
}

/// A link in a folder where everybody may write is followed only if its owner is the folder's or
/// ours: the rule that Linux has for opening.
bool is_planted(const std::filesystem::path& path, const struct stat& link) {
  struct stat folder;
  const auto parent = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  return ::stat(parent.c_str(), &folder) == 0 && (folder.st_mode & S_IWOTH) != 0 &&
         link.st_uid != folder.st_uid && link.st_uid != ::geteuid();
}

struct Place {
  std::filesystem::path path;
  bool straight = false;  ///< cannot be replaced, only written into
  mode_t mode = 0;        ///< of the file that is replaced; 0: there is none
};

/// Where writing to `path` leads.
Place place_of(const std::filesystem::path& path) {
  Place out{.path = path};
  struct stat end, link, proc;
  const bool there = ::stat(path.c_str(), &end) == 0;
  if (there && !S_ISREG(end.st_mode) && !S_ISDIR(end.st_mode)) out.straight = true;
  for (int i = 0; ::lstat(out.path.c_str(), &link) == 0 && S_ISLNK(link.st_mode); ++i) {
    check(i < most_links, path.string(),
          ": cannot be written: it is a link that leads in a circle.");
    check(!is_planted(out.path, link), path.string(), ": cannot be written: ", out.path.string(),
          " is a link that user ", link.st_uid,
          " has put into a folder where everybody may write.");
    // Links of /proc, such as the one behind /dev/stdout, stand for open files and not for names.
    if (::stat("/proc", &proc) == 0 && link.st_dev == proc.st_dev) out.straight = true;
    if (out.straight) return {.path = path, .straight = true};
    std::error_code problem;
    const auto next = std::filesystem::read_symlink(out.path, problem);
    check(!problem, path.string(), ": cannot be written: ", problem.message(), ".");
    out.path = out.path.parent_path() / next;
  }
  if (there && !out.straight) out.mode = end.st_mode & 0777;
  return out;
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path, Durable durable)
    : path_(path), target_(path), durable_(durable) {
  Place place{.path = path};
  if (durable != Durable::scratch) place = place_of(path);
  target_ = place.path, straight_ = place.straight;
  if (straight_) {
    constexpr int flags = O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC;
    fd_ = retried([&] { return ::open(path_.c_str(), flags); });
    if (fd_ < 0) fail_with("cannot be opened for writing", errno);
    return;
  }
  check(!std::filesystem::is_directory(target_), path_.string(),
        ": cannot be written: it is a folder.");
  mode_ = place.mode;
  partial_ = target_;
  partial_ += ".partial";
  open_partial();
}

/// A new file, locked. What lies there is removed, unless somebody is writing it.
void AtomicFile::open_partial() {
  struct stat mine;
  // Never more open than the file that is replaced; and nobody else has a use for scratch files.
  const mode_t mode = mode_ != 0                     ? mode_ | S_IRUSR | S_IWUSR
                      : durable_ == Durable::scratch ? 0600
                                                     : 0666;
  constexpr int plain = O_RDWR | O_NOFOLLOW | O_CLOEXEC;
  for (int tries = 0; tries < 100; ++tries) {
    fd_ = retried([&] { return ::open(partial_.c_str(), plain | O_CREAT | O_EXCL, mode); });
    const bool made = fd_ >= 0;
    if (!made && errno != EEXIST) fail_with("cannot be created", errno);
    if (!made)
      fd_ = retried([&] { return ::open(partial_.c_str(), plain | O_NONBLOCK | O_NOCTTY); });
    if (fd_ < 0 && errno == ENOENT) continue;
    if (fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      ::close(std::exchange(fd_, -1));
      fail(
          path_.string(), ": cannot be written: ",
          error == EWOULDBLOCK ? "someone else is writing it at this moment" : std::strerror(error),
          ".");
    }
    // Between opening and locking, another writer may have renamed this very file into place, or
    // removed it. Then it is not ours to change.
    const bool still_there = fd_ < 0 || (::fstat(fd_, &mine) == 0 && same_file_as(partial_, mine));
    if (made && still_there) return;
    // A file that cannot be opened, such as a link, is nobody's work; one that could be locked was
    // left behind.
    const int problem = still_there && ::unlink(partial_.c_str()) != 0 ? errno : 0;
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    check(problem == 0 || problem == ENOENT, path_.string(), ": cannot be written: ",
          partial_.string(), " is in the way and cannot be removed: ", std::strerror(problem), ".");
  }
  fail(path_.string(), ": cannot be written: ", partial_.string(), " comes back again and again.");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  if (!straight_) ::unlink(partial_.c_str());
  ::close(fd_);
}

void AtomicFile::fail_with(const char* doing, int error) {
  fail(path_.string(), ": ", doing, ": ", std::strerror(error), " (after ", written_, " bytes).",
       straight_ ? "" : "\nWhat was there before is unchanged.",
       error == ENOSPC || error == EDQUOT ? " Free some space and try again." : "");
}

void AtomicFile::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = retried([&] { return ::write(fd_, from, std::min(bytes, most_at_once)); });
    if (put < 0) fail_with("cannot be written", errno);
    from += put, bytes -= static_cast<size_t>(put), written_ += static_cast<uint64_t>(put);
  }
}

void AtomicFile::commit() {
  GRAPNEL_ASSERT(fd_ >= 0, "the file was committed before");
  if (straight_) {
    if (::close(std::exchange(fd_, -1)) != 0) fail_with("cannot be written", errno);
    return;
  }
  if (mode_ != 0 && ::fchmod(fd_, mode_) != 0) fail_with("cannot be given its permissions", errno);
  if (durable_ == Durable::yes && ::fsync(fd_) != 0)
    fail_with("cannot be flushed to the disk", errno);
  if (::rename(partial_.c_str(), target_.c_str()) != 0)
    fail_with("cannot be put in its place", errno);
  ::close(std::exchange(fd_, -1));
  if (durable_ != Durable::yes) return;
  // The new name, too, has to survive a power cut. Folders that cannot be flushed (some file
  // systems) keep it soon enough.
  const auto folder =
      target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  if (const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

}  // namespace grapnel::io
