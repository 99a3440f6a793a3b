/// The main function of every test program. With --compiled-backward=fused (or another backend),
/// all backward passes of the main thread are recorded and run as graphs, and the same tests have
/// to pass. With --device=cuda, tensors are made on a device that is none (mock_device/): whatever
/// touches their memory from the CPU dies.
// The precompiled header already holds the part of doctest that derives the second macro from the
// first.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "grapnel/base/place.h"
#include "grapnel/compile/backward.h"
#include "tests/mock_device/mock_device.h"

// CHECK_THROWS_WITH compares what a message says; where it happened has tests of its own.
REGISTER_EXCEPTION_TRANSLATOR(const grapnel::Error& error) {
  return doctest::String(std::string(grapnel::base::message_of(error)).c_str());
}

int main(int argc, char** argv) {
  std::optional<grapnel::CompiledBackward> scope;
  constexpr std::string_view option = "--compiled-backward=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--device=cuda") {
      grapnel::mock::install();
      grapnel::set_default_device(grapnel::kCUDA);
    }
    if (!argument.starts_with(option)) continue;
    for (const auto backend :
         {grapnel::Backend::eager, grapnel::Backend::aot_eager, grapnel::Backend::fused})
      if (argument.substr(option.size()) == name(backend))
        scope.emplace(grapnel::CompileOptions{.backend = backend});
    if (!scope) {
      std::fprintf(stderr, "%s: there is no such backend; use eager, aot_eager or fused\n",
                   argv[i]);
      return 2;
    }
  }
  return doctest::Context(argc, argv).run();
}
