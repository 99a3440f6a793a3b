/// Random graphs with random hooks behave the same in every mode: the same hooks, in the same
/// order, with the same bits. GRAPNEL_FUZZ_PROGRAMS=100000 runs more of them, GRAPNEL_FUZZ_SEED
/// starts elsewhere, GRAPNEL_FUZZ_DUMP=1 prints the events of programs that differ.
#include <cstdlib>

#include "tests/compile/hook_program.h"

using namespace grapnel;

namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE(
    "random hooks on random graphs see the same events in eager, captured, compiled-backward and "
    "whole-step "
    "mode") {
  const uint64_t first = from_environment("GRAPNEL_FUZZ_SEED", 1),
                 count = from_environment("GRAPNEL_FUZZ_PROGRAMS", 250);
  const HookProgramMode modes[] = {
      {"captured", true, false, false, {}},
      {"compiled backward", false, true, false, {}},
      {"both", true, true, false, {}},
      {"whole step", false, false, true, {}},
  };
  compiler::pass_options().background_kernels = true;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    const std::vector<HookPass> want = HookProgram(seed, {}).run();
    for (HookProgramMode mode : modes) {
      // Each program runs in all modes, on one backend after the other.
      mode.options.backend = kBackends[seed % std::size(kBackends)];
      const std::string where = str(mode.name, ", ", name(mode.options.backend));
      CAPTURE(where);
      const std::vector<HookPass> got = HookProgram(seed, mode).run();
      const std::string difference = first_difference(want, got);
      CHECK(difference == "");
      if (std::getenv("GRAPNEL_FUZZ_DUMP") && !difference.empty())
        MESSAGE("eager:\n", text_of(want), mode.name, ":\n", text_of(got));
    }
    if (seed % 64 == 0) reset_compile_cache();
    if (seed % 5000 == 0) MESSAGE(seed, " programs");
  }
}

TEST_CASE("the order of events in random programs is the one that was written down") {
  // A scheduler that is wrong in all modes alike would pass the test above. Rules that this number
  // rests on: sections 1 and 6 of the specification, each with vectors of its own in
  // tests/autograd. It changes only with the programs themselves.
  uint64_t digest = 14695981039346656037u;
  auto add = [&](std::string_view text) {
    for (const char c : text) digest = (digest ^ static_cast<uint8_t>(c)) * 1099511628211u;
  };
  for (uint64_t seed = 1; seed <= 200; ++seed)
    for (const HookPass& pass : HookProgram(seed, {}).run()) {
      for (const HookEvent& e : pass.events) add(e.what);
      add(pass.error.empty() ? "ended" : "failed");
    }
  CHECK(digest == 710927639632516543u);
}
