/// StateDict: the parameters and buffers of a module by name, with what is known about each
/// submodule.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "grapnel/base/ordered_dict.h"
#include "grapnel/nn/value.h"

namespace grapnel::nn {

/// Facts about one module, such as `version`.
using Metadata = std::map<std::string, Value>;

/// Names and tensors of a module, as they are saved.
class StateDict : public OrderedDict<std::string, Tensor> {
 public:
  StateDict() : OrderedDict("Entry") {}
  /// Tensors by name without metadata, such as those of a file of another program.
  StateDict(OrderedDict<std::string, Tensor> entries) : OrderedDict(std::move(entries)) {}
  /// By the module's path: "" for the root, "encoder.fc" for a descendant.
  std::map<std::string, Metadata> metadata;
};

/// What did not fit when a StateDict was loaded.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys;
  std::vector<std::string> unexpected_keys;
};

/// A load under way, as its pre-hooks see it. The entries may be renamed, added and removed.
struct LoadContext {
  StateDict& state_dict;
  const std::string& prefix;  ///< "encoder.fc." for that module's entries
  const Metadata& metadata;
  bool strict;
  std::vector<std::string>& missing_keys;
  std::vector<std::string>& unexpected_keys;
  std::vector<std::string>& errors;
};

}  // namespace grapnel::nn
