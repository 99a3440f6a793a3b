/// Files: whole reads with bounds, and writes that either happen completely or not at all.
///
/// Note [Atomic files]
/// AtomicFile writes `path.partial`, flushes it to the disk and renames it to `path` in commit().
/// Until then the old file stays as it was, whatever happens: an exception, a full disk, kill -9, a
/// power cut. What a killed process left behind is removed by the next writer; a lock on the file
/// keeps two writers of one path apart.
///
/// If `path` is a symbolic link, the file it leads to is replaced, and the link stays. What is no
/// plain file, such as a pipe or a device, is written straight into, as is /dev/stdout; there only
/// the rest of this note does not hold.
///
/// `path.partial` is always a new file: nothing is written through a link, a second name or a file
/// of somebody else that lies there. Nor is a link followed that somebody else has put into a
/// folder where everybody may write. A replaced file keeps its permissions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "grapnel/base/error.h"

namespace grapnel::io {

/// A file open for reading at any place. Errors name the file.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// As it was when the file was opened.
  uint64_t size() const { return size_; }
  /// All `bytes` from `offset` on, or an error. Safe on several threads.
  void read_at(uint64_t offset, void* out, size_t bytes) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

/// Whether a file has to survive a power cut. It is much quicker without. The name of a scratch
/// file was made up by the program, so nothing that lies there was meant: a link is replaced, too.
enum class Durable : uint8_t { yes, no, scratch };

/// See Note [Atomic files]. Without commit() nothing happens.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path, Durable durable = Durable::yes);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(const std::string& text) { write(text.data(), text.size()); }
  uint64_t written() const { return written_; }
  /// Makes what was written the file's content, for good.
  void commit();

 private:
  [[noreturn]] void fail_with(const char* doing, int error);
  void open_partial();
  std::filesystem::path path_, target_, partial_;  ///< as given; where it leads; beside that
  Durable durable_;
  bool straight_ = false;  ///< into what is no plain file
  uint32_t mode_ = 0;      ///< permissions of the file that is replaced; 0: there is none
  int fd_ = -1;
  uint64_t written_ = 0;
};

/// The whole text of a file; an error if it has more than `most` bytes.
std::string read_text(const std::filesystem::path& path, uint64_t most = UINT64_MAX);

}  // namespace grapnel::io
