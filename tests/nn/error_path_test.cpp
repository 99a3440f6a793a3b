/// Errors in modules say which module it was, and which line of the user's called it.
#include <doctest/doctest.h>

#include <string>

#include "grapnel/grapnel.h"
#include "tests/ops/error_text.h"

namespace grapnel {

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
std::string here(int line) { return str("error_path_test.cpp:", line, " ("); }

constexpr int kBlockLine = __LINE__ + 5;
struct BlockImpl : nn::Module {
  nn::Linear fc{nullptr};
  BlockImpl(int64_t in, int64_t out) { fc = register_module("fc", nn::Linear(in, out)); }
  Tensor forward(const Tensor& x) {
    return relu(fc(x));
  }
};
GRAPNEL_MODULE(Block);

struct NetImpl : nn::Module {
  nn::ModuleList blocks;
  explicit NetImpl(int64_t wrong = 4) {
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(Block(i == 2 ? wrong : 4, 4));
  }
  Tensor forward(Tensor x) {
    for (const auto& block : *blocks) x = nn::call(*block->as<Block>(), x);
    return x;
  }
};
GRAPNEL_MODULE(Net);

}  // namespace

TEST_CASE("an error in a module names the nearest line of the user's and the module's path") {
  Net net(9);
  const auto compiled = [&](const Tensor& x) { compile([&](Tensor t) { return net(t); })(x); };
  for (const bool eager : {true, false}) {
    const std::string text =
        full_error_text([&] { eager ? (void)net(ones({2, 4})) : compiled(ones({2, 4})); });
    CAPTURE(text);
    CHECK(text.starts_with("linear: "));
    CHECK(contains(text, here(kBlockLine)));
    CHECK(contains(text, "forward()), in blocks.2.fc of Net"));
    CHECK(std::count(text.begin(), text.end(), '\n') < 5);
  }
}

TEST_CASE("an error in a layer that is called by itself names the layer and the line") {
  nn::Linear fc(3, 2);
  const int line = __LINE__ + 1;
  const std::string text = full_error_text([&] { (void)fc(ones({2, 4})); });
  CAPTURE(text);
  CHECK(contains(text, here(line)));
  CHECK(text.ends_with(", in Linear"));
}

TEST_CASE("a sequence of layers is a path of numbers") {
  nn::Sequential net(nn::Linear(3, 4), nn::ReLU(), nn::Sequential(nn::Linear(5, 2)));
  const int line = __LINE__ + 1;
  const std::string text = full_error_text([&] { net(ones({2, 3})); });
  CAPTURE(text);
  CHECK(contains(text, here(line)));
  CHECK(text.ends_with(", in 2.0 of Sequential"));
}

TEST_CASE("an op in a layer remembers the line of the user's that called the layer") {
  nn::Sequential net(nn::Linear(3, 4), nn::Functional([](Tensor t) {
                       return t * 2.0;  // kFunctionLine
                     }));
  constexpr int kFunctionLine = __LINE__ - 2;
  nn::Linear fc(4, 4);
  const int line = __LINE__ + 1;
  const Tensor y = fc(ones({2, 4}));
  CHECK(contains(y.grad_fn()->where(), here(line)));
  CHECK(contains(net(ones({2, 3})).grad_fn()->where(), here(kFunctionLine)));

  Net deep;
  const Tensor z = deep(ones({2, 4}));
  CHECK(contains(z.grad_fn()->where(), here(kBlockLine)));

  nn::LSTM lstm(4, 4);
  const int lstm_line = __LINE__ + 1;
  const Tensor out = std::get<0>(lstm(ones({3, 2, 4})));
  CHECK(contains(out.grad_fn()->where(), here(lstm_line)));
}

TEST_CASE("under anomaly mode a node knows its module") {
  const DetectAnomalyGuard guard;
  Net net;
  CHECK(net(ones({2, 4})).grad_fn()->where().ends_with(", in blocks.2 of Net"));
}

TEST_CASE("an error that depends on values names line and module when a graph runs") {
  nn::Sequential net(nn::Embedding(3, 4), nn::Flatten());
  auto run = compile([&](Tensor i) {
    return net(i).detach();
  });
  constexpr int kLine = __LINE__ - 2;
  run(tensor({{0, 2}}));
  // The second time the graph is there already.
  for (int round = 0; round < 2; ++round) {
    const std::string text = full_error_text([&] { run(tensor({{0, 7}})); });
    CAPTURE(text);
    CHECK(text.starts_with("embedding: "));
    CHECK(contains(text, here(kLine)));
    CHECK(contains(text, ", in 0 of Sequential"));
  }
}

TEST_CASE("a module that was registered anew has its new path") {
  Net net;
  const std::shared_ptr<nn::Module> block = net->blocks->ptr(0);
  const DetectAnomalyGuard guard;
  nn::Sequential first, second;
  nn::Linear fc(4, 4);
  first->push_back("a", fc);
  CHECK(contains(first(ones({1, 4})).grad_fn()->where(), "in a of Sequential"));
  second->push_back("b", fc);
  CHECK(contains(second(ones({1, 4})).grad_fn()->where(), "in b of Sequential"));
  CHECK(contains(first(ones({1, 4})).grad_fn()->where(), "in a of Sequential"));
  CHECK(contains(fc(ones({1, 4})).grad_fn()->where(), "in Linear"));
}

TEST_CASE("an exception out of a hook of a module names the hook and the module once") {
  struct Stop {};
  const auto explained = [](auto&& fn) -> std::string {
    try {
      fn();
    } catch (const Stop&) {
      return explain();
    }
    return "nothing was thrown";
  };
  nn::Linear fc(4, 4);
  const Tensor x = ones({2, 4}, requires_grad());
  const auto run = [&] { fc(x).sum().backward(); };
  const auto is_told = [&](const std::string& text, const char* kind, int line) {
    CAPTURE(text);
    CHECK(contains(text, std::string("\n  in the ") + kind));
    CHECK(contains(text, str("registered at ", __FILE__, ":", line, ", of Linear")));
    CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  };
  {
    const ScopedHook hook =
        fc->register_forward_pre_hook([](nn::Module&, const nn::Args&) { throw Stop(); });
    is_told(explained(run), "forward pre-hook", __LINE__ - 1);
  }
  {
    const ScopedHook hook = fc->register_forward_hook(
        [](nn::Module&, const nn::Args&, const nn::Value&) { throw Stop(); });
    is_told(explained(run), "forward hook", __LINE__ - 2);
  }
  {
    const ScopedHook hook = fc->register_full_backward_pre_hook(
        [](nn::Module&, const variable_list&) { throw Stop(); });
    is_told(explained(run), "full backward pre-hook", __LINE__ - 2);
  }
  {
    const ScopedHook hook = fc->register_full_backward_hook(
        [](nn::Module&, const variable_list&, const variable_list&) { throw Stop(); });
    is_told(explained(run), "full backward hook", __LINE__ - 2);
  }
}

}  // namespace grapnel
