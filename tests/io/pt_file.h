/// Files like those of torch.save, composed by hand: a ZIP archive with a pickle and the memory of
/// tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "grapnel/io/zip.h"

namespace grapnel {

/// Pickles, operation by operation, as protocol 2 has them.
class PickleText {
 public:
  PickleText() { raw(std::string_view("\x80\x02", 2)); }
  PickleText& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  template <class T>
  PickleText& number(T value) {
    return raw({reinterpret_cast<const char*>(&value), sizeof value});
  }
  PickleText& text(std::string_view text) {
    return raw("X").number(static_cast<uint32_t>(text.size())).raw(text);
  }
  PickleText& integer(int32_t value) { return raw("J").number(value); }
  PickleText& integers(const std::vector<int32_t>& values) {
    raw("(");
    for (const int32_t value : values) integer(value);
    return raw("t");
  }
  PickleText& name(std::string_view module, std::string_view name) {
    return raw("c").raw(module).raw("\n").raw(name).raw("\n");
  }
  /// What _rebuild_tensor_v2 makes of a storage.
  PickleText& tensor(std::string_view type, std::string_view key, int32_t offset,
                     const std::vector<int32_t>& sizes, const std::vector<int32_t>& strides,
                     bool requires_grad = false) {
    name("torch._utils", "_rebuild_tensor_v2").raw("((").text("storage").name("torch", type);
    text(key).text("cpu").integer(0).raw("tQ").integer(offset).integers(sizes).integers(strides);
    raw(requires_grad ? "\x88" : "\x89").name("collections", "OrderedDict");
    return raw(")RtR");
  }
  std::string end() const { return bytes_ + "."; }

 private:
  std::string bytes_;
};

/// The checksum of ZIP archives.
inline uint32_t zip_checksum(std::string_view bytes) {
  uint32_t out = ~uint32_t{0};
  for (const char byte : bytes) {
    out ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) out = out & 1 ? out >> 1 ^ 0xEDB88320 : out >> 1;
  }
  return ~out;
}

inline std::string zip_of(const std::map<std::string, std::string>& files, bool packed = false) {
  std::string out, central;
  for (const auto& [name, plain] : files) {
    const std::string body = packed ? io::deflated(plain, name) : plain;
    io::ZipEntry entry{.name = name, .deflated = packed};
    entry.checksum = zip_checksum(plain);
    entry.packed = body.size(), entry.size = plain.size(), entry.offset = out.size();
    central += io::zip_line(entry, name);
    out += io::zip_header(entry, name) + body;
  }
  return out + central + io::zip_end(files.size(), central.size(), out.size(), "zip");
}

/// The file around a pickle, with the memory of its tensors by key.
inline std::string pt_of(const std::string& pickle,
                         const std::map<std::string, std::string>& memory = {},
                         bool packed = false) {
  std::map<std::string, std::string> files{
      {"archive/data.pkl", pickle}, {"archive/byteorder", "little"}, {"archive/version", "3\n"}};
  for (const auto& [key, bytes] : memory) files["archive/data/" + key] = bytes;
  return zip_of(files, packed);
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace grapnel
