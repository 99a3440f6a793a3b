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
  fd_ = retried([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); });
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

std::string read_text(const std::filesystem::path& path) {
  const InputFile file(path);
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

// --- writing ---

AtomicFile::AtomicFile(const std::filesystem::path& path, Durable durable)
    : path_(path), partial_(path), durable_(durable) {
  partial_ += ".partial";
  for (;;) {
    fd_ = retried([&] { return ::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
    if (fd_ < 0) fail_with("cannot be created", errno);
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      ::close(std::exchange(fd_, -1));
      fail(
          path_.string(), ": cannot be written: ",
          error == EWOULDBLOCK ? "someone else is writing it at this moment" : std::strerror(error),
          ".");
    }
    // Between opening and locking, another writer may have renamed this very file into place. Then
    // it is not ours to change.
    struct stat mine, current;
    if (::fstat(fd_, &mine) == 0 && ::stat(partial_.c_str(), &current) == 0 &&
        mine.st_ino == current.st_ino)
      break;
    ::close(std::exchange(fd_, -1));
  }
  if (::ftruncate(fd_, 0) != 0) fail_with("cannot be written", errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::unlink(partial_.c_str());
  ::close(fd_);
}

void AtomicFile::fail_with(const char* doing, int error) {
  fail(path_.string(), ": ", doing, ": ", std::strerror(error), " (after ", written_,
       " bytes).\nWhat was there before is unchanged.",
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
  if (durable_ == Durable::yes && ::fsync(fd_) != 0)
    fail_with("cannot be flushed to the disk", errno);
  if (::rename(partial_.c_str(), path_.c_str()) != 0)
    fail_with("cannot be put in its place", errno);
  ::close(std::exchange(fd_, -1));
  if (durable_ == Durable::no) return;
  // The new name, too, has to survive a power cut. Folders that cannot be flushed (some file
  // systems) keep it soon enough.
  const auto folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  if (const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

}  // namespace grapnel::io
