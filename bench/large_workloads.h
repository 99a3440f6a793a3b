/// Workloads in which arithmetic or memory decides: products, convolutions, long tensors, a
/// training step.
#pragma once

#include <cstdio>
#include <string>
#include <thread>

#include "harness.h"

namespace bench {

/// One call of op() per step without recording; the result is kept so that it can be compared.
template <class Op>
Workload plain(std::string name, Unit unit, double amount,
               std::function<std::vector<Tensor>()> inputs, Op op) {
  return {std::move(name), unit, amount, [inputs, op] {
            const std::vector<Tensor> in = inputs();
            auto last = std::make_shared<Tensor>();
            return Body{[=] {
                          lib::NoGradGuard no_grad;
                          *last = Tensor();
                          *last = op(in);
                        },
                        [=] { return std::vector<Tensor>{*last}; }};
          }};
}

inline Workload product(std::string name, int64_t m, int64_t k, int64_t n) {
  return plain(
      std::move(name), Unit::flop, 2.0 * static_cast<double>(m * k * n),
      [=] { return std::vector<Tensor>{values({m, k}), values({k, n})}; },
      [](const std::vector<Tensor>& in) { return in[0].matmul(in[1]); });
}

/// n images of c channels and s x s pixels, k channels out, r x r taps.
struct Conv {
  int64_t n, c, s, k, r;

  std::string name(const char* pass) const {
    char text[80];
    std::snprintf(text, sizeof text, "conv2d %dx%dx%dx%d -> %d, %dx%d, %s", static_cast<int>(n),
                  static_cast<int>(c), static_cast<int>(s), static_cast<int>(s),
                  static_cast<int>(k), static_cast<int>(r), static_cast<int>(r), pass);
    return text;
  }
  double flop() const { return 2.0 * static_cast<double>(n * c * k * s * s * r * r); }
  Tensor operator()(const Tensor& x, const Tensor& w, const Tensor& b) const {
    return lib::conv2d(x, w, b, {1, 1}, {r / 2, r / 2});
  }
};

inline Workload conv_forward(const Conv& f) {
  return plain(
      f.name("forward"), Unit::flop, f.flop(),
      [f] {
        return std::vector<Tensor>{values({f.n, f.c, f.s, f.s}), values({f.k, f.c, f.r, f.r}, 0.1),
                                   values({f.k})};
      },
      [f](const std::vector<Tensor>& in) { return f(in[0], in[1], in[2]); });
}
inline Workload conv_backward(const Conv& f) {
  return {f.name("backward"), Unit::flop, 2 * f.flop(), [f] {
            const Tensor x = parameter({f.n, f.c, f.s, f.s}),
                         w = parameter({f.k, f.c, f.r, f.r}, 0.1), b = parameter({f.k});
            const Tensor y = f(x, w, b), g = values({f.n, f.k, f.s, f.s});
            return Body{[=] {
                          for (const Tensor& t : {x, w, b}) t.mutable_grad() = Tensor();
                          y.backward(g, true);
                        },
                        [=] { return std::vector<Tensor>{x.grad(), w.grad(), b.grad()}; }};
          }};
}

/// Runs part(0) to part(threads - 1) at once. What the two references below use, since they involve
/// no library.
template <class Part>
void at_once(int threads, const Part& part) {
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(part, t);
  part(0);
  for (std::thread& t : others) t.join();
}

/// Multiplications and additions in registers: tells whether two threads have two cores to run on.
inline Workload registers(std::string name, int threads) {
  constexpr int kRounds = 1'000'000, kPacks = 12;
  return {std::move(name), Unit::flop, 16.0 * kRounds * kPacks * threads, [=] {
            const Tensor sums = values({threads * 16});
            float* out = sums.data_ptr<float>();
            auto part = [=](int t) {
              using Pack [[gnu::vector_size(32)]] = float;
              Pack packs[kPacks] = {};
              for (int i = 0; i < kRounds; ++i)
#pragma GCC unroll 12
                for (Pack& p : packs) p = p * 0.5f + 1.0f;
              for (const Pack& p : packs) out[t * 16] = p[0];
            };
            return Body{[=] { at_once(threads, part); }, [=] { return std::vector<Tensor>{sums}; }};
          }};
}

/// a + 2 * b into memory that exists: the speed of memory, as a reference for the rows below it. No
/// library involved.
inline Workload triad(std::string name, int64_t count, int threads) {
  return {std::move(name), Unit::byte, 12.0 * static_cast<double>(count), [=] {
            const Tensor a = values({count}), b = values({count}), c = values({count});
            const float *pa = a.data_ptr<float>(), *pb = b.data_ptr<float>();
            float* pc = c.data_ptr<float>();
            auto part = [=](int t) {
              const int64_t begin = count * t / threads, end = count * (t + 1) / threads;
              using Pack [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;
              auto pack = [](auto* p, int64_t i) -> auto& {
                return *reinterpret_cast<Pack*>(const_cast<float*>(p + i));
              };
              for (int64_t i = begin; i < end; i += 8) pack(pc, i) = pack(pa, i) + 2 * pack(pb, i);
            };
            return Body{
                [=] { at_once(threads, part); },
                [=] { return std::vector<Tensor>{a, b, c}; }};  // Which also keeps them alive.
          }};
}

inline void add_long_tensors(std::vector<Workload>& out, const std::string& size, int64_t count) {
  const double n = static_cast<double>(count);
  auto one = [=] { return std::vector<Tensor>{values({count})}; };
  auto two = [=] { return std::vector<Tensor>{values({count}), values({count}, 2)}; };
  auto rows = [=] { return std::vector<Tensor>{values({count / 1024, 1024}, 4)}; };
  out.push_back(triad("triad " + size + ", 1 thread", count, 1));
  out.push_back(triad("triad " + size + ", 2 threads", count, 2));
  out.push_back(plain("add " + size, Unit::byte, 12 * n, two,
                      [](const std::vector<Tensor>& in) { return in[0] + in[1]; }));
  out.push_back(plain("add in place " + size, Unit::byte, 12 * n, two,
                      [](const std::vector<Tensor>& in) { return in[0].add_(in[1]); }));
  out.push_back(plain("exp " + size, Unit::byte, 8 * n, one,
                      [](const std::vector<Tensor>& in) { return in[0].exp(); }));
  out.push_back(plain("gelu " + size, Unit::byte, 8 * n, one,
                      [](const std::vector<Tensor>& in) { return lib::gelu(in[0]); }));
  out.push_back(plain("sum " + size, Unit::byte, 4 * n, one,
                      [](const std::vector<Tensor>& in) { return in[0].sum(); }));
  out.push_back(plain("softmax " + size + " in rows of 1024", Unit::byte, 8 * n, rows,
                      [](const std::vector<Tensor>& in) { return in[0].softmax(1); }));
}

/// A long chain of pointwise ops, forward and backward.
template <class Wrap>
Workload pointwise_chain(std::string name, Wrap wrap) {
  return {std::move(name), Unit::whole, 1, [wrap] {
            const Tensor x = parameter({1'000'000});
            auto step = wrap([x] {
              x.mutable_grad() = Tensor();
              Tensor y = x;
              for (int i = 0; i < 12; ++i) y = (y * 1.01 + 0.02).tanh() * 0.99;
              y.sum().backward();
            });
            return Body{[step]() mutable { step(); },
                        [x] { return std::vector<Tensor>{x.grad()}; }};
          }};
}

/// One step of training: forward, cross entropy, backward, SGD.
inline Workload mlp_step() {
  return {"MLP 784-512-512-10, batch 64, training step", Unit::whole, 1, [] {
            const std::vector<Tensor> p = {parameter({512, 784}, 0.1), parameter({512}, 0.1),
                                           parameter({512, 512}, 0.1), parameter({512}, 0.1),
                                           parameter({10, 512}, 0.1),  parameter({10}, 0.1)};
            const Tensor x = values({64, 784});
            Tensor target = lib::empty({64}, lib::kInt64);
            for (int64_t i = 0; i < 64; ++i) target.data_ptr<int64_t>()[i] = i * 7 % 10;
            return Body{[=] {
                          for (const Tensor& t : p) t.mutable_grad() = Tensor();
                          Tensor h = lib::relu(lib::linear(x, p[0], p[1]));
                          h = lib::relu(lib::linear(h, p[2], p[3]));
                          bench::cross_entropy(lib::linear(h, p[4], p[5]), target).backward();
                          lib::NoGradGuard no_grad;
                          for (const Tensor& t : p) t.sub_(t.grad(), 0.01);
                        },
                        [=] { return p; }};
          }};
}

inline std::vector<Workload> large_workloads() {
  std::vector<Workload> out = {registers("registers, 1 thread", 1),
                               registers("registers, 2 threads", 2)};
  for (int64_t n : {64, 128, 256, 512, 1024, 2048})
    out.push_back(product("matmul " + std::to_string(n) + " cubed", n, n, n));
  out.push_back(product("matmul 64x784x512", 64, 784, 512));
  for (const Conv& f : {Conv{64, 16, 28, 32, 3}, Conv{8, 64, 56, 64, 3}, Conv{8, 256, 14, 256, 3},
                        Conv{8, 512, 7, 2048, 1}}) {
    out.push_back(conv_forward(f));
    out.push_back(conv_backward(f));
  }
  add_long_tensors(out, "1 M", 1 << 20);
  add_long_tensors(out, "16 M", 16 << 20);
  out.push_back(pointwise_chain("48 ops on 1 M, forward and backward", [](auto fn) { return fn; }));
  out.push_back(pointwise_chain("48 ops on 1 M, forward and backward, Grapnel compiled",
                                [](auto fn) { return compiled(std::move(fn)); }));
  out.push_back(mlp_step());
  return out;
}

}  // namespace bench
