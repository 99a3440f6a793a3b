/// What prepares an operand of a product is computed piece by piece: see Note [Prologues] in
/// compile/plan.h.
#include "grapnel/codegen/llvm_module.h"
#include "tests/compile/products.h"

using namespace grapnel;

TEST_CASE("what only a product reads, as its left matrix or its images, is prepared with it") {
  const Tensor x = rand({8, 16}), w = rand({16, 4}), b = rand({4}), images = rand({2, 3, 8, 8}),
               kernel = rand({4, 3, 3, 3});
  auto plan = [](auto fn) { return planned(fn).str(); };
  CHECK(plan([&] { return matmul(gelu(x), w); }) == "[gelu]> matmul");
  CHECK(plan([&] { return relu(matmul(x * 2.0 + 1.0, w)); }) == "[mul add]> [matmul relu]");
  CHECK(plan([&] { return linear(gelu(x), w.t(), b); }) == "[gelu]> [addmm]");
  CHECK(plan([&] { return matmul(x.to(kFloat16), w.to(kFloat16)); }) == "to [to]> matmul");
  CHECK(plan([&] { return relu(conv2d(tanh(images), kernel, b)); }) == "[tanh]> [conv2d relu]");
}

TEST_CASE("what somebody else reads, or a product reads in another way, is computed beforehand") {
  const Tensor x = rand({8, 8}), w = rand({8, 8});
  auto plan = [](auto fn) { return planned(fn).str(); };
  CHECK(plan([&] {
          const Tensor h = relu(x);
          return Tensors{h, matmul(h, w)};
        }) == "relu matmul");
  CHECK(plan([&] { return matmul(x, gelu(w)); }) == "gelu matmul");
  CHECK(plan([&] { return matmul(gelu(x).t(), w); }) == "gelu matmul");
  CHECK(plan([&] {
          const Tensor h = gelu(x);
          return matmul(h, h);
        }) == "gelu matmul");
  CHECK(plan([&] {
          const Tensor h = gelu(x);
          return matmul(h, w) + h;
        }) == "gelu [matmul add]");
  // Rows of x are still to be read when the first ones of the result are there.
  CHECK(plan([&] {
          Tensor t = x.cumsum(0);
          const Tensor h = gelu(t);
          t.copy_(matmul(h, w) * 2.0);
          return t;
        }).find('>') == std::string::npos);
  const WithPasses none([](compiler::PassOptions& o) { o.prologues = false; });
  CHECK(plan([&] { return matmul(gelu(x), w); }) == "gelu matmul");
}

TEST_CASE("prologues have eager's bits at all sizes, in every type") {
  manual_seed(21);
  auto layer = [](const Tensors& in) {
    return Tensors{relu(linear(gelu(in[0]) * 0.5, in[1], in[2]))};
  };
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 1, 1},
                                {1, 70, 33},
                                {33, 70, 1},
                                {700, 1, 5},
                                {1100, 70, 130},
                                {2100, 33, 600},
                                {5, 0, 7},
                                {0, 4, 3}}) {
    CAPTURE(m);
    CHECK(same_everywhere(layer, {randn({m, k}), randn({n, k}), randn({n})}));
    CHECK(same_everywhere([](const Tensors& in) { return Tensors{matmul(in[0].tanh(), in[1])}; },
                          {randn({m, k}), randn({k, n})}));
  }
  for (const DType type : {kFloat64, kBFloat16, kFloat16}) {
    CAPTURE(type);
    CHECK(same_everywhere(
        layer, {randn({1300, 40}).to(type), randn({50, 40}).to(type), randn({50}).to(type)}));
  }
  CHECK(same_everywhere([](const Tensors& in) { return Tensors{matmul(in[0] * 3, in[1])}; },
                        {randint(0, 9, {1200, 30}), randint(0, 9, {30, 40})}));
  // What they read may lie in any way, and be broadcast.
  CHECK(same_everywhere([](const Tensors& in) { return Tensors{matmul(in[0] * in[1], in[2])}; },
                        {randn({60, 1200}).t(), randn({60}), randn({60, 20})}));
}

TEST_CASE("a product that replaces what was prepared from it has eager's bits") {
  manual_seed(24);
  CHECK(same_everywhere(
      [](const Tensors& in) {
        Tensor t = in[0].cumsum(0);
        const Tensor h = gelu(t);
        t.copy_(matmul(h, in[1]) * 2.0);
        return Tensors{t};
      },
      {randn({1500, 40}), randn({40, 40})}));
}

TEST_CASE("batches come matrix by matrix, unless one matrix serves many") {
  manual_seed(22);
  auto scores = [](const Tensors& in) { return Tensors{matmul(in[0] * 0.125, in[1]) + in[2]}; };
  CHECK(same_everywhere(scores, {randn({6, 40, 16}), randn({6, 16, 40}), randn({40, 40})}));
  CHECK(same_everywhere(scores, {randn({2, 3, 40, 16}), randn({2, 3, 16, 50}), randn({50})}));
  CHECK(same_everywhere(scores, {randn({3, 40, 16}), randn({2, 1, 16, 50}), randn({50})}));
  CHECK(same_everywhere(scores, {randn({40, 16}), randn({5, 16, 50}), randn({50})}));
  CHECK(same_everywhere(scores, {randn({5, 40, 16}), randn({16, 50}), randn({50})}));
}

TEST_CASE("images are prepared run by run, forward and for the gradient") {
  manual_seed(23);
  for (const DType type : {kFloat32, kFloat64, kBFloat16}) {
    CAPTURE(type);
    auto layer = [](const Tensors& t) {
      return Tensors{relu(conv2d(tanh(t[0]) * 2.0, t[1], t[2], {1}, {1}))};
    };
    CHECK(same_everywhere(layer, {randn({40, 3, 16, 16}).to(type), randn({20, 3, 3, 3}).to(type),
                                  randn({20}).to(type)}));
    CHECK(same_with_gradients(layer, {randn({40, 3, 16, 16}).to(type),
                                      randn({20, 3, 3, 3}).to(type), randn({20}).to(type)}));
    CHECK(same_everywhere(
        [](const Tensors& t) {
          return Tensors{conv2d(t[0].neg(), t[1], Tensor(), {2}, {1}, {1}, 2)};
        },
        {randn({40, 4, 16, 16}).to(type), randn({20, 2, 3, 3}).to(type)}));
  }
}

TEST_CASE("an operand that only a product reads is never stored") {
  if (!codegen::llvm_module().api) return;  // interpreted, it is stored
  const WithPasses restored([](compiler::PassOptions& o) { o.background_kernels = false; });
  const int64_t bytes = 4096 * 256 * 4, result = 4096 * 64 * 4;
  const Tensor x = randn({4096, 256}), w = randn({256, 64});
  auto run = [&] { return matmul(gelu(x), w); };
  auto f = compile(run);
  const auto with = static_cast<int64_t>(peak_of(f)), eager = static_cast<int64_t>(peak_of(run));
  CHECK(eager >= bytes + result);
  CHECK(with < result + bytes / 8);
  CHECK(f.stats().bytes_written == 0);
  CHECK(f.stats().bytes_read == 2 * bytes);  // two runs
}

TEST_CASE("operands that would have to live longer than eager mode keeps them are let go of") {
  const WithPasses restored([](compiler::PassOptions& o) { o.background_kernels = false; });
  const Tensor x = randn({2048, 64}), w = randn({64, 512});
  auto run = [&] {
    const Tensor a = x.cumsum(0), b = x.cumsum(1), c = a.cumsum(1);
    return matmul(a * b + c, w);
  };
  auto f = compile(run);
  CHECK(peak_of(f) <= peak_of(run));
  CHECK(same_bits(f(), run()));
}
