/// NumPy's files: one array in .npy, several by name in .npz.
///
/// Both orders of bytes and of dimensions are read; bf16 cannot be written, since NumPy has no such
/// type. Damaged and made-up files give errors and never ask for much more memory than they have
/// bytes; compressed ones for no more than their bytes can honestly unpack to, which is at most a
/// thousandfold. Writing is atomic: see Note [Atomic files] in file.h.
#pragma once

#include <filesystem>
#include <span>

#include "grapnel/io/safetensors.h"

namespace grapnel::io {

/// Reads an array of NumPy.
Tensor load_npy(const std::filesystem::path& path);
/// Writes an array of NumPy.
void save_npy(const std::filesystem::path& path, const Tensor& tensor);

/// Arrays of numpy.savez and numpy.savez_compressed.
NamedTensors load_npz(const std::filesystem::path& path);
/// How an archive of arrays is written.
struct NpzOptions {
  bool compressed = false;
};
/// Writes an archive of arrays.
void save_npz(const std::filesystem::path& path, const NamedTensors& tensors,
              const NpzOptions& options = {});

/// From and to memory; `source` names it in messages.
NamedTensors parse_npz(std::span<const std::byte> bytes, const std::string& source);
/// Reads the bytes of a .npy file.
Tensor parse_npy(std::span<const std::byte> bytes, const std::string& source);
/// The bytes of a .npy file.
std::string npy_bytes(const Tensor& tensor, const std::string& source);

}  // namespace grapnel::io
