/// Walking the backends, for tests that hold on each of them.
#pragma once

#include <doctest/doctest.h>

#include "grapnel/compile/passes.h"
#include "grapnel/grapnel.h"

namespace grapnel {

inline constexpr Backend kBackends[] = {Backend::eager, Backend::aot_eager, Backend::fused};

/// Calls fn(options) for every backend with an empty cache, so that graph counts do not depend on
/// the tests that ran before.
template <class Fn>
void on_each_backend(Fn&& fn, CompileOptions options = {}) {
  for (Backend backend : kBackends) {
    CAPTURE(name(backend));
    reset_compile_cache();
    compiler::pass_options().background_kernels = false;
    options.backend = backend;
    fn(options);
  }
}

}  // namespace grapnel
