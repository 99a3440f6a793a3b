/// The instructions of the machine that concern hooks and passes.
///
/// What a hook does is fixed when it is registered, by two numbers; when it fires it may act on
/// whatever is in the pool by then: remove itself or others, register more, throw, start passes of
/// its own, write where it must not, keep what it saw.
#pragma once

#include "tests/fuzz/machine.h"

namespace grapnel::fuzz {

inline void register_tensor_hook(Machine& m, const Tensor& t, uint8_t deed, uint8_t detail);

/// Runs one pass; what it is asked to do follows from `how`.
inline void run_pass(Machine& m, const Tensor& root, uint8_t how, uint8_t detail) {
  const bool retain = how & 1, create = (how & 6) == 6 && ++m.graphs_of_passes <= Machine::kGraphs;
  const Tensor seed = how & 8 ? ones_like(root) : Tensor();
  if (how & 16) {
    const Tensor& a = m.pick(detail);
    const Tensor& b = m.pick(detail / 3);
    if (how & 32) {
      for (const Tensor& g :
           autograd::grad({root}, {a, b}, {seed}, retain, create, (how & 64) != 0)) {
        m.note(g);
        m.keep(g);
      }
    } else {
      m.remember(a);
      m.remember(b);
      root.backward(seed, retain, create, std::vector<Tensor>{a, b});
    }
  } else if (how & 32) {
    autograd::backward({root, m.pick(detail)}, {seed, Tensor()}, retain, create);
  } else {
    root.backward(seed, retain, create);
  }
}

/// What the hook with this number does when it fires. Returns what shall replace the gradient, if
/// anything.
inline Tensor act(Machine& m, int number, uint8_t deed, uint8_t detail, const Tensor& grad) {
  m.note(static_cast<uint64_t>(number) << 8 | deed % 16);
  m.note(grad);
  if (++m.firings > Machine::kFirings) return {};
  switch (deed % 16) {
    case 0: return grad;
    case 1: return grad.defined() ? grad * 2 : grad;
    case 2: m.kept.push_back(grad); return {};
    case 3: m.handles[static_cast<size_t>(number)].remove(); return {};
    case 4: m.handles[detail % m.handles.size()].remove(); return grad.defined() ? grad + 1 : grad;
    case 5:
      if (m.handles.size() < 100)
        register_tensor_hook(m, m.pick(detail), static_cast<uint8_t>(detail / 5), detail);
      return {};
    case 6: throw HookThrew{number};
    case 7:
    case 8: {
      if (m.depth >= 3) return {};
      ++m.depth;
      struct Leave {
        int& depth;
        ~Leave() { --depth; }
      } leave{m.depth};
      if (deed % 16 == 7) {
        run_pass(m, m.pick(detail), static_cast<uint8_t>(detail | 1), detail);
      } else {
        try {
          run_pass(m, m.pick(detail), detail, static_cast<uint8_t>(detail / 7));
        } catch (const Error&) {
          m.note(0xe0);
        }
      }
      return {};
    }
    case 9: return zeros({7}, kFloat64);                      // of the wrong shape
    case 10: return grad.defined() ? grad.to(kInt64) : grad;  // of the wrong type
    case 11:
      if (grad.defined()) grad.add_(1);  // not allowed: hooks return what they want to change
      return {};
    case 12: m.pick(detail).add_(1); return {};  // may spoil what the pass still needs
    case 13: m.keep(grad.defined() ? grad * m.pick(detail) : grad); return {};
    case 14: m.pool.resize(1); return {};  // lets go of the roots of the very pass that runs
    default:
      return grad.defined() ? grad.view({-1}).expand({2, grad.numel()})[0].view(grad.shape())
                            : grad;
  }
}

inline void register_tensor_hook(Machine& m, const Tensor& t, uint8_t deed, uint8_t detail) {
  Machine* const machine = &m;
  const int number = static_cast<int>(m.handles.size());
  m.handles.push_back({});  // A place first: the hook's number is its index.
  m.handles[static_cast<size_t>(number)] =
      t.register_hook([machine, number, deed, detail](const Tensor& g) {
        return act(*machine, number, deed, detail, g);
      });
}

inline void register_any_hook(Machine& m) {
  Machine* const machine = &m;
  const size_t kind = m.in.below(8);
  const Tensor t = m.pick();
  const uint8_t deed = m.in.byte(), detail = m.in.byte();
  const int number = static_cast<int>(m.handles.size());
  if (number > 100) return;
  auto on_list = [machine, number, deed,
                  detail](const variable_list& grads) -> std::optional<variable_list> {
    if (grads.empty()) return std::nullopt;
    const Tensor first = act(*machine, number, deed, detail, grads[0]);
    if (!first.defined()) return std::nullopt;
    variable_list changed = grads;
    changed[0] = first;
    if (deed == 200) changed.push_back(first);  // one too many
    return changed;
  };
  HookHandle handle;
  switch (kind) {
    case 0:
    case 1: return register_tensor_hook(m, t, deed, detail);
    case 2:
      if (const auto node = t.grad_fn())
        m.handles.push_back({}), handle = node->register_prehook(on_list);
      break;
    case 3:
      if (const auto node = t.grad_fn())
        m.handles.push_back({}),
            handle = node->register_hook(
                [on_list](const variable_list& in, const variable_list&) { return on_list(in); });
      break;
    case 4:
      m.handles.push_back({});
      handle =
          t.register_post_accumulate_grad_hook([machine, number, deed, detail](const Tensor& leaf) {
            (void)act(*machine, number, deed, detail, leaf.grad());
            if (detail % 5 == 0) leaf.reset_grad();
          });
      break;
    case 5:
      m.remember(t);
      t.retain_grad();
      return;
    default: {
      const Tensor other = m.pick();
      m.handles.push_back({});
      if (kind == 6)
        handle = register_multi_grad_hook(
            {t, other}, [on_list](const variable_list& grads) { (void)on_list(grads); });
      else
        handle = register_multi_grad_hook(
            {t, other}, [on_list](const Tensor& grad) { (void)on_list({grad}); }, MultiGrad::any);
    }
  }
  if (static_cast<size_t>(number) < m.handles.size())
    m.handles[static_cast<size_t>(number)] = handle;
}

}  // namespace grapnel::fuzz
