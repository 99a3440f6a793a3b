#include "grapnel/data/idx.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "grapnel/base/error.h"

namespace grapnel::data {

namespace {

/// An open file, decompressed while it is read.
class GzipReader {
 public:
  explicit GzipReader(const std::filesystem::path& path) : path_(path) {
    // Without waiting, or a pipe would keep us until somebody writes into it.
    const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    check(fd >= 0, path.string(), ": cannot be opened: ", std::strerror(errno), ".");
    struct stat info;
    const bool plain = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    if (plain) file_.reset(gzdopen(fd, "rb"));
    if (!file_) ::close(fd);
    check(plain, path.string(), ": cannot be read: it is not a plain file.");
    check(file_ != nullptr, path.string(), ": cannot be opened: ", std::strerror(ENOMEM), ".");
  }

  /// Up to `size` bytes; fewer only at the end of the file.
  size_t read_some(void* out, size_t size) {
    const int got = gzread(file_.get(), out, static_cast<unsigned>(size));
    int code = Z_OK;
    std::string_view text = gzerror(file_.get(), &code);
    // zlib puts the path in front of its messages, as the message below does.
    const std::string prefix = path_.string() + ": ";
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
    // zlib reports a stream that stops in the middle only beside the bytes it still could give.
    check(got >= 0 && (code == Z_OK || code == Z_STREAM_END), path_.string(),
          ": damaged: ", code == Z_ERRNO ? std::string_view(std::strerror(errno)) : text,
          ".\nInstall or download the file again.");
    return static_cast<size_t>(got);
  }

  void read(void* out, size_t size, const char* what) {
    const size_t got = read_some(out, size);
    check(got == size, path_.string(), ": ends inside ", what, ": ", got, " of ", size,
          " bytes are there.\nInstall or download the file again.");
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace

IdxArray read_idx(const std::filesystem::path& path) {
  GzipReader file(path);

  std::array<uint8_t, 4> magic;
  file.read(magic.data(), magic.size(), "the magic number");
  check(magic[0] == 0 && magic[1] == 0, path.string(), ": not an IDX file: it starts with bytes ",
        int{magic[0]}, " and ", int{magic[1]}, " where two zeros belong.");
  check(magic[2] == 0x08, path.string(), ": holds elements of type ", int{magic[2]},
        "; only bytes (type 8) are read here.");
  check(magic[3] >= 1 && magic[3] <= 4, path.string(), ": has ", int{magic[3]},
        " dimensions; 1 to 4 are read here.");

  IdxArray array;
  size_t total = 1;
  for (int i = 0; i < magic[3]; ++i) {
    std::array<uint8_t, 4> b;
    file.read(b.data(), b.size(), "the sizes");
    const uint64_t size = uint64_t{b[0]} << 24 | uint64_t{b[1]} << 16 | uint64_t{b[2]} << 8 | b[3];
    constexpr size_t limit = size_t{1} << 32;
    check(size > 0 && size <= limit / total, path.string(), ": dimension ", i, " claims ", size,
          " entries, ", size ? "which makes more than 4 GiB" : "which leaves no data",
          ".\nInstall or download the file again.");
    total *= size;
    array.sizes.push_back(static_cast<int64_t>(size));
  }

  // Piece by piece, so that a damaged header cannot ask for more memory than the file has bytes.
  constexpr size_t piece = size_t{1} << 20;
  while (array.bytes.size() < total) {
    const size_t have = array.bytes.size(), want = std::min(piece, total - have);
    array.bytes.resize(have + want);
    const size_t got = file.read_some(array.bytes.data() + have, want);
    check(got == want, path.string(), ": ends inside the elements: ", have + got, " of ", total,
          " are there.\nInstall or download the file again.");
  }
  uint8_t extra;
  check(file.read_some(&extra, 1) == 0, path.string(), ": goes on after its ", total,
        " elements.\nInstall or download the file again.");
  return array;
}

}  // namespace grapnel::data
