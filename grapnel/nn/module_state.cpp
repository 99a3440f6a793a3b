/// Saving and loading of modules.
#include <algorithm>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/nn/module.h"

namespace grapnel::nn {

namespace {

template <class Hook, class... A>
void run_hooks(const HookList<Hook>& list, HookKind kind, Module& module, A&... args) {
  call_hooks(list, kind, &typeid(module), [&](const Hook& hook) { hook.call(module, args...); });
}

std::string path_of(const std::string& prefix) {
  return prefix.empty() ? prefix : prefix.substr(0, prefix.size() - 1);
}

std::string quoted(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "'" : ", '") + name + "'";
  return out;
}

}  // namespace

StateDict Module::state_dict(const std::string& prefix, bool keep_vars) {
  StateDict out;
  save_to(out, prefix, keep_vars);
  return out;
}

void Module::save_to(StateDict& out, const std::string& prefix, bool keep_vars) {
  out.metadata[path_of(prefix)]["version"] = int64_t{1};
  run_hooks(hooks_.state_dict_pre, HookKind::state_dict_pre, *this, prefix, keep_vars);
  const auto put = [&](const NamedTensors& tensors) {
    for (const auto& item : tensors) {
      if (!item->defined() || std::ranges::count(transient_buffers_, item.key())) continue;
      out.set(prefix + item.key(), keep_vars ? *item : item->detach());
    }
  };
  put(parameters_);
  put(buffers_);
  for (auto& child : children_) child.value()->save_to(out, prefix + child.key() + ".", keep_vars);
  run_hooks(hooks_.state_dict_post, HookKind::state_dict_post, *this, out, prefix,
            out.metadata[path_of(prefix)]);
}

/// One load under way. Values are copied as the walk goes, so that post-hooks see them, and put
/// back if it fails.
struct Module::Loading {
  StateDict dict;  ///< a copy, for pre-hooks to change
  bool strict;
  IncompatibleKeys keys = {};
  std::vector<std::string> errors = {};
  std::vector<std::pair<Tensor, Tensor>> before = {};

  void copy(const Tensor& target, const Tensor& source) {
    NoGradGuard no_grad;
    before.emplace_back(target, target.detach().clone());
    target.detach().copy_(source.detach());
  }
  void roll_back() {
    NoGradGuard no_grad;
    for (auto it = before.rbegin(); it != before.rend(); ++it) it->first.detach().copy_(it->second);
  }
};

void Module::load_from(Loading& loading, const std::string& prefix) {
  static const Metadata& none = *new Metadata;
  const auto known = loading.dict.metadata.find(path_of(prefix));
  const Metadata metadata = known == loading.dict.metadata.end() ? none : known->second;
  LoadContext context{loading.dict,
                      prefix,
                      metadata,
                      loading.strict,
                      loading.keys.missing_keys,
                      loading.keys.unexpected_keys,
                      loading.errors};
  run_hooks(hooks_.load_pre, HookKind::load_state_dict_pre, *this, context);

  const auto take = [&](const NamedTensors& tensors) {
    for (const auto& item : tensors) {
      if (!item->defined() || std::ranges::count(transient_buffers_, item.key())) continue;
      const std::string key = prefix + item.key();
      const Tensor* source = loading.dict.find(key);
      if (!source) {
        loading.keys.missing_keys.push_back(key);
      } else if (!source->defined() || !(source->shape() == item->shape())) {
        const std::string what =
            source->defined() ? str("has shape ", source->shape()) : "is undefined";
        loading.errors.push_back(str("'", key, "' ", what, ", the module expects ", item->shape()));
      } else {
        loading.copy(*item, *source);
      }
    }
  };
  take(parameters_);
  take(buffers_);
  for (const auto& item : loading.dict) {
    if (!item.key().starts_with(prefix)) continue;
    const std::string rest = item.key().substr(prefix.size());
    const size_t dot = rest.find('.');
    const bool expected =
        dot != std::string::npos
            ? children_.contains(rest.substr(0, dot))
            : parameters_.contains(rest) ||
                  (buffers_.contains(rest) && !std::ranges::count(transient_buffers_, rest));
    if (!expected) loading.keys.unexpected_keys.push_back(item.key());
  }
  for (auto& child : children_) child.value()->load_from(loading, prefix + child.key() + ".");
  run_hooks(hooks_.load_post, HookKind::load_state_dict_post, *this, loading.keys);
}

IncompatibleKeys Module::load_state_dict(const StateDict& state_dict, bool strict) {
  Loading loading{state_dict, strict};
  try {
    load_from(loading, "");
    std::vector<std::string> problems;
    if (strict && !loading.keys.missing_keys.empty())
      problems.push_back("missing: " + quoted(loading.keys.missing_keys));
    if (strict && !loading.keys.unexpected_keys.empty())
      problems.push_back("unexpected: " + quoted(loading.keys.unexpected_keys));
    for (const std::string& error : loading.errors) problems.push_back("mismatched: " + error);
    if (!problems.empty()) {
      std::string text;
      for (const std::string& problem : problems) text += "\n  " + problem;
      fail("load_state_dict: the entries do not fit ", name(), "; nothing was changed.", text,
           // Shapes have to fit either way.
           strict && loading.errors.empty()
               ? "\nload_state_dict(state, false) loads what has a place and leaves the rest."
               : "");
    }
  } catch (...) {
    loading.roll_back();
    throw;
  }
  return std::move(loading.keys);
}

}  // namespace grapnel::nn
