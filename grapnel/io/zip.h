/// What save_npz writes around its arrays: the headers of a ZIP archive, and deflated bytes.
/// Numbers in the headers have 32 and 16 bits; what does not fit is an error that begins with
/// `source`.
#pragma once

#include <cstdint>
#include <string>

namespace grapnel::io {

struct ZipEntry {
  std::string name;
  bool deflated = false;
  uint32_t checksum = 0;
  uint64_t packed = 0, size = 0;  ///< bytes in the file, and without compression
  uint64_t offset = 0;            ///< of the header in front of them
};

/// In front of the bytes of an entry.
std::string zip_header(const ZipEntry& entry, const std::string& source);
/// The line of an entry in the directory.
std::string zip_line(const ZipEntry& entry, const std::string& source);
/// The end of a file with `entries` lines, which are `bytes` long in all and begin at `offset`.
std::string zip_end(uint64_t entries, uint64_t bytes, uint64_t offset, const std::string& source);

/// `bytes`, compressed; zlib sees no more than `piece` of them at once.
std::string deflated(const std::string& bytes, const std::string& source,
                     uint64_t piece = uint64_t{1} << 30);

}  // namespace grapnel::io
