/// Random programs give the same bits in every mode. GRAPNEL_FUZZ_PROGRAMS=100000 runs more of
/// them, GRAPNEL_FUZZ_SEED starts elsewhere.
#include <cstdlib>

#include "tests/compile/backends.h"
#include "tests/compile/random_program.h"

using namespace grapnel;

namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Outcome {
  std::vector<Tensor> tensors;
  std::string error;
  GeneratorState generator;
};

template <class Run>
Outcome outcome_of(const RandomProgram& program, Run&& run) {
  manual_seed(5);
  Outcome result;
  std::vector<Tensor> inputs = program.inputs();
  try {
    result.tensors = run(inputs);
    result.generator = default_generator().state();
  } catch (const Error& e) {
    result.error = e.what();
  }
  return result;
}

}  // namespace

TEST_CASE("random programs give the same bits compiled as in eager mode, on each backend") {
  const uint64_t first = from_environment("GRAPNEL_FUZZ_SEED", 1),
                 count = from_environment("GRAPNEL_FUZZ_PROGRAMS", 300);
  compiler::pass_options().background_kernels =
      from_environment("GRAPNEL_FUZZ_INTERPRET", 0) != 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    const RandomProgram program(seed);
    const Outcome want =
        outcome_of(program, [&](std::vector<Tensor> in) { return program.run(in); });
    for (const Backend backend : kBackends) {
      CAPTURE(name(backend));
      CompileOptions options;
      options.backend = backend;
      auto f = compile([&](std::vector<Tensor> in) { return program.run(std::move(in)); }, options);
      const Outcome got = outcome_of(program, [&](std::vector<Tensor> in) { return f(in); });
      // Errors of shape are raised while recording, errors of value when the graph runs.
      CHECK(got.error.empty() == want.error.empty());
      CHECK(f.stats().fallbacks == 0);
      if (!want.error.empty()) continue;
      CHECK(got.generator == want.generator);
      REQUIRE(got.tensors.size() == want.tensors.size());
      for (size_t i = 0; i < want.tensors.size(); ++i) {
        CAPTURE(i);
        CHECK(same_bits(got.tensors[i], want.tensors[i]));
      }
    }
    if (seed % 64 == 0) reset_compile_cache();
  }
}
