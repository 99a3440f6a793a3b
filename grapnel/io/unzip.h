/// Reading ZIP archives, which .npz and .pt files are: entries stored or deflated. Only the central
/// directory at the end is believed, and that only as far as it fits the bytes.
///
/// A made-up archive gives an Error and never asks for much more memory than it has bytes: entries
/// do not overlap, and a deflated one is believed to be at most a thousand times its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace grapnel::io {

/// One entry of an archive.
struct ZipMember {
  std::string name;
  uint16_t method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, offset = 0;
  uint64_t begin = 0;  ///< of the bytes, behind the entry's own header
};

/// An archive in memory, which must outlive it. `source` begins all messages.
class ZipArchive {
 public:
  /// `kind` is what the file should have been: "no .npz file".
  ZipArchive(std::string_view bytes, std::string source, const char* kind);
  const std::vector<ZipMember>& members() const { return members_; }
  /// The bytes of an entry, their checksum verified: in place, or unpacked into `room`.
  std::string_view contents(const ZipMember& member, std::string& room) const;

 private:
  void read_directory(const char* kind);
  void find_contents();
  std::string_view bytes_;
  std::string source_;
  std::vector<ZipMember> members_;
};

}  // namespace grapnel::io
