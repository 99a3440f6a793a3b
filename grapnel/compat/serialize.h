/// torch::save and torch::load, for modules, tensors, lists of tensors and optimisers.
///
/// Files that are written are safetensors, whatever they are called: LibTorch does not read them.
/// Modules and tensors are read from its own files (zip and pickle), too; lists and optimisers are
/// not. docs/porting-from-libtorch.md says more.
#pragma once

#include <concepts>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grapnel/compat/names.h"

namespace torch {

// Tensors and optimisers.
using grapnel::load;
using grapnel::save;

template <class M>
void save(const grapnel::nn::ModuleHolder<M>& module, const std::filesystem::path& path) {
  grapnel::save(*module.ptr(), path);
}
template <class M>
void load(grapnel::nn::ModuleHolder<M>& module, const std::filesystem::path& path) {
  grapnel::load(*module.ptr(), path);
}
template <std::derived_from<grapnel::nn::Module> M>
void save(const std::shared_ptr<M>& module, const std::filesystem::path& path) {
  grapnel::save(*module, path);
}
template <std::derived_from<grapnel::nn::Module> M>
void load(std::shared_ptr<M>& module, const std::filesystem::path& path) {
  grapnel::load(*module, path);
}

inline void save(const std::vector<grapnel::Tensor>& tensors, const std::filesystem::path& path) {
  grapnel::io::Archive out;
  for (size_t i = 0; i < tensors.size(); ++i) out.write(std::to_string(i), tensors[i]);
  out.save(path);
}
/// Appends what the file holds.
inline void load(std::vector<grapnel::Tensor>& tensors, const std::filesystem::path& path) {
  const grapnel::io::Archive in = grapnel::io::Archive::load(path);
  for (size_t i = 0; in.has(std::to_string(i)); ++i)
    tensors.push_back(in.tensor(std::to_string(i)));
}

/// To a device, which can only be the CPU.
template <class T>
void load(T& value, const std::filesystem::path& path, const std::optional<grapnel::Device>&) {
  load(value, path);
}

}  // namespace torch
