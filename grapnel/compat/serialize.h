/// torch::save and torch::load, for modules, tensors, lists of tensors and optimisers: files and
/// streams; and archives of tensors by name.
///
/// Files that are written are safetensors, whatever they are called: LibTorch does not read them.
/// Modules and tensors are read from its own files (zip and pickle), too; lists and optimisers are
/// not. docs/porting-from-libtorch.md says more.
#pragma once

#include <concepts>
#include <filesystem>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "grapnel/compat/names.h"

namespace torch {

// Tensors and optimisers.
using grapnel::load;
using grapnel::save;

/// Where something is saved to or loaded from: a path or a stream.
template <class W>
concept SavePlace = std::is_convertible_v<W, const std::filesystem::path&> ||
                    std::is_convertible_v<W, std::ostream&>;
template <class W>
concept LoadPlace = std::is_convertible_v<W, const std::filesystem::path&> ||
                    std::is_convertible_v<W, std::istream&>;

template <class M, SavePlace W>
void save(const grapnel::nn::ModuleHolder<M>& module, W&& where) {
  grapnel::save(*module.ptr(), where);
}
template <class M, LoadPlace W>
void load(grapnel::nn::ModuleHolder<M>& module, W&& where) {
  grapnel::load(*module.ptr(), where);
}
template <std::derived_from<grapnel::nn::Module> M, SavePlace W>
void save(const std::shared_ptr<M>& module, W&& where) {
  grapnel::save(*module, where);
}
template <std::derived_from<grapnel::nn::Module> M, LoadPlace W>
void load(std::shared_ptr<M>& module, W&& where) {
  grapnel::load(*module, where);
}

namespace serialize {

/// Tensors by name, on their way out.
class OutputArchive {
 public:
  void write(const std::string& key, const grapnel::Tensor& tensor, bool /*is_buffer*/ = false) {
    archive_.write(key, tensor);
  }
  void write(const std::string& key, OutputArchive& nested) {
    archive_.write(key, nested.archive_);
  }
  void save_to(const std::string& filename) { archive_.save(filename); }
  void save_to(std::ostream& stream) { grapnel::write_archive(archive_, stream); }

 private:
  grapnel::io::Archive archive_;
};

/// Tensors by name, as an OutputArchive wrote them.
class InputArchive {
 public:
  void read(const std::string& key, grapnel::Tensor& tensor, bool /*is_buffer*/ = false) {
    tensor = archive_.tensor(key);
  }
  /// Whether there is such a tensor.
  bool try_read(const std::string& key, grapnel::Tensor& tensor, bool /*is_buffer*/ = false) {
    const grapnel::Tensor* found = archive_.tensors().find(key);
    if (found != nullptr) tensor = *found;
    return found != nullptr;
  }
  void read(const std::string& key, InputArchive& nested) { nested.archive_ = archive_.part(key); }
  void load_from(const std::string& filename) { archive_ = grapnel::io::Archive::load(filename); }
  void load_from(std::istream& stream) { archive_ = grapnel::read_archive(stream); }
  std::vector<std::string> keys() { return archive_.tensors().keys(); }

 private:
  grapnel::io::Archive archive_;
};

}  // namespace serialize

template <SavePlace W>
void save(const std::vector<grapnel::Tensor>& tensors, W&& where) {
  serialize::OutputArchive out;
  for (size_t i = 0; i < tensors.size(); ++i) out.write(std::to_string(i), tensors[i]);
  if constexpr (std::is_convertible_v<W, std::ostream&>) out.save_to(where);
  else out.save_to(std::filesystem::path(where).string());
}
/// Appends what was saved.
template <LoadPlace W>
void load(std::vector<grapnel::Tensor>& tensors, W&& where) {
  serialize::InputArchive in;
  if constexpr (std::is_convertible_v<W, std::istream&>) in.load_from(where);
  else in.load_from(std::filesystem::path(where).string());
  grapnel::Tensor next;
  for (size_t i = 0; in.try_read(std::to_string(i), next); ++i) tensors.push_back(next);
}

/// To a device, which can only be the CPU.
template <class T>
void load(T& value, const std::filesystem::path& path, const std::optional<grapnel::Device>&) {
  load(value, path);
}

}  // namespace torch
