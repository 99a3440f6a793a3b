/// GRAPNEL_LOG. It is read once, so the test runs its own program again with the variable set.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/compile/backends.h"

using namespace grapnel;

namespace {

constexpr char kLogged[] =
    "GRAPNEL_LOG names hooks where their ops are and prints every graph once";

/// Two passes with four kinds of hooks: one graph, used twice.
void passes_to_be_logged() {
  Tensor w = tensor({1.0f, 2.0f}, requires_grad());
  w.register_hook([](const Tensor& g) { return g.clamp(-1, 1); }, HookOptions{"clip"});
  w.register_post_accumulate_grad_hook([](const Tensor& leaf) { leaf.grad().mul_(0.5); },
                                       HookOptions{"halve"});
  CompiledBackward scope;
  for (int i = 0; i < 2; ++i) {
    w.reset_grad();
    const Tensor y = w * w;
    y.grad_fn()->register_prehook([](const variable_list& g) { return variable_list{g[0].exp()}; },
                                  HookOptions{"before"});
    y.grad_fn()->register_hook(
        [](const variable_list& in, const variable_list&) {
          return variable_list{in[0].sin(), in[1]};
        },
        HookOptions{"after"});
    y.sum().backward();
  }
}

/// What the program writes with GRAPNEL_LOG set to `topics`.
std::string output_with(const std::string& topics) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      str("GRAPNEL_TEST_LOGGED=1 GRAPNEL_LOG=", topics, " '", self, "' -tc='", kLogged, "' 2>&1");
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  std::array<char, 4096> part;
  while (const size_t n = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), n);
  CHECK(pclose(pipe) == 0);
  return text;
}

size_t count(const std::string& text, std::string_view part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

/// The line of the graph that has `op` in it.
std::string line_with(const std::string& text, std::string_view op) {
  const size_t at = text.find(op), begin = text.rfind('\n', at) + 1;
  return at == std::string::npos ? "" : text.substr(begin, text.find('\n', at) - begin);
}

}  // namespace

TEST_CASE(kLogged) {
  if (std::getenv("GRAPNEL_TEST_LOGGED")) return passes_to_be_logged();

  const std::string backward = output_with("backward");
  CAPTURE(backward);
  CHECK(count(backward, "grapnel backward: graph(") == 1);
  CHECK(count(backward, "grapnel compile:") == 0);
  for (const auto& [op, hook] :
       {std::pair<std::string, std::string>("= clamp(", "# in tensor hook 'clip' registered at "),
        {"= exp(", "# in node pre-hook 'before' registered at "},
        {"= sin(", "# in node post-hook 'after' registered at "},
        {"mul_(", "# in post-accumulate hook 'halve' registered at "}}) {
    const std::string line = line_with(backward, op);
    CAPTURE(op);
    CHECK_MESSAGE(count(line, hook) == 1, line);
    CHECK_MESSAGE(count(line, "log_test.cpp:") == 1, line);
  }

  const std::string both = output_with("compile,backward");
  CHECK(count(both, "grapnel backward: graph(") == 1);
  CHECK(count(both, "grapnel compile: graph of ") == 1);
  CHECK(count(output_with("compile"), "grapnel backward:") == 0);
}
