#include "grapnel/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <optional>

#include "grapnel/base/warn.h"
#include "grapnel/functions/factories.h"
#include "grapnel/io/file.h"
#include "grapnel/io/safetensors_header.h"

namespace grapnel::io {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little endian; this machine needs swapping");

namespace {

constexpr std::pair<DType, const char*> types[] = {
    {kBool, "BOOL"},   {kUInt8, "U8"},      {kInt32, "I32"},   {kInt64, "I64"},
    {kFloat16, "F16"}, {kBFloat16, "BF16"}, {kFloat32, "F32"}, {kFloat64, "F64"}};

const char* name_of(DType dtype) {
  return std::ranges::find(types, dtype, &std::pair<DType, const char*>::first)->second;
}

/// Nothing for a type of the format that Grapnel has not.
std::optional<DType> type_of(const SafetensorsEntry& e) {
  for (const auto& [dtype, name] : types)
    if (e.dtype == name) return dtype;
  return {};
}

void warn_of(const TextMap& left_out, const std::string& source) {
  constexpr size_t most = 8;
  std::string names;
  size_t count = 0;
  for (const auto& [name, type] : left_out)
    if (count++ < most) names += str(count == 1 ? "" : ", ", "'", name, "' (", type, ")");
  if (count > most) names += str(" and ", count - most, " more");
  base::warn(str(source, ": ", count, count == 1 ? " tensor was" : " tensors were",
                 " left out, since Grapnel has no such type: ", names,
                 ".\nConvert where the file is made, e.g. to F32 or I64."));
}

using ReadAt = std::function<void(uint64_t offset, void* out, size_t bytes)>;

Safetensors read(uint64_t size, const std::string& source, const ReadAt& read_at) {
  check(size >= 8, source, ": is no safetensors file: it has ", size,
        " bytes, and the length of the header alone takes 8.");
  uint64_t header_bytes;
  read_at(0, &header_bytes, 8);
  constexpr uint32_t zip = 0x04034b50;  // "PK\3\4", little endian
  check(static_cast<uint32_t>(header_bytes) != zip || header_bytes <= most_header_bytes, source,
        ": is a zip file, as torch.save and LibTorch's torch::save write it, and no safetensors "
        "file.\n"
        "Read it with io::load_pt; docs/porting-from-libtorch.md shows how.");
  check(header_bytes <= most_header_bytes, source,
        ": is no safetensors file: its first 8 bytes ask for a header of ", header_bytes,
        " bytes; ", most_header_bytes, " are the limit.");
  check(header_bytes <= size - 8, source, ": the header should have ", header_bytes,
        " bytes, but only ", size - 8,
        " are left in the file.\nIt was cut off, or it is no safetensors file.");
  std::string text(header_bytes, '\0');
  read_at(8, text.data(), text.size());
  SafetensorsHeader header = parse_safetensors_header(text, size - 8 - header_bytes, source);

  Safetensors out;
  for (const SafetensorsEntry& e : header.entries) {
    const std::optional<DType> type = type_of(e);
    if (!type) {
      out.left_out.emplace(e.name, e.dtype);
      continue;
    }
    const Tensor t = empty(e.shape, TensorOptions(*type).device(kCPU));
    read_at(8 + header_bytes + e.begin, t.data_ptr(), e.end - e.begin);
    // Any byte may stand there, but a bool that is neither 0 nor 1 is none.
    if (t.dtype() == kBool)
      std::ranges::for_each(static_cast<uint8_t*>(t.data_ptr()),
                            static_cast<uint8_t*>(t.data_ptr()) + t.numel(),
                            [](uint8_t& b) { b = b != 0; });
    out.tensors.insert(e.name, t);
  }
  out.metadata = std::move(header.metadata);
  if (!out.left_out.empty()) warn_of(out.left_out, source);
  return out;
}

}  // namespace

Safetensors load_safetensors(const std::filesystem::path& path) {
  const InputFile file(path);
  return read(file.size(), path.string(),
              [&](uint64_t offset, void* out, size_t bytes) { file.read_at(offset, out, bytes); });
}

Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::string& source) {
  return read(bytes.size(), source, [&](uint64_t offset, void* out, size_t count) {
    if (count > 0) std::memcpy(out, bytes.data() + offset, count);
  });
}

namespace {

/// A file before it is written: its header, and the tensors in their order.
struct Laid {
  std::string header;
  std::vector<Tensor> tensors;

  /// Hands all bytes, piece by piece, to `write(memory, count)`.
  void write_to(const auto& write) const {
    const uint64_t header_bytes = header.size();
    write(&header_bytes, sizeof header_bytes);
    write(header.data(), header.size());
    for (const Tensor& t : tensors) write(t.data_ptr(), static_cast<size_t>(t.nbytes()));
  }
};

Laid lay_out(const std::string& source, const NamedTensors& tensors, const TextMap& metadata) {
  SafetensorsHeader header{.entries = {}, .metadata = metadata};
  std::vector<std::pair<SafetensorsEntry*, Tensor>> order;
  header.entries.reserve(tensors.size());
  for (const auto& item : tensors) {
    check(item->defined(), source, ": the tensor '", item.key(),
          "' is undefined and cannot be saved.");
    check(item.key() != "__metadata__", source,
          ": a tensor cannot be called __metadata__, which the format uses itself.");
    header.entries.push_back(
        {.name = item.key(), .dtype = name_of(item->dtype()), .shape = item->shape().vec()});
    order.emplace_back(&header.entries.back(), item->detach().cpu().contiguous());
  }
  // Wide types first, so that every tensor is aligned to its elements for readers that map the
  // file.
  std::ranges::sort(order, {}, [](const auto& pair) {
    return std::pair(-static_cast<int64_t>(pair.second.element_size()), pair.first);
  });
  uint64_t at = 0;
  for (auto& [entry, tensor] : order) {
    entry->begin = at;
    entry->end = at += static_cast<uint64_t>(tensor.nbytes());
  }
  std::string text = write_safetensors_header(header);
  text.append(-text.size() % 8, ' ');
  check(text.size() <= most_header_bytes, source, ": the names and metadata take ", text.size(),
        " bytes; the format allows ", most_header_bytes, ".");
  Laid out{.header = std::move(text), .tensors = {}};
  for (auto& [entry, tensor] : order) out.tensors.push_back(std::move(tensor));
  return out;
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const TextMap& metadata, Durable durable) {
  const Laid laid = lay_out(path.string(), tensors, metadata);
  AtomicFile file(path, durable);
  laid.write_to([&](const void* memory, size_t count) { file.write(memory, count); });
  file.commit();
}

std::string format_safetensors(const NamedTensors& tensors, const TextMap& metadata,
                               const std::string& source) {
  std::string out;
  lay_out(source, tensors, metadata).write_to([&](const void* memory, size_t count) {
    out.append(static_cast<const char*>(memory), count);
  });
  return out;
}

}  // namespace grapnel::io
