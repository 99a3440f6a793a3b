/// Programs whose graphs tools/replay compares: the networks of bench/, random programs, random
/// programs with hooks. Prints everything that compiling makes of them, `== NAME` before each.
#define DOCTEST_CONFIG_IMPLEMENT  // checks inside the programs have nowhere to report to
#include <doctest/doctest.h>

#include <iostream>

#include "bench/networks.h"
#include "grapnel/compile/dump.h"
#include "grapnel/compile/passes.h"
#include "tests/compile/hook_program.h"
#include "tests/compile/random_program.h"

using namespace grapnel;

namespace {

void begin(const std::string& name) {
  reset_compile_cache();
  manual_seed(5);
  std::cout << "== " << name << '\n';
}

/// What fails while it is recorded has graphs up to there.
template <class Fn>
void attempt(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    std::cout << "= error\n";
  }
}

template <class Optimizer>
void network(const std::string& model, Optimizer&& make_optimizer) {
  networks::Workload w(model);
  auto optimizer = make_optimizer(w.net->parameters());
  for (const Tensor& p : w.net->parameters())
    p.register_hook([](const Tensor& g) { return g.clamp(-1, 1); });
  auto step = compile([&] {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(w.net->forward(w.x), w.y);
    loss.backward();
    optimizer.step();
    return loss.detach();
  });
  step();
  step();
}

void networks_of_bench() {
  for (const char* model : {"mlp", "cnn", "gpt"}) {
    begin(str("network ", model, ", sgd"));
    network(model, [](auto parameters) { return optim::SGD(parameters, optim::SGDOptions(0.1).momentum(0.9)); });
    begin(str("network ", model, ", adamw"));
    network(model, [](auto parameters) { return optim::AdamW(parameters, optim::AdamWOptions(1e-3)); });
  }
}

void random_programs(uint64_t count) {
  for (uint64_t seed = 1; seed <= count; ++seed) {
    begin(str("random ", seed));
    const RandomProgram program(seed);
    auto f = compile([&](std::vector<Tensor> in) { return program.run(std::move(in)); });
    attempt([&] { f(program.inputs()); });
  }
}

void hook_programs(uint64_t count) {
  for (uint64_t seed = 1; seed <= count; ++seed) {
    begin(str("hooks ", seed));
    attempt([&] {
      HookProgramMode mode;
      mode.name = "whole step";
      mode.capture = mode.compiled_backward = mode.whole_step = true;
      HookProgram(seed, mode).run();
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t count = argc > 1 ? std::stoull(argv[1]) : 200;
  compiler::set_dump_stream(&std::cout);
  compiler::pass_options().stream_bytes = int64_t{1} << 25;  // as if every machine had the same caches
  networks_of_bench();
  random_programs(count);
  hook_programs(count / 2);
}
