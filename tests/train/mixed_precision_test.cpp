/// Mixed precision: what autocast casts, what hooks see, and how the scaler reacts to overflow.
#include <doctest/doctest.h>

#include "grapnel/grapnel.h"
#include "grapnel/train/grad_scaler.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

TEST_CASE(
    "inside autocast products are narrow, softmax, norms and losses wide, and parameters keep "
    "their type") {
  for (const DType narrow : {kBFloat16, kFloat16}) {
    nn::Linear fc(4, 3);
    nn::Conv2d conv(1, 2, 3);
    const Tensor x = randn({2, 4});
    Tensor y, loss;
    {
      Autocast scope(narrow);
      y = fc(x);
      CHECK(y.dtype() == narrow);
      CHECK(matmul(x, x.t()).dtype() == narrow);
      CHECK(conv(randn({1, 1, 5, 5})).dtype() == narrow);
      CHECK(softmax(y, 1).dtype() == kFloat32);
      CHECK(layer_norm(y, {3}).dtype() == kFloat32);
      CHECK(matmul(ones({2, 2}, kFloat64), ones({2, 2}, kFloat64)).dtype() == kFloat64);
      {
        Autocast off(kFloat32);
        CHECK(fc(x).dtype() == kFloat32);
      }
      loss = cross_entropy(y, tensor({0, 1}));
      CHECK(loss.dtype() == kFloat32);
    }
    CHECK(fc(x).dtype() == kFloat32);
    DType seen = kBool;
    y.register_hook([&](const Tensor& g) { seen = g.dtype(); });
    loss.backward();
    CHECK(seen == narrow);
    CHECK(fc->weight.dtype() == kFloat32);
    CHECK(fc->weight.grad().dtype() == kFloat32);
  }
  CHECK(error_text([] {
          Autocast scope(kInt64);
        }).starts_with("Autocast: products can be computed in bf16 or f16"));
}

TEST_CASE("a backward pass inside the scope gives the same bits as outside") {
  const auto gradient = [](bool inside) {
    manual_seed(1);
    nn::Sequential net(nn::Linear(6, 8), nn::ReLU(), nn::Linear(8, 3));
    const Tensor x = randn({5, 6});
    Autocast scope(kBFloat16);
    const Tensor loss = net(x).square().mean();
    if (inside) {
      loss.backward();
    } else {
      Autocast off(kFloat32);
      loss.backward();
    }
    return net->parameters()[0].grad();
  };
  CHECK(gradient(true).equal(gradient(false)));
}

TEST_CASE("training with autocast learns what training without learns") {
  const auto train = [](DType type) {
    manual_seed(3);
    nn::Sequential net(nn::Linear(8, 32), nn::Tanh(), nn::Linear(32, 1));
    optim::AdamW opt(net->parameters(), optim::AdamWOptions(0.01));
    GradScaler scaler({.init_scale = 1024});
    double last = 0;
    for (int i = 0; i < 200; ++i) {
      const Tensor x = randn({32, 8}), y = x.narrow(1, 0, 1) * x.narrow(1, 1, 1);
      Tensor loss;
      {
        Autocast scope(type);
        loss = mse_loss(net(x), y);
      }
      opt.zero_grad();
      scaler.scale(loss).backward();
      scaler.step(opt);
      scaler.update();
      last = 0.9 * last + 0.1 * loss.item<double>();
    }
    return last;
  };
  const double full = train(kFloat32);
  CHECK(full < 0.5);
  CHECK(train(kBFloat16) == doctest::Approx(full).epsilon(0.15));
  CHECK(train(kFloat16) == doctest::Approx(full).epsilon(0.15));
}

TEST_CASE("an overflow skips the step and halves the scale; good steps let it grow") {
  const Tensor w = ones({1}, requires_grad());
  optim::SGD opt({w}, 0.5);
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  const auto iterate = [&](double slope) {
    opt.zero_grad();
    scaler.scale((w * slope).sum()).backward();
    const bool stepped = scaler.step(opt);
    scaler.update();
    return stepped;
  };
  double seen = 0;
  w.register_hook([&](const Tensor& g) { seen = g.item<double>(); });
  CHECK(iterate(1));
  CHECK(seen == 8);
  CHECK(w.item<double>() == 0.5);
  CHECK_FALSE(iterate(std::numeric_limits<double>::infinity()));
  CHECK(w.item<double>() == 0.5);
  CHECK(scaler.get_scale() == 4);
  CHECK(iterate(1));
  CHECK(iterate(1));
  CHECK(scaler.get_scale() == 8);

  opt.zero_grad();
  scaler.scale(w.sum()).backward();
  scaler.unscale_(opt);
  CHECK(w.grad().item<double>() == 1);
  CHECK(error_text([&] {
          scaler.unscale_(opt);
        }).starts_with("GradScaler: the gradients of this optimiser were unscaled already"));

  io::Archive saved;
  scaler.save(saved);
  GradScaler other;
  other.load(saved);
  CHECK(other.get_scale() == 8);
  GradScaler off({.enabled = false});
  CHECK(off.scale(w).is_same(w));
}
