/// What hooks cost in a compiled step: nothing but their results; and that changing them compiles
/// nothing that was there before.
#include "tests/compile/modes.h"

using namespace grapnel;

namespace {

/// A small network of two layers whose parameters are updated where their gradients are.
struct Net {
  Tensor w1 = (randn({64, 128}) * 0.1).requires_grad_(), b1 = zeros({128}, requires_grad());
  Tensor w2 = (randn({128, 32}) * 0.1).requires_grad_(), b2 = zeros({32}, requires_grad());
  std::vector<Tensor> parameters() const { return {w1, b1, w2, b2}; }
  Tensor loss(const Tensor& x) const {
    return (tanh(x.matmul(w1) + b1).matmul(w2) + b2).square().mean();
  }
  void update() const {
    NoGradGuard no_grad;
    for (Tensor p : parameters()) p.sub_(p.grad() * 0.01);
  }
};

struct Cost {
  int64_t kernels, read, written;
};

/// One step after the first, with or without a hook on every parameter.
Cost cost_of_step(bool hooked, std::vector<Tensor>* norms) {
  reset_compile_cache();
  manual_seed(1);
  compiler::pass_options().background_kernels = false;
  Net net;
  if (hooked)
    for (const Tensor& p : net.parameters())
      p.register_hook([norms](const Tensor& g) {
        const Tensor changed = (g * 0.5).clamp(-1.0, 1.0);
        norms->push_back(changed.square().sum());
        return changed;
      });
  for (const Tensor& p : net.parameters()) p.set_grad(zeros_like(p));
  auto step = compile([&](Tensor x) {
    net.loss(x).backward();
    net.update();
  });
  const Tensor x = ones({16, 64});
  step(x);
  const CompileStats first = step.stats();
  if (norms) norms->clear();
  step(x);
  const CompileStats s = step.stats();
  CHECK(s.graphs == 1);
  CHECK(s.fallbacks == 0);
  CHECK(s.kernels > 0);
  return {s.kernels, s.bytes_read - first.bytes_read, s.bytes_written - first.bytes_written};
}

}  // namespace

TEST_CASE(
    "a hook that scales, clamps and sums squares adds no pass over memory beyond its scalars") {
  std::vector<Tensor> norms;
  const Cost without = cost_of_step(false, nullptr), with = cost_of_step(true, &norms);
  MESSAGE("without hooks: ", without.kernels, " kernels, ", without.read, " bytes read, ",
          without.written, " written; with a hook on every parameter: ", with.kernels, " kernels, ",
          with.read, " read, ", with.written, " written");
  CHECK(norms.size() == 4);
  CHECK(with.kernels <= without.kernels);
  CHECK(with.read <= without.read);
  CHECK(with.written <= without.written + 4 * 64);
}

TEST_CASE(
    "ten thousand hooks registered and removed between passes compile one graph for each distinct "
    "program") {
  on_each_backend([](const CompileOptions& options) {
    CompiledBackward scope(options);
    Tensor x = ones({8}, requires_grad());
    int64_t operations = 0;
    auto pass = [&](double want) {
      x.reset_grad();
      (x * 3).sum().backward();
      CHECK(values_of(x.grad())[0] == want);
    };
    pass(3);
    for (int round = 0; round < 40; ++round) {
      // Each closure is another type or captures another number; what it records is one of two
      // programs.
      std::vector<HookHandle> handles;
      for (int i = 0; i < 125; ++i) {
        const double k = round + i;
        handles.push_back(x.register_hook([k](const Tensor& g) { return g * k; }));
        ++operations;
      }
      for (HookHandle& h : handles) h.remove(), ++operations;
      ScopedHook scale =
          x.register_hook([round](const Tensor& g) { return g * static_cast<double>(round); });
      pass(3.0 * round);
      ScopedHook shift = x.register_hook(std::function<Tensor(const Tensor&)>(
          [round](const Tensor& g) { return g + static_cast<double>(round); }));
      pass(3.0 * round + round);
      ++operations, ++operations;
    }
    pass(3);
    CHECK(operations >= 10000);
    CHECK(scope.stats().graphs == 3);  // no hook, one, two
  });
}

TEST_CASE(
    "a whole step with every kind of hook in one graph equals eager mode bit for bit over a "
    "hundred steps") {
  auto train =
      [](const std::function<Tensor(const std::function<Tensor(Tensor)>&, const Tensor&)>& run) {
        manual_seed(5);
        Net net;
        std::vector<Tensor> seen;
        net.w1.register_hook([](const Tensor& g) { return g.clamp(-0.05, 0.05); });
        net.b1.register_hook(
            [n = 0](const Tensor& g) mutable { return n++ % 2 ? g * 0.5 : g + 0.001; });
        net.w2.register_post_accumulate_grad_hook([](Tensor p) { p.mutable_grad().mul_(0.9); });
        net.b2.register_post_accumulate_grad_hook([](Tensor p) {
          NoGradGuard no_grad;
          p.sub_(p.grad() * 0.1);
          p.reset_grad();
        });
        register_multi_grad_hook({net.w1, net.w2}, [&](const variable_list& g) {
          seen.push_back(g[0].norm() + g[1].norm());
        });
        auto body = [&](Tensor x) {
          Tensor h = tanh(x.matmul(net.w1) + net.b1);
          h.retain_grad();
          h.grad_fn()->register_prehook(
              [](const variable_list& g) { return variable_list{g[0] * 1.25}; });
          Tensor out = h.matmul(net.w2) + net.b2;
          out.grad_fn()->register_hook([](const variable_list& in, const variable_list&) {
            variable_list changed = in;
            changed[0] = in[0] * 0.75;
            return changed;
          });
          Tensor loss = out.square().mean();
          loss.backward();
          NoGradGuard no_grad;
          for (Tensor p : {net.w1, net.b1, net.w2}) {
            p.sub_(p.grad() * 0.1);
            p.reset_grad();
          }
          return loss.detach() + h.grad().sum();
        };
        std::vector<Tensor> results;
        for (int i = 0; i < 100; ++i) results.push_back(run(body, rand({4, 64})));
        for (const Tensor& t : seen) results.push_back(t);
        for (const Tensor& p : net.parameters()) results.push_back(p.detach());
        return results;
      };
  const std::vector<Tensor> want = train([](const auto& body, const Tensor& x) { return body(x); });
  on_each_backend([&](const CompileOptions& options) {
    CompileOptions whole = options;
    whole.fullgraph = true;
    CompileCounter counter;
    const std::vector<Tensor> got =
        train([&](const auto& body, const Tensor& x) { return compile(body, whole)(x); });
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      CAPTURE(i);
      CHECK(same_bits(got[i], want[i]));
    }
    CHECK(counter.graphs() == 2);  // the hook on b1 has two forms
  });
}
