/// Running one scenario in every mode: {eager, captured, compiled backward, both} on each backend.
#pragma once

#include <string>

#include "tests/compile/backends.h"
#include "tests/ops/sweep.h"

namespace grapnel {

/// One way of running a scenario. `call` runs the forward function, `backward` everything that
/// belongs to the backward pass; both count graphs.
struct Mode {
  bool capture = false, compiled_backward = false;
  CompileOptions options;
  int64_t forward_graphs = 0, backward_graphs = 0, breaks = 0;

  template <class F, class... Args>
  auto call(F fn, Args&&... args) {
    if (!capture) return fn(std::forward<Args>(args)...);
    auto compiled = compile(std::move(fn), options);
    struct Count {
      Mode& mode;
      decltype(compiled)& f;
      ~Count() {
        mode.forward_graphs += f.stats().graphs;
        mode.breaks += f.stats().breaks;
      }
    } count{*this, compiled};
    return compiled(std::forward<Args>(args)...);
  }
  template <class F>
  void backward(F&& fn) {
    if (!compiled_backward) return fn();
    CompiledBackward scope(options);
    struct Count {
      Mode& mode;
      CompiledBackward& s;
      ~Count() {
        mode.backward_graphs += s.stats().graphs;
        mode.breaks += s.stats().breaks;
      }
    } count{*this, scope};
    fn();
  }
};

/// The most graphs a scenario may compile: F in forward functions, B in backward passes.
struct Most {
  int64_t F = 1, B = 1;
};

/// Calls fn(mode) in all modes, with `fullgraph` where modes compile, and checks the graph counts.
template <class Fn>
void in_all_modes(Most most, Fn&& fn, bool fullgraph = true) {
  for (const bool capture : {false, true})
    for (const bool compiled_backward : {false, true})
      for (const Backend backend : kBackends) {
        if (!capture && !compiled_backward && backend != Backend::eager) continue;
        reset_compile_cache();
        compiler::pass_options().background_kernels = false;
        Mode mode;
        mode.capture = capture;
        mode.compiled_backward = compiled_backward;
        mode.options.backend = backend;
        mode.options.fullgraph = fullgraph;
        const std::string where =
            str(capture ? "captured" : "not captured",
                compiled_backward ? ", compiled backward, " : ", eager backward, ", name(backend));
        CAPTURE(where);
        fn(mode);
        CHECK(mode.forward_graphs <= most.F);
        CHECK(mode.backward_graphs <= most.B);
      }
}

inline std::vector<double> values_of(const Tensor& t) {
  std::vector<double> out;
  const Tensor flat = t.detach().to(kFloat64).reshape({-1});
  for (int64_t i = 0; i < flat.numel(); ++i) out.push_back(flat[i].item<double>());
  return out;
}

}  // namespace grapnel
