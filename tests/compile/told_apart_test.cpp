/// Compiled and replayed functions called again and again, each time with something else changed
/// that Note [What is told apart] lists, give the bits of eager mode. GRAPNEL_FUZZ_PROGRAMS runs
/// more programs, GRAPNEL_FUZZ_SEED starts elsewhere.
#include "grapnel/compile/told_apart.h"

#include <cstdlib>
#include <random>
#include <thread>

#include "tests/compile/backends.h"
#include "tests/ops/sweep.h"

using namespace grapnel;
using compiler::Fact;
using compiler::FactLine;
using compiler::kFacts;
using compiler::Told;

namespace {

using Rng = std::mt19937_64;
constexpr int64_t kSide = 6;

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// What a body may depend on without being an argument.
struct Captured {
  Tensor table = rand({kSide, kSide}) - 0.5, other = rand({kSide, kSide}) - 0.5;
  Tensor weight = (rand({kSide, kSide}) - 0.5).set_requires_grad(true);
  Tensor written = rand({kSide, kSide});
  bool writes = true;  ///< whether the body writes to it; what is replayed must not
  int more_ops = 0;
  int64_t dim = 0, start = 0;
};

/// A function of square matrices that goes with a seed. It writes to one captured tensor, and its
/// results have a gradient with respect to another one.
struct Program {
  uint64_t seed;

  std::vector<Tensor> operator()(const std::vector<Tensor>& arguments, double number,
                                 const Captured& captured) const {
    Rng rng(seed);
    const int64_t n = arguments[0].size(0);
    std::vector<Tensor> pool = arguments;
    const auto corner = [n](const Tensor& t) { return t.narrow(0, 0, n).narrow(1, 0, n); };
    for (const Tensor* t : {&captured.table, &captured.other, &captured.weight, &captured.written})
      pool.push_back(corner(*t));
    const auto pick = [&] { return pool[rng() % pool.size()]; };
    const auto steps = 4 + rng() % 8 + static_cast<uint64_t>(captured.more_ops);
    for (uint64_t i = 0; i < steps; ++i) {
      const Tensor a = pick(), b = pick();
      switch (rng() % (captured.writes ? 14 : 12)) {
        case 0: pool.push_back(a + b); break;
        case 1: pool.push_back(a * number - b); break;
        case 2: pool.push_back(a.tanh() * b); break;
        case 3: pool.push_back(a.t() + corner(captured.table)); break;
        case 4: pool.push_back(b + a.sum(captured.dim, true)); break;
        case 5: {
          const Tensor both[] = {a.to(kFloat32), b.to(kFloat32)};
          pool.push_back(cat(both, 0).narrow(0, captured.start % (n + 1), n));
          break;
        }
        case 6: pool.push_back(matmul(a.to(kFloat32), b.to(kFloat32))); break;
        case 7: pool.push_back(where(a > b, a, captured.other[0][0])); break;
        case 8: pool.push_back((a.to(kFloat32) + 1).mul_(2.0).sub_(b.to(kFloat32))); break;
        case 9: pool.push_back(a / 3); break;
        case 10: pool.push_back((a > 16777216.5).to(kFloat32) + b); break;
        case 12:
          corner(captured.written).mul_(0.5).add_(a.detach().to(kFloat32));
          pool.push_back(corner(captured.written).clone() + b);
          break;
        case 13: {
          const NoGradGuard no_grad;
          captured.written[i % kSide].copy_(captured.weight[0] * number);
          break;
        }
        default: pool.push_back(a.unsqueeze(0).expand({2, n, n}).sum(0)); break;
      }
      if (pool.back().dtype() == kBool || !pool.back().is_floating_point()) pool.pop_back();
    }
    return {pool.back(), pick(), pool[0], pool[2], pick()};
  }
};

/// Everything around one call.
struct Circumstances {
  std::vector<Tensor> arguments;
  double number = 0.5;
  Captured captured;
  DType autocast = kFloat32;
  enum class Mode { grad, no_grad, inference } mode = Mode::grad;
  size_t function = 0;  ///< which of the compiled ones is called
  bool elsewhere = false, keep = false;

  explicit Circumstances(Rng& rng) {
    for (int i = 0; i < 3; ++i) arguments.push_back(fresh(3, kFloat32, rng));
  }
  static Tensor fresh(int64_t n, DType type, Rng& rng) {
    Generator draws(rng());
    return (randn({n, n}, draws) * 3.0).to(type);
  }

  void change(Fact fact, Rng& rng) {
    Tensor& x = arguments[rng() % 3];
    const int64_t n = x.size(0);
    compiler::PassOptions& passes = compiler::pass_options();
    switch (fact) {
      case Fact::ops: captured.more_ops = static_cast<int>(rng() % 3); return;
      case Fact::settings: captured.dim = static_cast<int64_t>(rng() % 2); return;
      case Fact::places: captured.start = static_cast<int64_t>(rng() % 4); return;
      case Fact::types: {
        const DType types[] = {kFloat32, kFloat64, kBFloat16, kInt64};
        x = x.to(types[rng() % 4]);
        return;
      }
      case Fact::sizes: {
        const auto side = static_cast<int64_t>(1 + rng() % kSide);
        for (Tensor& t : arguments) t = fresh(side, t.dtype(), rng);
        return;
      }
      case Fact::layouts:
        switch (rng() % 4) {
          case 0: x = x.t(); return;
          case 1: x = spread_out(x); return;
          case 2: x = x[0].expand({n, n}); return;
          default: x = x.contiguous(); return;
        }
      case Fact::sharing: x = rng() % 2 ? arguments[0] : arguments[1].t(); return;
      case Fact::sharing_with_captured: {
        const Tensor* const all[] = {&captured.table, &captured.other, &captured.written};
        const Tensor& table = *all[rng() % 3];
        x = table.narrow(0, kSide - n, n).narrow(1, kSide - n, n);
        if (rng() % 3 == 0) x = table.narrow(0, 0, n).narrow(1, 0, n);
        return;
      }
      case Fact::values: x = fresh(n, x.dtype(), rng); return;
      case Fact::captured_values: captured.table.copy_(fresh(kSide, kFloat32, rng)); return;
      case Fact::numbers: number = static_cast<double>(rng() % 5) - 1; return;
      case Fact::live_results: keep = rng() % 2; return;
      case Fact::default_type: set_default_dtype(rng() % 2 ? kFloat64 : kFloat32); return;
      case Fact::autocast: autocast = rng() % 2 ? kBFloat16 : kFloat32; return;
      case Fact::grad_mode: mode = static_cast<Mode>(rng() % 3); return;
      case Fact::options: function = rng() % 6; return;
      case Fact::passes:
        passes.fusion = rng() % 4 != 0;
        passes.common_subexpressions = rng() % 2;
        passes.algebra = rng() % 2;
        passes.sweeps = rng() % 2;
        passes.epilogues = rng() % 2;
        passes.prologues = rng() % 2;
        return;
      case Fact::threads: set_num_threads(static_cast<int>(1 + rng() % 3)); return;
      case Fact::other_calls: elsewhere = rng() % 2; return;
    }
  }

  /// Calls fn in these circumstances.
  template <class Fn>
  std::vector<Tensor> call(Fn&& fn) const {
    std::vector<Tensor> out;
    std::exception_ptr thrown;
    const auto here = [&] {
      const Autocast scope(autocast);
      const DType before = get_default_dtype();
      const AutoGradMode grad(mode == Mode::grad);
      const InferenceGuard inference(mode == Mode::inference);
      try {
        out = fn(arguments);
      } catch (...) {
        thrown = std::current_exception();
      }
      set_default_dtype(before);
    };
    if (elsewhere) std::thread(here).join();
    else here();
    if (thrown) std::rethrow_exception(thrown);
    return out;
  }
};

struct Restore {
  const compiler::PassOptions passes = compiler::pass_options();
  const int threads = get_num_threads();
  ~Restore() {
    compiler::pass_options() = passes;
    set_num_threads(threads);
    set_default_dtype(kFloat32);
  }
};

/// Whether the promise of a replayed function leaves this one free.
bool varies_in_replay(const FactLine& line) {
  return line.replayed == Told::key || line.replayed == Told::anew;
}

/// What one call gives and leaves.
struct Outcome {
  std::vector<Tensor> results;
  std::vector<Tensor> values;  ///< of the results, which may share memory with what is written
  Tensor gradient, written;    ///< of the captured weight; the captured tensor that is written
  bool refused = false;        ///< the gradient, since the body has written to what it needs
};

template <class Call>
Outcome outcome_of(const Circumstances& c, Call&& call) {
  Outcome out;
  out.results = c.call(call);
  out.written = c.captured.written.clone();
  for (const Tensor& t : out.results) out.values.push_back(t.detach().clone());
  Tensor sum;
  for (const Tensor& t : out.results)
    if (t.requires_grad()) sum = sum.defined() ? sum + t.sum().to(kFloat64) : t.sum().to(kFloat64);
  if (!sum.defined()) return out;
  try {
    out.gradient = autograd::grad({sum}, {c.captured.weight}, {}, {}, false, true)[0];
  } catch (const Error&) {
    out.refused = true;
  }
  return out;
}

/// Compares two outcomes that began with the same captured tensors.
template <class Call>
void compare(const Circumstances& c, const Program& program, Call&& call, bool bits = true,
             bool replayed = false) {
  const Tensor before = c.captured.written.clone();
  const Outcome want = outcome_of(
      c, [&](const std::vector<Tensor>& x) { return program(x, c.number, c.captured); });
  const auto begin_again = [&](const Tensor& value) {
    const NoGradGuard no_grad;
    c.captured.written.copy_(value);
  };
  begin_again(before);
  const auto has_grad = [](const Tensor& t) { return t.requires_grad(); };
  if (replayed && std::ranges::any_of(want.results, has_grad)) {
    CHECK_THROWS_AS(outcome_of(c, call), Error);  // gradients do not go through replays
    CHECK(same_bits(c.captured.written, before));
    return begin_again(want.written);
  }
  const Outcome got = outcome_of(c, call);
  if (!bits) return begin_again(want.written);
  REQUIRE(got.results.size() == want.results.size());
  for (size_t i = 0; i < want.results.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(got.values[i], want.values[i]));
    CHECK(has_grad(got.results[i]) == has_grad(want.results[i]));
  }
  CHECK(same_bits(got.written, want.written));
  CHECK(got.refused == want.refused);
  CHECK(same_bits(got.gradient, want.gradient));
}

}  // namespace

TEST_CASE("a compiled function is right whatever has changed since its last call") {
  const Restore restore;
  compiler::pass_options().background_kernels = false;
  const uint64_t first = from_environment("GRAPNEL_FUZZ_SEED", 1),
                 count = from_environment("GRAPNEL_FUZZ_PROGRAMS", 12);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Program program{seed};
    Rng rng(seed);
    Circumstances c(rng);
    std::vector<Tensor> kept;
    const auto body = [&](const std::vector<Tensor>& x) {
      std::vector<Tensor> out = program(x, c.number, c.captured);
      if (c.keep) kept = {out[0] * 2.0};
      return out;
    };
    std::vector<decltype(compile(body))> functions;
    for (const Backend backend : kBackends) functions.push_back(compile(body, {.backend = backend}));
    functions.push_back(compile(body, {.dynamic = false}));
    functions.push_back(compile(body, {.fullgraph = true}));
    // This one may give other bits, and must not leave its kernels to the others.
    functions.push_back(compile(body, {.numerics = Numerics::fast}));
    for (int call = 0; call < 20; ++call) {
      const FactLine& line = kFacts[rng() % std::size(kFacts)];
      c.change(line.fact, rng);
      CAPTURE(seed);
      CAPTURE(call);
      CAPTURE(line.what);
      compare(c, program, [&](const std::vector<Tensor>& x) { return functions[c.function](x); },
              c.function < 5);
      if (c.keep) CHECK(same_bits(kept[0], kept[0].clone()));
    }
    reset_compile_cache();
  }
}

TEST_CASE("a replayed function is right whatever has changed since its last call") {
  const Restore restore;
  compiler::pass_options().background_kernels = false;
  const uint64_t first = from_environment("GRAPNEL_FUZZ_SEED", 1),
                 count = from_environment("GRAPNEL_FUZZ_PROGRAMS", 12);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Program program{seed};
    Rng rng(seed);
    Circumstances c(rng);
    c.captured.writes = false;
    auto f = compile([&](const std::vector<Tensor>& x,
                         double number) { return program(x, number, c.captured); },
                     {.replay = true});
    for (int call = 0; call < 30; ++call) {
      const FactLine& line = kFacts[rng() % std::size(kFacts)];
      if (varies_in_replay(line)) c.change(line.fact, rng);
      CAPTURE(seed);
      CAPTURE(call);
      CAPTURE(line.what);
      set_replay_audit(rng() % 4 == 0);
      compare(c, program, [&](const std::vector<Tensor>& x) { return f(x, c.number); }, true,
              true);
    }
    set_replay_audit(false);
    reset_compile_cache();
  }
}
