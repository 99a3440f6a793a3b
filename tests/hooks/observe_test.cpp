/// Hooks that watch: statistics, logs, NaN guard, norms per example. The programs of
/// docs/hook-library.md are among these tests.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <tuple>

#include "grapnel/compile/passes.h"
#include "grapnel/grapnel.h"
#include "grapnel/hooks/hooks.h"
#include "grapnel/io/file.h"
#include "tests/io/temporary_folder.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

namespace {
void backward_with(const Tensor& x, const Tensor& g) { (x * g).sum().backward(); }
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
}  // namespace

TEST_CASE("statistics count, average and sort gradients into a histogram") {
  const Tensor x = zeros({4}, requires_grad());
  hooks::Statistics stats({.bins = 2, .low = 0, .high = 2});
  stats.attach("x", x);
  backward_with(x, tensor({-1.0, 0.5, 1.5, 3.0}));
  backward_with(x, tensor({0.0, 0.0, 2.0, 1.0}));
  const auto row = stats.report().at(0);
  CHECK(row.name == "x");
  CHECK(row.calls == 2);
  CHECK(row.elements == 8);
  CHECK(row.mean == doctest::Approx(7.0 / 8));
  CHECK(row.min == -1);
  CHECK(row.max == 3);
  CHECK(row.norm == doctest::Approx(std::sqrt((12.5 + 5) / 2)));
  CHECK(row.histogram == std::vector<int64_t>{1, 3, 2, 2, 0});
  backward_with(x, tensor({not_a_number, 0.0, 0.0, 0.0}));
  CHECK(stats.report().at(0).histogram == std::vector<int64_t>{1, 6, 2, 2, 1});

  io::Archive saved;
  stats.save(saved);
  hooks::Statistics other({.bins = 2, .low = 0, .high = 2});
  other.attach("x", zeros({4}, requires_grad()));
  other.load(saved);
  CHECK(other.report().at(0).histogram == stats.report().at(0).histogram);
  stats.reset();
  CHECK(stats.report().at(0).calls == 0);
}

TEST_CASE("statistics end with their object") {
  const Tensor x = zeros({1}, requires_grad());
  {
    hooks::Statistics stats;
    stats.attach("x", x);
    CHECK(hooks_of(x).size() == 1);
  }
  CHECK(hooks_of(x).empty());
  backward_with(x, ones({1}));
}

namespace {

/// Logs every second of five steps, whose gradients are 1 to 5, and returns the lines.
std::vector<std::string> logged(const std::filesystem::path& folder, bool all_steps,
                                bool in_compiled_step) {
  nn::Linear net(1, 1);
  const auto path = folder / "log.jsonl";
  std::filesystem::remove(path);
  hooks::JsonLinesWriter writer(path);
  hooks::GradientLogger logger(*net, writer, {.every = 2, .all_steps = all_steps});
  double slope = 0;
  const auto pass = [&] {
    net->zero_grad();
    (net(ones({1, 1})) * slope).sum().backward();
  };
  auto compiled = compile(pass);
  for (int i = 0; i < 5; ++i) {
    slope = i + 1;
    in_compiled_step ? compiled() : pass();
    logger.step();
  }
  CHECK(logger.steps() == 5);
  std::istringstream in(io::read_text(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("gradients are logged as JSON lines, about one step or about all") {
  const TemporaryFolder folder;
  for (const bool compiled : {false, true}) {
    CAPTURE(compiled);
    const auto own = logged(folder / "", false, compiled),
               all = logged(folder / "", true, compiled);
    REQUIRE(own.size() == 12);
    CHECK(own.at(0) == R"({"step":2,"tag":"weight/norm","value":2.0})");
    CHECK(own.at(11) == R"({"step":4,"tag":"bias/largest","value":4.0})");
    REQUIRE(all.size() == 12);
    CHECK(all.at(1) == R"({"step":2,"tag":"weight/mean","value":1.5})");
    CHECK(all.at(10) == R"({"step":4,"tag":"bias/mean","value":3.5})");
  }
}

TEST_CASE("TensorBoard's records have the right checksums and fields") {
  CHECK(hooks::crc32c("123456789", 9) == 0xE3069283);
  const TemporaryFolder folder;
  std::filesystem::path path;
  {
    hooks::TensorBoardWriter writer(folder / "runs");
    writer.scalar("loss", 7, 0.5);
    writer.histogram("h", 8,
                     {.min = -1,
                      .max = 1,
                      .count = 3,
                      .sum = 0,
                      .sum_squares = 2,
                      .limits = {0, 1},
                      .counts = {1, 2}});
    writer.flush();
    path = writer.path();
  }
  const std::string bytes = io::read_text(path);
  const auto masked = [](uint32_t c) { return (c >> 15 | c << 17) + 0xA282EAD8; };
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length;
    uint32_t crc;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&crc, bytes.data() + at + 8, 4);
    CHECK(crc == masked(hooks::crc32c(bytes.data() + at, 8)));
    std::memcpy(&crc, bytes.data() + at + 12 + length, 4);
    CHECK(crc == masked(hooks::crc32c(bytes.data() + at + 12, length)));
    records.push_back(bytes.substr(at + 12, length));
    at += 16 + length;
  }
  CHECK(records.size() == 3);
  CHECK(records.at(0).find("brain.Event:2") != std::string::npos);
  // step 7, then a summary with one value: tag "loss", 0.5f.
  CHECK(records.at(1).starts_with(
      std::string("\x10\x07\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f", 17)));
}

TEST_CASE("the NaN guard names op, source line, layer and rank of the first bad value") {
  struct NetImpl : nn::Module {
    nn::Linear fc{nullptr};
    NetImpl() { fc = register_module("fc", nn::Linear(2, 2)); }
    Tensor forward(const Tensor& x) { return fc(x).abs().log().exp(); }
  };
  const auto net = std::make_shared<NetImpl>();
  hooks::NanGuard guard(*net, {.rank = "rank 3 of 8"});
  nn::call(*net, ones({1, 2})).sum().backward();
  guard.check();

  // A weight of zeros: log(0) is the first infinity, although exp makes it finite again.
  nn::init::zeros_(net->fc->weight);
  nn::init::zeros_(net->fc->bias);
  nn::call(*net, ones({1, 2})).sum().backward();
  const auto report = guard.find();
  REQUIRE(report);
  CHECK(report->phase == "forward");
  CHECK(report->op == "log");
  CHECK(report->layer == "");
  CHECK(report->where.find("observe_test.cpp") != std::string::npos);
  CHECK_FALSE(guard.find());

  // A gradient: sqrt at 0 has a finite value and an infinite slope.
  const Tensor x = zeros({2}, requires_grad());
  x.sqrt().sum().backward();
  const std::string message = error_text([&] { guard.check(); });
  CHECK(message.starts_with("a NaN or an infinity was born in the backward of sqrt, called at "));
  CHECK(message.ends_with(" [rank 3 of 8]."));

  nn::call(*net, full({1, 2}, not_a_number));
  CHECK(guard.find()->phase == "argument");
  net->fc->weight.detach().fill_(not_a_number);
  nn::call(*net, ones({1, 2}));
  CHECK(guard.find()->op == "fc.weight");
}

TEST_CASE("a NaN guard names the hook that made a NaN") {
  const Tensor x = ones({5, 4});
  const auto made_by = [&](auto&& attach) {
    nn::Linear fc(4, 2);
    hooks::NanGuard guard(*fc);
    Tensor y = fc(x);
    attach(fc, y);
    y.sum().backward();
    return error_text([&] { guard.check(); });
  };
  const auto to_nan = [](const Tensor& g) { return g * 0.0 / 0.0; };
  std::string text = made_by([&](nn::Linear& fc, Tensor&) {
    fc->weight.set_name("w");
    fc->weight.register_hook(to_nan, {"makes nan"});
  });
  CAPTURE(text);
  CHECK(text.starts_with("a NaN or an infinity was born in the tensor hook 'makes nan' registered "));
  CHECK(text.find("observe_test.cpp:") != std::string::npos);
  CHECK(text.find(", at the leaf 'w' of shape [2, 4]") != std::string::npos);

  text = made_by([&](nn::Linear&, Tensor& y) { y.register_hook(to_nan); });
  CAPTURE(text);
  CHECK(text.find("was born in the tensor hook registered at ") != std::string::npos);
  CHECK(text.find(", called at ") != std::string::npos);

  text = made_by([&](nn::Linear&, Tensor& y) {
    y.grad_fn()->register_prehook(
        [&](const variable_list& g) { return variable_list{to_nan(g[0])}; });
  });
  CHECK(text.find("was born in the node pre-hook ") != std::string::npos);

  text = made_by([&](nn::Linear& fc, Tensor&) {
    fc->bias.register_post_accumulate_grad_hook(
        [](const Tensor& leaf) { leaf.mutable_grad().mul_(not_a_number); });
  });
  CHECK(text.find("was born in the post-accumulate hook ") != std::string::npos);

  // A hook that passes on what was there already is not to blame.
  text = made_by([&](nn::Linear& fc, Tensor& y) {
    fc->weight.register_hook([](const Tensor& g) { return g * 2.0; });
    y = y.detach().mul(0.0).set_requires_grad(true).sqrt() + y;
  });
  CHECK(text.find("was born in the backward of sqrt") != std::string::npos);
}

TEST_CASE("the NaN guard knows the layer") {
  nn::Sequential net(nn::Linear(2, 2), nn::Sequential(nn::Linear(2, 2), nn::ReLU()));
  hooks::NanGuard guard(*net);
  net->named_parameters()["1.0.weight"].detach().fill_(3e38);
  net(full({1, 2}, 10.0)).sum().backward();
  const auto report = guard.find();
  REQUIRE(report);
  CHECK(report->layer == "1.0");
}

TEST_CASE("NaN guards watch side by side and end in any order") {
  nn::Linear net(2, 2);
  const Tensor x = zeros({2}, requires_grad());
  auto a = std::make_unique<hooks::NanGuard>(*net);
  auto b = std::make_unique<hooks::NanGuard>(*net);
  x.log();
  CHECK(a->find());
  CHECK(b->find());
  a.reset();
  x.log();
  CHECK(b->find());
  b.reset();
  net(x.log()).sum().backward();
}

TEST_CASE("a NaN guard may end on another thread") {
  nn::Linear net(2, 2);
  auto guard = std::make_unique<hooks::NanGuard>(*net);
  std::thread([&] { guard.reset(); }).join();
  net(ones({2}, requires_grad())).sum().backward();
}

TEST_CASE("a NaN guard forgets what a compiled function that threw did not compute") {
  nn::Linear net(2, 2);
  const Tensor x = zeros({1, 2}, requires_grad());
  hooks::NanGuard guard(*net);
  bool bad = true;
  auto step = compile([&] {
    net(x.log()).sum().backward();
    if (bad) throw std::runtime_error("x");
  });
  CHECK_THROWS_AS(step(), std::runtime_error);
  CHECK_FALSE(guard.find());
  bad = false;
  step();
  CHECK(guard.find()->op == "log");

  // The same if it fails while it runs.
  const Tensor divisor = zeros({1}, kInt64);
  Tensor quotient;
  auto divide = compile([&] {
    quotient = floor_divide(ones({1}, kInt64), divisor);
    net(x.log()).sum().backward();
  });
  CHECK_THROWS_AS(divide(), Error);
  CHECK_FALSE(guard.find());
  divisor.fill_(1);
  divide();
  CHECK(guard.find()->op == "log");
}

TEST_CASE("a NaN guard finds the same birthplace whether or not its looks wait") {
  for (const bool waiting : {false, true}) {
    CAPTURE(waiting);
    compiler::pass_options().looks = waiting;
    reset_compile_cache();
    nn::Linear layer(4, 3);
    optim::SGD sgd(layer->parameters(), optim::SGDOptions(0.1));
    hooks::NanGuard guard(*layer);
    Tensor x = rand({2, 4});
    auto step = compile([&] {
      sgd.zero_grad();
      layer(x).log().sum().backward();
      sgd.step();
    });
    {
      const NoGradGuard no_grad;
      layer->weight.abs_();
      layer->bias.fill_(1.0);
    }
    step();
    CHECK(!guard.find());
    {
      const NoGradGuard no_grad;
      layer->weight.zero_();
      layer->bias.zero_();
    }
    step();
    const auto born = guard.find();
    REQUIRE(born);
    CHECK(born->phase == "forward");
    CHECK(born->op == "log");
    // The update made all parameters bad, and the next step finds them so.
    step();
    const auto next = guard.find();
    REQUIRE(next);
    CHECK(next->phase == "parameter");
  }
}

TEST_CASE("a NaN guard knows the layer after a hook before its own threw") {
  nn::Sequential net(nn::Linear(2, 2), nn::Linear(2, 2));
  bool bad = true;
  net->named_modules()["0"]->register_forward_pre_hook([&](nn::Module&, const nn::Args&) {
    if (bad) throw std::runtime_error("x");
  });
  hooks::NanGuard guard(*net);
  CHECK_THROWS_AS(net(ones({1, 2})), std::runtime_error);
  bad = false;
  net->named_parameters()["1.weight"].detach().fill_(3e38);
  net(full({1, 2}, 10.0)).sum().backward();
  CHECK(guard.find()->layer == "1");
}

TEST_CASE("norms per example are those of passes with one example each") {
  manual_seed(2);
  struct NetImpl : nn::Module {
    nn::Embedding words{nullptr};
    nn::Linear mix{nullptr}, head{nullptr};
    nn::LayerNorm norm{nullptr};
    nn::RMSNorm rms{nullptr};
    nn::Conv1d conv{nullptr};
    nn::Conv2d image{nullptr};
    NetImpl() {
      words = register_module("words", nn::Embedding(5, 4));
      mix = register_module("mix", nn::Linear(4, 4));
      norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({4})));
      rms = register_module("rms", nn::RMSNorm(nn::RMSNormOptions({4})));
      conv = register_module("conv", nn::Conv1d(nn::Conv1dOptions(4, 6, 2).padding(1).groups(2)));
      image = register_module("image", nn::Conv2d(nn::Conv2dOptions(1, 2, 3).stride(2)));
      head = register_module("head", nn::Linear(12, 3));
    }
    Tensor forward(const Tensor& x) {
      const Tensor sequence = rms(norm(mix(words(x)).tanh()));  // [N, 5, 4]
      const Tensor square = conv(sequence.mT()).unsqueeze(1);   // [N, 1, 6, 6]
      return head(image(square).flatten(1).narrow(1, 0, 8).tanh().repeat({1, 2}).narrow(1, 0, 12));
    }
  };
  const auto net = std::make_shared<NetImpl>();
  net->to(kFloat64);
  const Tensor x = tensor({{0, 1, 1, 2, 0}, {4, 4, 4, 4, 4}, {3, 2, 1, 0, 4}}),
               y = tensor({0, 2, 1});
  hooks::PerSampleNorms norms(*net);
  cross_entropy(nn::call(*net, x), y).backward();
  const Tensor found = norms.take();
  CHECK(error_text([&] { norms.take(); }) ==
        "PerSampleNorms: there was no backward pass since the last call.");
  for (int64_t i = 0; i < 3; ++i) {
    net->zero_grad();
    cross_entropy(net->forward(x.narrow(0, i, 1)), y.narrow(0, i, 1)).backward();
    CHECK(found[i].item<double>() ==
          doctest::Approx(nn::utils::grad_norm(net->parameters()).item<double>()).epsilon(1e-10));
  }
  nn::Sequential mixed(nn::Linear(2, 2), nn::BatchNorm1d(2));
  CHECK(error_text([&] {
          hooks::PerSampleNorms refused(*mixed);
        }).starts_with("PerSampleNorms: '1' is "));
}

TEST_CASE("norms per example end with their object, and do without the module") {
  const Tensor x = ones({2, 3});
  nn::Linear net(3, 2);
  Tensor loss;
  {
    const hooks::PerSampleNorms norms(*net);
    loss = net(x).sum();
  }
  loss.backward();
  CHECK(net->weight.grad().defined());

  nn::Sequential model(nn::Linear(3, 2));
  hooks::PerSampleNorms norms(*model);
  loss = model(x).mean();
  model = nullptr;
  loss.backward();
  CHECK(norms.take().size(0) == 2);
}

TEST_CASE(
    "saved tensors wait narrow, compressed or on the disk, and gradients come out as they should") {
  const TemporaryFolder folder;
  const auto gradient = [](const hooks::SavedHook& hook) {
    const Tensor x = (arange(4096).to(kFloat32) / 16).set_requires_grad(true);
    Tensor loss;
    {
      autograd::SavedTensorHooks scope(hook.pack, hook.unpack);
      const Tensor copy = x.clone();
      loss = (copy * copy).sum();
    }
    loss.backward();
    return x.grad();
  };
  const Tensor exact = arange(4096).to(kFloat32) / 8;
  CHECK(gradient(hooks::deflate()).equal(exact));
  CHECK(gradient(hooks::save_to_disk(folder / "saved")).equal(exact));
  CHECK(std::filesystem::is_empty(folder / "saved"));
  CHECK(gradient(hooks::compress(kBFloat16)).allclose(exact, 1e-2));
  CHECK_FALSE(gradient(hooks::compress(kBFloat16)).equal(exact));
  CHECK(gradient(hooks::compress(kBFloat16, hooks::save_to_disk(folder / "saved")))
            .equal(gradient(hooks::compress(kBFloat16))));
}

TEST_CASE("files of saved tensors exist exactly as long as the graph") {
  const TemporaryFolder folder;
  const hooks::SavedHook hook = hooks::save_to_disk(folder.path());
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder.path()), {});
  };
  const Tensor x = ones({4096}, requires_grad());
  Tensor y;
  {
    autograd::SavedTensorHooks scope(hook.pack, hook.unpack);
    const Tensor copy = x.clone();
    y = copy * copy;
  }
  CHECK(files() == 2);
  y.reset();
  CHECK(files() == 0);
}

TEST_CASE("parameters and their views are not packed, since they stay in memory") {
  const TemporaryFolder folder;
  const hooks::SavedHookOptions all{.min_bytes = 0};
  const hooks::SavedHook disk = hooks::save_to_disk(folder.path(), all);
  const Tensor x = rand({4, 3}), w = rand({5, 3}, requires_grad());
  const auto gradient = [&](const hooks::SavedHook* hook) {
    const Tensor input = x.clone().set_requires_grad(true);
    const Tensor activation = input * 1.0;
    std::optional<autograd::SavedTensorHooks> scope;
    if (hook) scope.emplace(hook->pack, hook->unpack);
    const Tensor y = matmul(activation, w.t()).sum();
    scope.reset();
    const auto files = std::distance(std::filesystem::directory_iterator(folder.path()), {});
    w.mutable_grad() = Tensor();
    y.backward();
    return std::tuple(input.grad(), w.grad(), files);
  };
  const auto [exact_x, exact_w, none] = gradient(nullptr);
  CHECK(none == 0);
  for (const auto& [hook, files] :
       {std::pair(disk, 1), std::pair(hooks::deflate(all), 0),
        std::pair(hooks::compress(kBFloat16, {}, all), 0),
        std::pair(hooks::compress(kBFloat16, disk, all), 1),
        std::pair(hooks::compress(kBFloat16, hooks::compress(kFloat16, disk, all), all), 1)}) {
    const auto [of_x, of_w, count] = gradient(&hook);
    CHECK(of_x.equal(exact_x));  // made of the weight, which no hook has rounded
    CHECK(of_w.allclose(exact_w, 1e-2));
    CHECK(count == files);
  }
  // It is still seen to that nobody overwrites them.
  Tensor y;
  {
    autograd::SavedTensorHooks scope(disk.pack, disk.unpack);
    y = matmul(x.clone().set_requires_grad(true), w.t()).sum();
  }
  {
    NoGradGuard off;
    w.add_(1);
  }
  CHECK(error_text([&] { y.backward(); }).find("was changed by an in-place") != std::string::npos);
}

TEST_CASE("a saved tensor that a hook keeps as it is must not be overwritten") {
  const TemporaryFolder folder;
  const auto overwrite = [](const hooks::SavedHook& hook) {
    const Tensor x = ones({3}, requires_grad());
    Tensor y;
    {
      autograd::SavedTensorHooks scope(hook.pack, hook.unpack);
      y = x.exp();
    }
    y.mul_(2);
    return error_text([&] { y.sum().backward(); });
  };
  using hooks::compress, hooks::deflate;
  const hooks::SavedHook disk = hooks::save_to_disk(folder.path());
  for (const auto& hook : {deflate(), disk, compress(kBFloat16), compress(kBFloat16, deflate()),
                           compress(kFloat64, disk), compress(kFloat16, compress(kBFloat16))})
    CHECK(overwrite(hook).find("was changed by an in-place operation") != std::string::npos);

  // A copy is not affected.
  CHECK(overwrite(deflate({.min_bytes = 0})).empty());
  CHECK(overwrite(compress(kBFloat16, deflate(), {.min_bytes = 0})).empty());
}

TEST_CASE("hooks that narrow can be nested: each takes what the one before left") {
  const auto gradient = [](const hooks::SavedHook& hook) {
    const Tensor x = (arange(6).to(kFloat32) / 7).view({2, 3}).t().set_requires_grad(true);
    Tensor loss;
    {
      autograd::SavedTensorHooks scope(hook.pack, hook.unpack);
      const Tensor copy = x.clone();
      loss = (copy * copy).sum();
    }
    loss.backward();
    return x.grad();
  };
  using hooks::compress, hooks::deflate;
  const Tensor narrow = gradient(compress(kBFloat16, {}, {.min_bytes = 0}));
  CHECK(gradient(compress(kFloat64, compress(kBFloat16, {}, {.min_bytes = 0}))).equal(narrow));
  CHECK(
      gradient(compress(kFloat64, compress(kBFloat16, deflate({.min_bytes = 0}), {.min_bytes = 0})))
          .equal(narrow));
}

TEST_CASE("a child by fork neither deletes nor repeats what its parent has put into files") {
  const TemporaryFolder folder;
  const auto hook = hooks::save_to_disk(folder / "saved", {.min_bytes = 1});
  const Tensor x = full({100}, 3.0, requires_grad());
  Tensor loss;
  {
    autograd::SavedTensorHooks scope(hook.pack, hook.unpack);
    const Tensor y = x * 2;
    loss = (y * y).sum();
  }
  auto writer = std::make_unique<hooks::JsonLinesWriter>(folder / "log.jsonl");
  writer->scalar("parent", 1, 1.0);  // waits in a buffer, of which the child has a copy
  const pid_t pid = fork();
  if (pid == 0) {
    loss = Tensor();
    writer->scalar("child", 2, 2.0);
    writer->flush();
    writer.reset();
    _exit(0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  CHECK(status == 0);
  writer.reset();
  loss.backward();
  CHECK(x.grad()[0].item<double>() == 24.0);
  const std::string log = io::read_text(folder / "log.jsonl");
  for (const char* who : {"parent", "child"}) {
    const size_t at = log.find(who);
    CHECK(at != std::string::npos);
    CHECK(log.find(who, at + 1) == std::string::npos);
  }
}
