/// Workloads in which arithmetic costs nothing: single ops, chains of nodes, hooks.
#pragma once

#include "harness.h"

namespace bench {

constexpr int kOps = 100;     // per step of a single-op workload
constexpr int kNodes = 1000;  // per chain
constexpr int64_t kSmall = 8;

/// Calls op() kOps times per step, with or without recording, and keeps the last result.
template <class Op>
Workload single_op(std::string name, bool recording, Op op) {
  return {std::move(name), Unit::each, kOps, [recording, op] {
            const Tensor x = values({kSmall}, 1, 1), y = values({kSmall}, 0.5, 2);
            if (recording) x.requires_grad_();
            auto last = std::make_shared<Tensor>();
            return Body{[=] {
                          lib::AutoGradMode mode(recording);
                          for (int i = 0; i < kOps; ++i) *last = op(x, y);
                        },
                        [=] { return std::vector<Tensor>{*last}; }};
          }};
}

/// Forward and backward through kNodes nodes made by op(x, y, i), per node.
template <class Op>
Workload chain(std::string name, Op op) {
  return {std::move(name), Unit::each, kNodes, [op] {
            const Tensor leaf = parameter({kSmall}, 1, 1), y = values({kSmall}, 0.01, 1);
            return Body{[=] {
                          leaf.mutable_grad() = Tensor();
                          Tensor x = leaf;
                          for (int i = 0; i < kNodes; ++i) x = op(x, y, i);
                          x.sum().backward();
                        },
                        [=] { return std::vector<Tensor>{leaf.grad()}; }};
          }};
}

/// Backward only, again and again through one chain of adds; attach(x) may put a hook on every
/// node.
template <class Attach>
Workload walk(std::string name, Attach attach) {
  return {std::move(name), Unit::each, kNodes, [attach] {
            const Tensor leaf = parameter({kSmall}, 1, 1), y = values({kSmall}, 0.01, 1);
            Tensor x = leaf;
            for (int i = 0; i < kNodes; ++i) {
              x = x + y;
              attach(x);
            }
            const Tensor loss = x.sum();
            return Body{[=] {
                          leaf.mutable_grad() = Tensor();
                          loss.backward({}, true);
                        },
                        [=] { return std::vector<Tensor>{leaf.grad()}; }};
          }};
}

/// A small op whose result may get a hook: what registering, and dropping, a hook costs.
template <class Attach>
Workload registration(std::string name, Attach attach) {
  return {std::move(name), Unit::each, kOps, [attach] {
            const Tensor x = parameter({kSmall}), y = values({kSmall});
            auto last = std::make_shared<Tensor>();
            return Body{[=] {
                          for (int i = 0; i < kOps; ++i) {
                            *last = x + y;
                            attach(*last);
                          }
                        },
                        [=] { return std::vector<Tensor>{*last}; }};
          }};
}

inline std::vector<Workload> small_workloads() {
  auto add = [](const Tensor& x, const Tensor& y) { return x + y; };
  auto twice = [](const Tensor& x, const Tensor&) { return x * 2; };
  auto nothing = [](const Tensor&) {};
  auto identity_hook = [](const Tensor& x) { x.register_hook([](const Tensor& g) { return g; }); };
  auto void_hook = [](const Tensor& x) { x.register_hook([](const Tensor&) {}); };
  return {
      single_op("add", false, add),
      single_op("add, recorded", true, add),
      single_op("t * 2", false, twice),
      single_op("t * 2, recorded", true, twice),
      single_op("add in place", false, [](const Tensor& x, const Tensor& y) { return x.add_(y); }),
      chain("chain of add", [](const Tensor& x, const Tensor& y, int) { return x + y; }),
      chain("chain of mul", [](const Tensor& x, const Tensor& y, int) { return x * y; }),
      chain("chain of sin", [](const Tensor& x, const Tensor&, int) { return x.sin(); }),
      chain("chain of add, mul, sin, t * 2",
            [](const Tensor& x, const Tensor& y, int i) {
              switch (i % 4) {
                case 0: return x + y;
                case 1: return x * y;
                case 2: return x.sin();
                default: return x * 2;
              }
            }),
      walk("backward of a chain", nothing),
      walk("backward, identity hook on every node", identity_hook),
      walk("backward, void hook on every node", void_hook),
      walk("backward, multiplying hook on every node",
           [](const Tensor& x) { x.register_hook([](const Tensor& g) { return g * 0.5; }); }),
      registration("add, no hook", nothing),
      registration("add, hook registered", void_hook),
  };
}

}  // namespace bench
