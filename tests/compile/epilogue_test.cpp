/// What follows a product or convolution runs on its tiles: see Note [Epilogues] in compile/plan.h.
#include "tests/compile/products.h"

using namespace grapnel;

namespace {

Tensors dense_layer(const Tensors& in) { return {relu(linear(in[0], in[1], in[2]))}; }

}  // namespace

TEST_CASE(
    "what follows a product joins it: bias, activation, residual, mask, scale and conversion") {
  const Tensor x = rand({8, 16}), w = rand({4, 16}), b = rand({4}), r = rand({8, 4});
  auto plan = [](auto fn) { return planned(fn).str(); };
  CHECK(plan([&] { return relu(linear(x, w, b)); }) == "[addmm relu]");
  CHECK(plan([&] { return gelu(matmul(x, w.t()) + b); }) == "[matmul add gelu]");
  CHECK(plan([&] { return r + linear(x, w, b); }) == "[addmm add]");
  CHECK(plan([&] { return where(r > 0.5, matmul(x, w.t()) * 0.125, r); }) ==
        "[matmul mul gt where]");
  CHECK(plan([&] { return matmul(x, w.t()).to(kFloat16); }) == "[matmul to]");
  CHECK(plan([&] { return matmul(x, w.t()).view({2, 16}) * 2.0; }) == "[matmul mul]");
  CHECK(plan([&] { return matmul(x, w.t()).relu_().add_(b); }) == "[matmul relu add]");
  CHECK(plan([&] { return matmul(x.view({2, 4, 16}), w.t().expand({2, 16, 4})).tanh(); }) ==
        "[matmul tanh]");
}

TEST_CASE("what does not follow a product element by element, or writes outside, stays by itself") {
  const Tensor x = rand({8, 16}), w = rand({16, 8}), b = rand({8});
  auto plan = [](auto fn) { return planned(fn).str(); };
  CHECK(plan([&] { return matmul(x, w); }) == "matmul");
  CHECK(plan([&] { return linear(x, w.t(), b); }) == "addmm");
  CHECK(plan([&] { return matmul(x, w).t() + x.sum(); }).find("[matmul") == std::string::npos);
  CHECK(plan([&] { return matmul(x, w).relu().sum({-1}); }) == "matmul [relu sum]");
  CHECK(plan([&] { return linear(x, w.t(), b).relu().sum(); }) == "addmm [relu sum]");
  CHECK(plan([&] { return matmul(x, w).relu_().sum({-1}); }) == "matmul [relu sum]");
  CHECK(plan([&] { return matmul(x, w).relu().sum({0}); }) == "[matmul relu] sum");
  CHECK(plan([&] { return addmm(b, x, w, 0.5, 2.0).relu(); }) == "addmm relu");
  NoGradGuard off;
  Tensor kept = rand({8, 8});
  CHECK(plan([&] {
          kept.add_(matmul(x, w) * 0.5);
          return Tensors{};
        }) == "matmul [mul add]");
  const WithPasses none([](compiler::PassOptions& o) { o.epilogues = false; });
  CHECK(plan([&] { return relu(matmul(x, w)); }) == "matmul relu");
}

TEST_CASE(
    "a product is computed where its result will lie, unless something else is needed there") {
  const Tensor x = rand({8, 16}), w = rand({16, 8}), r = rand({8, 8});
  auto group = [](const Planned& p) { return p.plan.groups.at(0); };
  auto own = [](const Planned& p) {
    const compiler::Group& g = p.plan.groups.at(0);
    return g.product.memory ==
           p.trace.values[p.trace.outputs_of(p.trace.calls[g.product.call])[0]].slot;
  };
  const Planned replaced = planned([&] { return relu(matmul(x, w)); });
  CHECK_FALSE(own(replaced));
  CHECK_FALSE(group(replaced).product.stored);
  const Planned kept = planned([&] {
    const Tensor y = matmul(x, w);
    return Tensors{y, relu(y)};
  });
  CHECK(own(kept));
  CHECK(group(kept).product.stored);
  CHECK(group(kept).outputs.size() == 1);
  // The one result is still read when the product is there.
  const Planned added = planned([&] { return (r * 2.0).add_(matmul(x, w)); });
  CHECK(own(added));
  CHECK_FALSE(group(added).product.stored);
  // Another type does not fit.
  CHECK(own(planned([&] { return matmul(x, w) > 0.0; })));
}

TEST_CASE("dense layers have eager's bits at all sizes, with gradients") {
  manual_seed(1);
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 1, 1},
                                {1, 70, 33},
                                {33, 70, 1},
                                {64, 130, 512},
                                {130, 40, 300},
                                {600, 20, 700},
                                {5, 0, 7},
                                {300, 300, 40}}) {
    CAPTURE(m);
    CAPTURE(k);
    CAPTURE(n);
    CHECK(same_with_gradients(dense_layer, {randn({m, k}), randn({n, k}), randn({n})}));
    CHECK(same_with_gradients(
        [](const Tensors& in) { return Tensors{gelu(matmul(in[0], in[1]) + in[2]) * in[3]}; },
        {randn({m, k}), randn({k, n}), randn({n}), randn({m, n})}));
  }
}

TEST_CASE("two layers, their loss and all gradients have eager's bits") {
  manual_seed(2);
  CHECK(same_with_gradients(
      [](const Tensors& in) {
        const Tensor h = gelu(linear(in[0], in[1], in[2]));
        return Tensors{linear(h, in[3], in[4]).square().mean(), h};
      },
      {randn({96, 60}), randn({200, 60}), randn({200}), randn({10, 200}), randn({10})}));
}

TEST_CASE("epilogues have eager's bits in every type and layout") {
  manual_seed(3);
  for (const DType type : {kFloat64, kFloat16, kBFloat16}) {
    CAPTURE(type);
    CHECK(same_with_gradients(
        dense_layer, {randn({70, 90}).to(type), randn({260, 90}).to(type), randn({260}).to(type)}));
    CHECK(same_everywhere(
        [](const Tensors& in) {
          const Tensor y = matmul(in[0], in[1]);
          return Tensors{y.relu(), y * 2.0, y.to(kFloat32)};
        },
        {randn({70, 90}).to(type), randn({90, 50}).to(type)}));
  }
  for (const DType type : {kInt64, kInt32})
    CHECK(same_everywhere(
        [](const Tensors& in) { return Tensors{matmul(in[0], in[1]) * 3 + in[0].sum()}; },
        {randint(0, 9, {20, 30}).to(type), randint(0, 9, {30, 40}).to(type)}));
  auto layer = [](const Tensors& in) { return Tensors{(matmul(in[0], in[1]) + in[2]).tanh()}; };
  CHECK(
      same_with_gradients(layer, {randn({90, 70}).t(), randn({50, 90}).t(), randn({50, 70}).t()}));
  CHECK(same_with_gradients(layer, {randn({140, 90}).slice(0, 0, {}, 2),
                                    randn({90, 100}).slice(1, 10, 60), randn({1, 50})}));
  CHECK(same_with_gradients(layer, {randn({3, 2, 40, 30}), randn({2, 30, 20}), randn({40, 1})}));
  CHECK(same_with_gradients(layer, {randn({30}), randn({4, 30, 20}), randn({20})}));
}

TEST_CASE(
    "a product that is needed as well, several results and results written again have eager's "
    "bits") {
  manual_seed(4);
  const Tensors in{randn({130, 60}), randn({60, 300}), randn({300}), randn({130, 300})};
  CHECK(same_everywhere(
      [](const Tensors& t) {
        const Tensor y = matmul(t[0], t[1]), h = relu(y);
        return Tensors{y, h, y * h, y > 0.0, (y + t[2]).to(kBFloat16)};
      },
      in));
  CHECK(same_everywhere(
      [](const Tensors& t) {
        const Tensor y = matmul(t[0], t[1]), h = relu(y);
        return Tensors{h, y * h, h - y};
      },
      in));
  CHECK(same_everywhere(
      [](const Tensors& t) {
        Tensor y = addmm(t[2], t[0], t[1]);
        const Tensor before = y * 2.0;
        y.relu_().mul_(t[3]);
        return Tensors{y, before, y.sum()};
      },
      in));
  CHECK(same_everywhere(
      [](const Tensors& t) {
        Tensor sum = t[3] * 0.5;
        for (int i = 0; i < 3; ++i) sum.add_(matmul(t[0], t[1]) * static_cast<double>(i));
        return Tensors{sum};
      },
      in));
  // What the product reads is overwritten behind it.
  CHECK(same_everywhere(
      [](const Tensors& t) {
        Tensor a = t[0].matmul(t[0].t()) * 1.0;
        const Tensor y = matmul(a, a);
        a.copy_(y.relu());
        return Tensors{a, a.add_(1.0) * 1.0};
      },
      in));
  CHECK(same_everywhere(
      [](const Tensors& t) {
        Tensor y = matmul(t[0], t[1]);
        y.zero_();
        return Tensors{y + t[2]};
      },
      in));
}

TEST_CASE("softmax and layer norm behind a product have eager's bits") {
  manual_seed(5);
  CHECK(same_with_gradients(
      [](const Tensors& t) { return Tensors{softmax(matmul(t[0], t[1]) * 0.1, -1)}; },
      {randn({2, 70, 16}), randn({2, 16, 70})}));
  CHECK(same_with_gradients(
      [](const Tensors& t) {
        const Tensor y = t[2] + matmul(t[0], t[1]), c = y - y.mean({-1}, true);
        return Tensors{c * (c.square().mean({-1}, true) + 1e-5).rsqrt()};
      },
      {randn({70, 40}), randn({40, 130}), randn({70, 130})}));
}

TEST_CASE("convolutions take bias, activation and mask along, forward and backward") {
  const Tensor x = rand({2, 3, 8, 8}), w = rand({4, 3, 3, 3}), b = rand({4});
  CHECK(planned([&] { return relu(conv2d(x, w, b)); }).str() == "[conv2d relu]");
  CHECK(planned([&] { return conv2d(x, w, b); }).str() == "conv2d");
  manual_seed(6);
  auto layer = [](const Tensors& t) {
    return Tensors{gelu(conv2d(relu(conv2d(t[0], t[1], t[2], {1}, {1})), t[3], t[4], {2})),
                   t[0] * 1.0};
  };
  for (const DType type : {kFloat32, kFloat64, kBFloat16}) {
    CAPTURE(type);
    CHECK(same_with_gradients(
        layer, {randn({5, 3, 9, 11}).to(type), randn({8, 3, 3, 3}).to(type), randn({8}).to(type),
                randn({6, 8, 2, 2}).to(type), randn({6}).to(type)}));
  }
  // Enough work for several tiles, along images and along channels.
  CHECK(same_with_gradients(layer, {randn({40, 3, 20, 20}), randn({32, 3, 3, 3}), randn({32}),
                                    randn({70, 32, 2, 2}), randn({70})}));
  CHECK(same_with_gradients(
      [](const Tensors& t) { return Tensors{relu(conv2d(t[0], t[1], t[2], {1}, {1}))}; },
      {randn({1, 64, 30, 30}), randn({128, 64, 3, 3}), randn({128})}));
  CHECK(same_with_gradients(
      [](const Tensors& t) {
        return Tensors{relu(conv2d(t[0], t[1], Tensor(), {1}, {1}, {1}, 4)) * 2.0};
      },
      {randn({3, 8, 10, 10}), randn({12, 2, 3, 3})}));
  CHECK(same_with_gradients(
      [](const Tensors& t) { return Tensors{tanh(conv2d(t[0].transpose(2, 3), t[1], t[2]))}; },
      {randn({3, 4, 10, 6}), randn({5, 4, 3, 3}), randn({5})}));
  CHECK(same_everywhere([](const Tensors& t) { return Tensors{relu(conv2d(t[0], t[1], t[2]))}; },
                        {randn({0, 3, 8, 8}), randn({4, 3, 3, 3}), randn({4})}));
}

TEST_CASE("one graph serves every batch size, none included") {
  manual_seed(7);
  const WithPasses restored([](compiler::PassOptions& o) { o.background_kernels = false; });
  const Tensor w = randn({300, 50}), b = randn({300});
  auto run = [&](const Tensor& x) { return relu(linear(x, w, b)) * 2.0; };
  auto f = compile(run);
  for (const int64_t n : {64, 1, 0, 700, 3}) {
    const Tensor x = randn({n, 50});
    CHECK(same_bits(f(x), run(x)));
  }
  CHECK(f.stats().graphs == 1);
  CHECK(f.stats().kernels == 1);
  CHECK(f.stats().fused_calls == 3);
}

TEST_CASE("a product that only its epilogue reads is never stored") {
  const WithPasses restored([](compiler::PassOptions& o) { o.background_kernels = false; });
  const int64_t bytes = 256 * 1024 * 4;
  const Tensor x = randn({256, 64}), w = randn({1024, 64}), b = randn({1024});
  auto run = [&] { return relu(linear(x, w, b)); };
  const size_t eager = peak_of(run);
  auto f = compile(run);
  const auto with = static_cast<int64_t>(peak_of(f));
  compiler::pass_options().epilogues = false;
  reset_compile_cache();
  auto g = compile(run);
  const auto without = static_cast<int64_t>(peak_of(g));
  CHECK(with <= static_cast<int64_t>(eager));
  CHECK(without >= 2 * bytes);
  CHECK(with < bytes + bytes / 8);
  CHECK(f.stats().bytes_written == 2 * bytes);        // two runs
  CHECK(f.stats().bytes_read == 2 * 1024 * 256 * 4);  // the bias, as often as it is read
}

TEST_CASE("a compiled step with products needs no more memory than an eager one") {
  const WithPasses restored([](compiler::PassOptions& o) { o.background_kernels = false; });
  for (const DType type : {kFloat32, kBFloat16}) {
    CAPTURE(type);
    const Tensor x = randn({128, 200}).to(type), w1 = randn({300, 200}).to(type).requires_grad_(),
                 w2 = randn({40, 300}).to(type).requires_grad_();
    auto run = [&] {
      const Tensor h = gelu(linear(x, w1));
      const Tensor loss = linear(h, w2).square().sum();
      w1.mutable_grad() = Tensor();
      w2.mutable_grad() = Tensor();
      loss.backward();
      return loss.detach();
    };
    auto f = compile(run);
    const size_t compiled = peak_of(f);
    CHECK(compiled <= peak_of(run));
  }
}

TEST_CASE(
    "a plan is checked: a product must not be computed in memory that its group still reads") {
  const Tensor x = rand({8, 16}), w = rand({16, 8}), r = rand({8, 8});
  Planned p = planned([&] { return (r * 2.0).add_(matmul(x, w)); });
  compiler::Group& g = p.plan.groups.at(0);
  REQUIRE(g.product);
  g.product.memory = p.trace.values[g.outputs.at(0).value].slot;
  CHECK_THROWS_AS(verify(p.trace, p.simplified.skipped, p.plan), InternalError);
}

TEST_CASE("factors of a product that change between calls decide anew what is fused") {
  const Tensor x = rand({8, 4}), a = rand({8, 16}), b = rand({16, 4});
  double beta = 1, alpha = 1;
  auto work = [&] { return addmm(x, a, b, beta, alpha).relu(); };
  auto f = compile(work);
  for (const double factor : {1.0, 0.5, 1.0, 0.0})
    for (double* which : {&beta, &alpha}) {
      *which = factor;
      CHECK(f().equal(work()));
    }
}
