/// Modules: what is inside them, copies, printing, holders and containers.
#include <doctest/doctest.h>

#include <sstream>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/multi_grad.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/nn.h"

using namespace grapnel;
using nn::Args;
using nn::Module;
using nn::Value;

namespace {

struct NetImpl : nn::Cloneable<NetImpl> {
  nn::Linear first{nullptr}, second{nullptr};
  Tensor steps;
  NetImpl() { NetImpl::reset(); }
  void reset() override {
    first = register_module("first", nn::Linear(3, 4));
    second = register_module("second", nn::Linear(nn::LinearOptions(4, 2).bias(false)));
    steps = register_buffer("steps", zeros({1}));
  }
  Tensor forward(Tensor x) { return second(relu(first(x))); }
};
GRAPNEL_MODULE(Net);

std::vector<std::string> keys(const Module::NamedTensors& dict) { return dict.keys(); }

}  // namespace

TEST_CASE("a module lists parameters, buffers and submodules by path, own ones first") {
  Net net;
  CHECK(keys(net->named_parameters()) ==
        std::vector<std::string>{"first.weight", "first.bias", "second.weight"});
  CHECK(keys(net->named_parameters(false)).empty());
  CHECK(keys(net->named_buffers()) == std::vector<std::string>{"steps"});
  CHECK(net->parameters().size() == 3);
  CHECK(net->named_children().keys() == std::vector<std::string>{"first", "second"});
  CHECK(net->named_modules().keys() == std::vector<std::string>{"", "first", "second"});
  CHECK(net->named_modules("net", false).keys() ==
        std::vector<std::string>{"net.first", "net.second"});
  CHECK(net->modules().size() == 3);
  CHECK(net->children().size() == 2);
  for (const Tensor& p : net->parameters()) CHECK(p.requires_grad());
  std::vector<std::string> paths;
  net->apply([&](const std::string& path, Module&) { paths.push_back(path); });
  CHECK(paths == std::vector<std::string>{"", "first", "second"});
}

TEST_CASE("a parameter shared by two modules is listed once") {
  struct Tied : Module {
    nn::Linear a{nullptr}, b{nullptr};
    Tied() {
      a = register_module("a", nn::Linear(2, 2));
      b = register_module("b", a);
    }
  };
  auto tied = std::make_shared<Tied>();
  CHECK(tied->parameters().size() == 2);
  CHECK(tied->modules().size() == 2);
}

TEST_CASE("train and eval reach all submodules; dropout obeys") {
  nn::Sequential net(nn::Dropout(0.5), nn::Identity());
  Tensor x = ones({100});
  net->eval();
  CHECK(!net->is_training());
  CHECK(net(x).equal(x));
  net->train();
  CHECK(!net(x).equal(x));
}

TEST_CASE("to converts parameters and gradients in place, hooks stay") {
  Net net;
  int fired = 0;
  net->first->weight.register_hook([&](const Tensor&) { ++fired; });
  net(ones({1, 3})).sum().backward();
  const Tensor weight = net->first->weight;
  net->to(kFloat64);
  CHECK(weight.dtype() == kFloat64);
  CHECK(net->first->weight.is_same(weight));
  CHECK(weight.grad().dtype() == kFloat64);
  net(ones({1, 3}, kFloat64)).sum().backward();
  CHECK(fired == 2);
  net->zero_grad();
  CHECK(!weight.grad().defined());
  CHECK_THROWS_AS(net->to(kInt64), Error);
}

TEST_CASE("linear layers start within 1 / sqrt(in_features), drawn from the default generator") {
  manual_seed(3);
  nn::Linear a(100, 50);
  manual_seed(3);
  nn::Linear b(100, 50);
  CHECK(a->weight.equal(b->weight));
  CHECK(a->bias.equal(b->bias));
  CHECK(a->weight.abs().max().item<double>() <= 0.1);
  CHECK(a->weight.abs().max().item<double>() > 0.099);
  CHECK(a->bias.abs().max().item<double>() <= 0.1);
  const Tensor x = randn({4, 100});
  CHECK(a(x).allclose(x.matmul(a->weight.t()) + a->bias, 1e-4, 1e-5));
  CHECK(!nn::Linear(nn::LinearOptions(2, 3).bias(false))->bias.defined());
  CHECK_THROWS_AS(nn::Linear(0, 3), Error);
}

TEST_CASE("sequential runs modules of any type in order; they can be named, found and added") {
  nn::Sequential seq(nn::Linear(3, 4), nn::ReLU(), nn::Functional([](Tensor x) { return x * 2; }));
  CHECK(seq->size() == 3);
  seq->push_back(nn::Flatten());
  seq->push_back("last", nn::Linear(4, 1));
  CHECK(seq->named_children().keys() == std::vector<std::string>{"0", "1", "2", "3", "last"});
  CHECK(seq->at<nn::LinearImpl>(0).options.out_features() == 4);
  CHECK(&seq->at<nn::Linear>(4) == seq->ptr(4)->as<nn::Linear>());
  CHECK_THROWS_AS(seq->at<nn::ReLU>(0), Error);
  CHECK_THROWS_AS(seq->at<nn::ReLU>(9), Error);
  const Tensor x = randn({2, 3});
  const auto& first = seq->at<nn::LinearImpl>(0);
  const auto& last = seq->at<nn::LinearImpl>(4);
  const Tensor expected =
      linear(relu(linear(x, first.weight, first.bias)) * 2, last.weight, last.bias);
  CHECK(seq(x).equal(expected));
  CHECK(seq->forward(x).equal(expected));

  nn::Sequential named({{"fc", nn::Linear(3, 2)}, {"act", nn::Tanh()}});
  CHECK(named->named_parameters().contains("fc.weight"));
  CHECK(named(x).sizes() == IntArrayRef({2, 2}));
  CHECK_THROWS_AS(nn::Sequential()(x), Error);
}

TEST_CASE(
    "a sequential's first module may take several arguments, and results need not be tensors") {
  struct Add : Module {
    Tensor forward(Tensor a, double b) { return a + b; }
  };
  struct Split : Module {
    std::vector<Tensor> forward(Tensor x) { return {x, x * 2}; }
  };
  nn::Sequential seq(std::make_shared<Add>(), std::make_shared<Split>());
  CHECK(seq->forward<std::vector<Tensor>>(tensor({1.0}), 2.0)[1].item<double>() == 6);
}

TEST_CASE("the modules of a sequential are called with their hooks") {
  nn::Sequential seq(nn::Linear(2, 2), nn::Tanh());
  std::vector<std::string> log;
  seq->ptr(0)->register_forward_hook(
      [&](Module&, const Args&, const Value&) { log.push_back("linear"); });
  seq->ptr(1)->register_forward_pre_hook([&](Module&, const Args&) { log.push_back("tanh"); });
  seq->forward(ones({1, 2}));
  CHECK(log == std::vector<std::string>{"linear", "tanh"});
}

TEST_CASE(
    "eager.H11: a clone has equal values, copies of the module's hooks, and none of the tensors' "
    "hooks") {
  Net net;
  int module_hook = 0, inner_hook = 0, tensor_hook = 0;
  const HookHandle handle = net->register_forward_hook(
      [&](Module&, const Args&, const Value&) { ++module_hook; }, {.name = "count"});
  net->first->register_forward_hook([&](Module&, const Args&, const Value&) { ++inner_hook; });
  net->first->weight.register_hook([&](const Tensor&) { ++tensor_hook; });
  net->eval();

  const GeneratorState before = default_generator().state();
  nn::Module& original = *net;
  Net copy(std::dynamic_pointer_cast<NetImpl>(original.clone()));
  CHECK(default_generator().state() == before);
  CHECK(!copy->is_training());
  CHECK(copy->first->weight.equal(net->first->weight));
  CHECK(!copy->first->weight.is_alias_of(net->first->weight));
  CHECK(copy->named_parameters()["first.weight"].is_same(copy->first->weight));
  CHECK(hooks_of(copy->first->weight).empty());
  REQUIRE(hooks_of(*copy).size() == 1);
  CHECK(hooks_of(*copy)[0].name == "count");

  copy(ones({1, 3})).sum().backward();
  CHECK(module_hook == 1);
  CHECK(inner_hook == 1);
  CHECK(tensor_hook == 0);
  CHECK(!net->first->weight.grad().defined());

  HookHandle(handle).remove();
  copy(ones({1, 3}));
  CHECK(module_hook == 2);
}

namespace {
/// Plain members, at two levels; `tie` makes the outer module hold a tensor of the inner one.
struct CountingImpl : nn::Cloneable<CountingImpl> {
  int seen = 0;
  std::string label;
  nn::Linear fc{nullptr};
  CountingImpl() { CountingImpl::reset(); }
  void reset() override { fc = register_module("fc", nn::Linear(2, 2)); }
  Tensor forward(const Tensor& x) { return fc(x) * (++seen); }
};
GRAPNEL_MODULE(Counting);
struct OuterImpl : nn::Cloneable<OuterImpl> {
  int own = 0;
  Counting inner{nullptr};
  OuterImpl() { OuterImpl::reset(); }
  void reset() override { inner = register_module("inner", Counting()); }
  Tensor forward(const Tensor& x) { return inner(x); }
};
GRAPNEL_MODULE(Outer);
struct TopImpl : nn::Cloneable<TopImpl> {
  bool tie;
  Outer outer{nullptr};
  Tensor tied;
  explicit TopImpl(bool tie_) : tie(tie_) { TopImpl::reset(); }
  void reset() override {
    outer = register_module("outer", Outer());
    if (tie) tied = outer->inner->fc->weight;
  }
};
}  // namespace

TEST_CASE("a clone keeps the plain members of submodules that reset() makes, at every depth") {
  auto top = std::make_shared<TopImpl>(false);
  top->outer->own = 7;
  top->outer->inner->seen = 123;
  top->outer->inner->label = "kept";
  const auto copy = std::dynamic_pointer_cast<TopImpl>(top->clone());
  CHECK(copy->outer->own == 7);
  CHECK(copy->outer->inner->seen == 123);
  CHECK(copy->outer->inner->label == "kept");
  CHECK(copy->outer.ptr() != top->outer.ptr());
  CHECK(copy->named_parameters()["outer.inner.fc.weight"].is_same(copy->outer->inner->fc->weight));
  CHECK(!copy->outer->inner->fc->weight.is_alias_of(top->outer->inner->fc->weight));
  CHECK(copy->outer->inner->fc->weight.equal(top->outer->inner->fc->weight));
  copy->outer->inner->seen = 0;
  CHECK(top->outer->inner->seen == 123);
}

TEST_CASE("a clone keeps tensors tied that reset() ties") {
  auto top = std::make_shared<TopImpl>(true);
  const auto copy = std::dynamic_pointer_cast<TopImpl>(top->clone());
  CHECK(copy->tied.is_same(copy->outer->inner->fc->weight));
  CHECK(copy->tied.is_same(copy->named_parameters()["outer.inner.fc.weight"]));
  CHECK(copy->tied.equal(top->tied));
  CHECK(!copy->tied.is_alias_of(top->tied));
}

TEST_CASE("the ends of an empty dictionary are errors") {
  OrderedDict<std::string, int> dict("Name");
  CHECK_THROWS_WITH_AS(dict.front(), doctest::Contains("empty dictionary"), Error);
  CHECK_THROWS_WITH_AS(dict.back(), doctest::Contains("empty dictionary"), Error);
  CHECK_THROWS_WITH_AS(dict[0], doctest::Contains("there is no item 0"), Error);
  dict.insert("a", 1);
  dict.insert("b", 2);
  CHECK((dict.front().value() == 1 && dict.back().value() == 2));
}

TEST_CASE(
    "a sequential is cloned with everything in it; a module without reset() says what to do") {
  nn::Sequential seq(nn::Linear(2, 2), nn::ReLU());
  auto copy = nn::Sequential(std::dynamic_pointer_cast<nn::SequentialImpl>(seq->clone()));
  const Tensor x = randn({3, 2});
  CHECK(copy(x).equal(seq(x)));
  {
    NoGradGuard no_grad;
    copy->at<nn::LinearImpl>(0).weight.zero_();
  }
  CHECK(!copy(x).equal(seq(x)));
  struct Plain : Module {};
  CHECK_THROWS_WITH_AS(Plain().clone(), doctest::Contains("nn::Cloneable"), Error);
}

TEST_CASE("modules print as a tree") {
  nn::Sequential net(
      {{"fc", nn::Linear(nn::LinearOptions(4, 3).bias(false))}, {"act", nn::ReLU()}});
  std::ostringstream out;
  out << net;
  CHECK(out.str() ==
        "grapnel::nn::Sequential(\n"
        "  (fc): grapnel::nn::Linear(in_features=4, out_features=3, bias=false)\n"
        "  (act): grapnel::nn::ReLU()\n"
        ")");
}

TEST_CASE("holders share their module; empty ones say so") {
  nn::Linear a(2, 2), b = a, empty{nullptr};
  CHECK(&*a == &*b);
  CHECK(!empty);
  CHECK_THROWS_WITH_AS(empty(ones({1, 2})), doctest::Contains("the module holder is empty"), Error);
  empty = a;
  CHECK(empty->weight.is_same(a->weight));
}

TEST_CASE("registration refuses what cannot work") {
  struct Odd : Module {
  } m;
  m.register_parameter("w", zeros({1}));
  CHECK_THROWS_AS(m.register_parameter("w", zeros({1})), Error);
  CHECK_THROWS_AS(m.register_parameter("a.b", zeros({1})), Error);
  CHECK_THROWS_AS(m.register_parameter("", zeros({1})), Error);
  CHECK_THROWS_AS(m.register_parameter("n", zeros({1}, kInt64)), Error);
  CHECK_THROWS_AS(m.register_parameter("r", zeros({1}, requires_grad()) * 2), Error);
  m.register_parameter("frozen", zeros({1}), false);
  CHECK(!m.named_parameters()["frozen"].requires_grad());
  m.register_parameter("absent", Tensor());
  CHECK(m.parameters().size() == 2);
  CHECK_THROWS_AS(m.unregister_module("x"), Error);
}

TEST_CASE("a module cannot be registered inside itself, directly or by way of others") {
  struct Box : Module {};
  const auto a = std::make_shared<Box>(), b = std::make_shared<Box>(), c = std::make_shared<Box>();
  CHECK_THROWS_WITH_AS(a->register_module("self", a), doctest::Contains("cannot be inside itself"),
                       Error);
  a->register_module("b", b);
  b->register_module("c", c);
  CHECK_THROWS_WITH_AS(c->register_module("top", a), doctest::Contains("cannot be inside itself"),
                       Error);
  CHECK_THROWS_AS(c->replace_module("top", a), Error);
  CHECK(c->children().empty());
  CHECK(a->modules().size() == 3);
  // Shared, but not in a circle.
  a->register_module("again", c);
  CHECK(a->modules().size() == 3);
}
