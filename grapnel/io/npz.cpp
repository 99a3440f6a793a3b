/// The .npz format: a ZIP archive of .npy files, stored or deflated. Only the central directory at
/// the end is believed.
#include <zlib.h>

#include <limits>

#include "grapnel/io/file.h"
#include "grapnel/io/npy.h"
#include "grapnel/io/unzip.h"
#include "grapnel/io/zip.h"

namespace grapnel::io {

NamedTensors load_npz(const std::filesystem::path& path) {
  const std::string bytes = read_text(path);
  return parse_npz(std::as_bytes(std::span(bytes)), path.string());
}

NamedTensors parse_npz(std::span<const std::byte> given, const std::string& source) {
  NamedTensors out("Array");
  const ZipArchive archive({reinterpret_cast<const char*>(given.data()), given.size()}, source,
                           "no .npz file");
  for (const ZipMember& m : archive.members()) {
    std::string room;
    const std::string_view array = archive.contents(m, room);
    const std::string name =
        m.name.ends_with(".npy") ? m.name.substr(0, m.name.size() - 4) : m.name;
    check(!out.contains(name), source, ": the array '", name, "' is there twice.");
    out.insert(name, parse_npy(std::as_bytes(std::span(array)), source + " (" + m.name + ")"));
  }
  return out;
}

void save_npz(const std::filesystem::path& path, const NamedTensors& tensors,
              const NpzOptions& options) {
  const std::string source = path.string();
  AtomicFile file(path);
  std::string central;
  const auto most = std::numeric_limits<uint32_t>::max();
  check(tensors.size() < 65535, source, ": more than 65534 arrays do not fit; use safetensors.");
  for (const auto& item : tensors) {
    const std::string plain = npy_bytes(item.value(), source);
    ZipEntry entry{.name = item.key() + ".npy", .deflated = options.compressed};
    check(plain.size() < most && file.written() + plain.size() < most && entry.name.size() < 65536,
          source, ": '", item.key(), "' makes the file larger than 4 GiB; use safetensors.");
    const std::string packed = options.compressed ? deflated(plain, source) : plain;
    entry.checksum = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(plain.data()), plain.size()));
    entry.packed = packed.size(), entry.size = plain.size(), entry.offset = file.written();
    central += zip_line(entry, source);
    file.write(zip_header(entry, source));
    file.write(packed);
  }
  const std::string end = zip_end(tensors.size(), central.size(), file.written(), source);
  file.write(central + end);
  file.commit();
}

}  // namespace grapnel::io
