/// Files of named tensors in the safetensors format, which Python's `safetensors` package reads and
/// writes.
///
/// A file is the length of a header (u64), the header (JSON: type, shape and place of every
/// tensor), and the elements, little endian and without gaps. Reading believes nothing: a file that
/// is damaged, cut off or made up gives an Error that says what is wrong, and never asks for more
/// memory than the file has bytes. Writing is atomic: see Note [Atomic files] in file.h.
///
///   io::save_safetensors("net.safetensors", net->state_dict());
///   net->load_state_dict(io::load_safetensors("net.safetensors").tensors);
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "grapnel/base/ordered_dict.h"
#include "grapnel/io/file.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::io {

using NamedTensors = OrderedDict<std::string, Tensor>;
/// Free text beside the tensors.
using TextMap = std::map<std::string, std::string>;

/// The tensors of a file and the texts beside them.
struct Safetensors {
  NamedTensors tensors{"Tensor"};
  TextMap metadata = {};
  /// Tensors that were not read, since Grapnel has no such type: by name, with their type as the
  /// file has it, such as "I8". A warning names them, too.
  TextMap left_out = {};
};

/// Tensors of any layout; undefined ones are refused.
void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const TextMap& metadata = {}, Durable durable = Durable::yes);
/// The bytes of such a file.
std::string format_safetensors(const NamedTensors& tensors, const TextMap& metadata = {},
                               const std::string& source = "safetensors");
/// Reads all tensors of a file.
Safetensors load_safetensors(const std::filesystem::path& path);
/// The same from memory; `source` names it in messages.
Safetensors parse_safetensors(std::span<const std::byte> bytes,
                              const std::string& source = "safetensors");

}  // namespace grapnel::io
