/// The JSON header of a safetensors file. Private to safetensors.cpp and its tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grapnel/io/safetensors.h"

namespace grapnel::io {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< "F32"; not every type of the format has one of ours
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< in bytes behind the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  TextMap metadata;
};

/// Longer headers are refused, as the reference implementation does.
inline constexpr uint64_t most_header_bytes = 100'000'000;

/// Checks everything that can be known without the elements: names are unique, places lie side by
/// side and fill `data_bytes`.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes,
                                           const std::string& source);
std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace grapnel::io
