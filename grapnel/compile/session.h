/// Session: what one compiled function (or one CompiledBackward) remembers, and the sink its traces
/// go to.
#pragma once

#include <memory>
#include <mutex>

#include "grapnel/capture/recorder.h"
#include "grapnel/compile/scope.h"

namespace grapnel::compiler {

class Session final : public record::Sink {
 public:
  explicit Session(const CompileOptions& options) : options_(options) {}

  const CompileOptions& options() const { return options_; }
  CompileStats stats() const;
  /// Forgets statistics and the graphs that were compiled for this session.
  void reset();

  void run(capture::Trace& trace) override;
  void on_break(const record::Break& why, const capture::Trace& trace) override;
  bool keys_sizes() const override { return !options_.dynamic; }
  bool names_hooks() const override;

 private:
  /// The key of the last run and which words belong to which op, to tell what was different.
  struct Trail {
    capture::Words words;
    std::vector<std::pair<uint32_t, const Op*>> ends;
  };
  Reason explain_miss(const capture::Trace& trace) const;

  const CompileOptions options_;
  mutable std::mutex mutex_;
  CompileStats stats_;
  Trail last_;
  std::vector<capture::Words> compiled_;  ///< keys in the cache
};

}  // namespace grapnel::compiler
