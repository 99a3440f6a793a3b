/// What a model is made of: its modules with their numbers of parameters, as a table.
///
///   std::cout << nn::summary(*net);
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "grapnel/nn/module.h"

namespace grapnel::nn {

/// A table of a network: layers, shapes, numbers of parameters.
struct ModuleSummary {
  /// One layer.
  struct Row {
    std::string path;   ///< "" for the model itself
    std::string layer;  ///< as the module prints itself
    int64_t depth;
    int64_t parameters;  ///< own ones, without those of submodules
  };
  std::vector<Row> rows;
  int64_t parameters = 0;  ///< numbers in all, each tensor counted once
  int64_t trainable = 0;   ///< of these, those that require gradients
  int64_t buffers = 0;
  int64_t bytes = 0;  ///< parameters and buffers
};

/// Runs a network once and describes its layers.
ModuleSummary summary(Module& module);
std::ostream& operator<<(std::ostream& out, const ModuleSummary& summary);

}  // namespace grapnel::nn
