/// Saving and loading of modules: section 5.3 of the hook semantics, O1 to O3.
#include <doctest/doctest.h>

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/nn.h"
#include "tests/ops/error_text.h"

using namespace grapnel;
using nn::IncompatibleKeys;
using nn::LoadContext;
using nn::Metadata;
using nn::Module;
using nn::StateDict;

namespace {

struct Net : Module {
  nn::Linear fc{nullptr};
  Tensor steps, scratch;
  Net() {
    fc = register_module("fc", nn::Linear(2, 3));
    steps = register_buffer("steps", zeros({1}));
    scratch = register_buffer("scratch", zeros({1}), false);
  }
};

}  // namespace

TEST_CASE(
    "a state dict holds parameters and persistent buffers, shares their memory, and loads into an "
    "equal module") {
  Net a, b;
  StateDict dict = a.state_dict();
  CHECK(dict.keys() == std::vector<std::string>{"steps", "fc.weight", "fc.bias"});
  CHECK(dict["fc.weight"].is_alias_of(a.fc->weight));
  CHECK(!dict["fc.weight"].requires_grad());
  CHECK(a.state_dict("", true)["fc.weight"].is_same(a.fc->weight));
  CHECK(dict.metadata.at("fc").at("version").to<int>() == 1);
  CHECK(!b.fc->weight.equal(a.fc->weight));
  const IncompatibleKeys keys = b.load_state_dict(dict);
  CHECK(keys.missing_keys.empty());
  CHECK(b.fc->weight.equal(a.fc->weight));
  CHECK(!b.fc->weight.is_alias_of(a.fc->weight));
  CHECK(b.fc->weight.requires_grad());
}

TEST_CASE("loading lists missing, unexpected and mismatched entries, and changes nothing") {
  Net a, b;
  const Tensor bias = b.fc->bias.detach().clone();
  StateDict dict = a.state_dict();
  dict.set("fc.weight", zeros({3, 9}));
  dict.erase("steps");
  dict.insert("fc.extra", zeros({1}));
  dict.insert("gate.weight", zeros({1}));
  try {
    b.load_state_dict(dict);
    FAIL("expected an error");
  } catch (const Error& e) {
    const std::string text = e.what();
    CHECK(text.find("missing: 'steps'") != std::string::npos);
    CHECK(text.find("unexpected: 'gate.weight', 'fc.extra'") != std::string::npos);
    CHECK(text.find("mismatched: 'fc.weight' has shape [3, 9], the module expects [3, 2]") !=
          std::string::npos);
    CHECK(text.find("false") == std::string::npos);  // shapes have to fit in any case
  }
  CHECK(b.fc->bias.equal(bias));

  dict.set("fc.weight", a.fc->weight);
  CHECK(error_text([&] {
          b.load_state_dict(dict);
        }).ends_with("load_state_dict(state, false) loads what has a place and leaves the rest."));
  const IncompatibleKeys keys = b.load_state_dict(dict, false);
  CHECK(keys.missing_keys == std::vector<std::string>{"steps"});
  CHECK(keys.unexpected_keys == std::vector<std::string>{"gate.weight", "fc.extra"});
  CHECK(b.fc->bias.equal(a.fc->bias));
}

TEST_CASE(
    "eager.O1: saving calls pre-hooks, own entries, children, then post-hooks, which edit the dict "
    "in place") {
  Net net;
  std::vector<std::string> log;
  net.register_state_dict_pre_hook([&](Module&, const std::string& prefix, bool keep_vars) {
    log.push_back(str("pre '", prefix, "' ", keep_vars));
  });
  net.fc->register_state_dict_pre_hook([&](Module&, const std::string& prefix, bool) {
    log.push_back(str("fc pre '", prefix, "'"));
  });
  net.fc->register_state_dict_post_hook(
      [&](Module&, StateDict& dict, const std::string& prefix, Metadata& metadata) {
        log.push_back(str("fc post ", dict.size()));
        dict.erase(prefix + "bias");
        metadata["pruned"] = true;
      });
  net.register_state_dict_post_hook([&](Module&, StateDict& dict, const std::string&, Metadata&) {
    log.push_back(str("post ", dict.size()));
    dict.insert("note", ones({1}));
  });
  const StateDict dict = net.state_dict();
  CHECK(log == std::vector<std::string>{"pre '' 0", "fc pre 'fc.'", "fc post 3", "post 2"});
  CHECK(dict.keys() == std::vector<std::string>{"steps", "fc.weight", "note"});
  CHECK(dict.metadata.at("fc").at("pruned").to<bool>());
}

TEST_CASE("eager.O1: a hook on saving or loading that returns something does not compile") {
  const auto replaces = [](Module&, IncompatibleKeys& keys) { return keys; };
  const auto edits = [](Module&, IncompatibleKeys& keys) { keys = {}; };
  // What registration asserts.
  CHECK(!nn::detail::ReturnsNothing<decltype(replaces), Module&, IncompatibleKeys&>);
  CHECK(nn::detail::ReturnsNothing<decltype(edits), Module&, IncompatibleKeys&>);
}

TEST_CASE(
    "eager.O2: loading calls pre-hooks, which may rename entries, own entries, children, then "
    "post-hooks") {
  Net a, b;
  StateDict dict = a.state_dict();
  dict.insert("linear.weight", dict["fc.weight"]);
  dict.erase("fc.weight");
  std::vector<std::string> log;
  b.register_load_state_dict_pre_hook([&](Module&, LoadContext& load) {
    log.push_back(str("pre ", load.strict, " ", load.metadata.at("version").to<int>()));
    load.state_dict.insert("fc.weight", load.state_dict["linear.weight"]);
    load.state_dict.erase("linear.weight");
  });
  b.fc->register_load_state_dict_pre_hook(
      [&](Module&, LoadContext& load) { log.push_back("fc pre " + load.prefix); });
  b.fc->register_load_state_dict_post_hook([&](Module&, IncompatibleKeys&) {
    log.push_back(str("fc post, loaded ", b.fc->weight.equal(a.fc->weight)));
  });
  b.register_load_state_dict_post_hook([&](Module&, IncompatibleKeys&) { log.push_back("post"); });
  b.load_state_dict(dict);
  CHECK(log == std::vector<std::string>{"pre 1 1", "fc pre fc.", "fc post, loaded 1", "post"});
  CHECK(!dict.contains("fc.weight"));
}

TEST_CASE("eager.O2: post-hooks edit the key lists, which decides strict failure") {
  Net a, b;
  StateDict dict = a.state_dict();
  auto adds = b.register_load_state_dict_post_hook([](Module&, IncompatibleKeys& keys) {
    keys.missing_keys.push_back("foo");
    keys.unexpected_keys.push_back("bar");
  });
  CHECK_THROWS_WITH_AS(b.load_state_dict(dict), doctest::Contains("missing: 'foo'"), Error);
  CHECK_THROWS_WITH_AS(b.load_state_dict(dict), doctest::Contains("unexpected: 'bar'"), Error);
  CHECK(b.load_state_dict(dict, false).missing_keys == std::vector<std::string>{"foo"});
  b.register_load_state_dict_post_hook([](Module&, IncompatibleKeys& keys) { keys = {}; });
  dict.erase("steps");
  CHECK_NOTHROW(b.load_state_dict(dict));
}

TEST_CASE(
    "eager.O2: a pre-hook may report errors, and a hook that throws leaves the module as it was") {
  Net a, b;
  const Tensor before = b.fc->weight.detach().clone();
  auto h = b.fc->register_load_state_dict_pre_hook(
      [](Module&, LoadContext& load) { load.errors.push_back("too old"); });
  CHECK_THROWS_WITH_AS(b.load_state_dict(a.state_dict()), doctest::Contains("too old"), Error);
  CHECK(b.fc->weight.equal(before));
  h.remove();
  b.register_load_state_dict_post_hook(
      [](Module&, IncompatibleKeys&) { throw std::domain_error("no"); });
  CHECK_THROWS_AS(b.load_state_dict(a.state_dict()), std::domain_error);
  CHECK(b.fc->weight.equal(before));
}

TEST_CASE("eager.O3: hooks do not keep their module alive; handles of a dead module do nothing") {
  HookHandle handle;
  std::weak_ptr<Module> watch;
  {
    auto net = std::make_shared<Net>();
    watch = net;
    handle = net->register_load_state_dict_pre_hook([](Module&, LoadContext&) {});
    CHECK(handle.active());
  }
  CHECK(watch.expired());
  CHECK(!handle.active());
  handle.remove();
}
