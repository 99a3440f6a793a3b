/// NanGuard: finds where the first NaN or infinity of a step was born, and says which op, which
/// source line, which layer and which rank.
///
///   hooks::NanGuard guard(*net);
///   ...forward, backward...
///   guard.check();   // throws: "a NaN or an infinity was born in the forward of log, called at
///                    // net.cpp:42 (...), in layer 'head'"
///
/// While it lives, every op on the tape of this thread leaves one number behind, in a tensor, and so
/// does its gradient; nothing is looked at before check(), which reads them all. One more pass over
/// every result is what that costs; a compiled step looks at parameters and gradients while its
/// optimiser passes over them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "grapnel/nn/module.h"

namespace grapnel::hooks {

/// What the guard looks at, and what it does.
struct NanGuardOptions {
  /// Shown in messages, e.g. "rank 3 of 8".
  std::string rank = {};
  bool gradients = true;
};

/// Finds the first value that is not finite and says where it came from.
class NanGuard {
 public:
  /// What was found, and where.
  struct Report {
    std::string phase;  ///< "forward", "backward", "hook", "parameter" or "argument"
    std::string op;     ///< or the name of the parameter, or the hook and what it belongs to
    std::string where;  ///< source line; "" for a hook of a leaf
    std::string layer;  ///< path in the model; "" for what was computed outside of it
    std::string str(const std::string& rank = {}) const;
  };

  explicit NanGuard(nn::Module& module, const NanGuardOptions& options = {});
  ~NanGuard();
  NanGuard(const NanGuard&) = delete;
  NanGuard& operator=(const NanGuard&) = delete;

  /// Throws if something since the last call was not finite.
  void check();
  /// The same without throwing.
  std::optional<Report> find();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace grapnel::hooks
