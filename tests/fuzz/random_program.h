/// Runs programs of the machine and checks what must hold for every one of them:
/// only Error or the hook's own exception comes out, the same program gives the same log twice, no
/// tensor memory is left behind, and the library works afterwards as if nothing had happened.
#pragma once

#include <stdexcept>

#include "tests/fuzz/machine_hooks.h"
#include "tests/fuzz/machine_ops.h"

namespace grapnel::fuzz {

/// x * x, whose backward is the user's.
struct Square : autograd::Function<Square> {
  static Tensor forward(autograd::AutogradContext* ctx, Tensor x) {
    ctx->save_for_backward({x});
    return x * x;
  }
  static variable_list backward(autograd::AutogradContext* ctx, variable_list grads) {
    return {grads[0] * 2 * ctx->get_saved_variables()[0]};
  }
};

inline void instruction(Machine& m) {
  if (m.pool.empty()) return m.make_leaf();
  const size_t code = m.in.below(28);
  const Tensor x = m.pick();
  switch (code) {
    case 0: return m.make_leaf();
    case 1: return m.keep(unary(m, x));
    case 2:
    case 3: return m.keep(binary(m, x, m.pick()));
    case 4: return m.keep(with_number(m, x));
    case 5:
    case 6: return m.keep(view(m, x));
    case 7:
    case 8: return m.keep(in_place(m, x));
    case 9:
    case 10: return m.keep(reduction(m, x));
    case 11: return m.keep(product(m, x, m.pick()));
    case 12: return m.keep(join(m, x, m.pick()));
    case 13: return m.keep(indexed(m, x, m.pick()));
    case 14: return m.keep(copy(m, x));
    case 15: return m.keep(Square::apply(x));
    case 16: return m.keep(autograd::checkpoint([](const Tensor& t) { return (t * t).sin(); }, x));
    case 17: {
      autograd::SavedTensorHooks hooks([](const Tensor& t) { return t.clone(); },
                                       [](const Tensor& t) { return t; });
      return m.keep(binary(m, x, m.pick()));
    }
    case 18: {
      NoGradGuard no_grad;
      return m.keep(m.in.flag() ? in_place(m, x) : view(m, x));
    }
    case 19: x.requires_grad_(m.in.flag()); return m.remember(x);
    case 20: return x.zero_grad(m.in.flag());
    case 21:
      m.pool.erase(m.pool.begin() + static_cast<std::ptrdiff_t>(m.in.below(m.pool.size())));
      return;
    case 22:
      if (!m.handles.empty()) m.handles[m.in.below(m.handles.size())].remove();
      return;
    case 23:
    case 24: return register_any_hook(m);
    default: {
      const uint8_t how = m.in.byte(), detail = m.in.byte();
      return run_pass(m, x, how, detail);
    }
  }
}

/// Everything that could be observed.
using Outcome = std::vector<uint64_t>;

inline Outcome run_once(std::span<const uint8_t> program) {
  Machine m(program);
  for (int i = 0; i < 200 && !m.in.empty(); ++i) {
    m.note(static_cast<uint64_t>(i) << 32);
    try {
      instruction(m);
    } catch (const Error&) {
      m.note(0xe);
    } catch (const HookThrew& e) {
      m.note(0xf00 + static_cast<uint64_t>(e.hook));
    }
    if (!GradMode::is_enabled() || engine::current_depth() != 0)
      throw std::logic_error("a pass left its mode behind");
  }
  for (const Tensor& t : m.pool) {
    m.note(t);
    m.note(t.requires_grad() && t.is_leaf() ? t.grad() : Tensor());
  }
  for (const Tensor& t : m.kept) m.note(t);
  return m.log();
}

/// Throws when the library is no longer what it was.
inline void check_library_works() {
  const Tensor x = tensor({2.0, 3.0}, requires_grad());
  int fired = 0;
  x.register_hook([&](const Tensor&) { ++fired; });
  ((x * 3.0 + x * 4.0).sum() * x.sum()).backward();
  if (fired != 1 || x.grad()[0].item<double>() != 70 || x.grad()[1].item<double>() != 70)
    throw std::logic_error("a simple pass goes wrong after this program");
}

/// Everything at once. Throws std::logic_error, or whatever came out of the library that must not.
/// What the library keeps besides tensor memory is left to the leak checker.
inline void check_program(std::span<const uint8_t> program) {
  const size_t before = memory_stats().in_use;
  const Outcome first = run_once(program), second = run_once(program);
  if (first != second) throw std::logic_error("two runs of one program differ");
  if (memory_stats().in_use != before)
    throw std::logic_error("a program left tensor memory behind");
  check_library_works();
}

}  // namespace grapnel::fuzz
