/// Archive: tensors and plain values by name, and their file: safetensors, with the values as JSON
/// in its metadata.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <variant>

#include "grapnel/io/safetensors.h"

namespace grapnel::io {

/// What an object is saved to and loaded from: tensors, numbers and texts, each under a name.
class Archive {
 public:
  using Value = std::variant<Scalar, std::string>;

  void write(const std::string& name, const Tensor& tensor);
  void write(const std::string& name, Value value);
  /// All of `part` under `name.`.
  void write(const std::string& name, const Archive& part);

  /// Throws when the name is missing or holds something else.
  Tensor tensor(const std::string& name) const;
  Scalar number(const std::string& name) const;
  std::string text(const std::string& name) const;
  bool has(const std::string& name) const;
  /// What is under `name.`, without that prefix.
  Archive part(const std::string& name) const;

  const NamedTensors& tensors() const { return tensors_; }
  const std::map<std::string, Value>& values() const { return values_; }
  bool is_empty() const { return tensors_.is_empty() && values_.empty(); }
  /// The same with tensors of its own.
  Archive copy() const;

  /// Atomic: see Note [Atomic files] in io/file.h.
  void save(const std::filesystem::path& path) const;
  /// What the file would hold.
  std::string bytes() const;
  /// Reads what bytes() made; `source` names it in messages.
  static Archive parse(std::span<const std::byte> bytes, const std::string& source = "archive");
  /// Refuses files of another version, and files that are no archives unless they are plain
  /// safetensors.
  static Archive load(const std::filesystem::path& path);

 private:
  std::string json_of_values() const;
  static Archive from(Safetensors file, const std::string& source);
  NamedTensors tensors_{"Tensor"};
  std::map<std::string, Value> values_;
};

}  // namespace grapnel::io
