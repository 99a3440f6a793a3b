#include "grapnel/hooks/nan_guard.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/op_node.h"
#include "grapnel/autograd/tape_observer.h"
#include "grapnel/autograd/visit.h"
#include "grapnel/base/rank.h"
#include "grapnel/functions/functions.h"
#include "grapnel/hooks/layout.h"
#include "grapnel/ops/record.h"

namespace grapnel::hooks {

std::string NanGuard::Report::str(const std::string& rank) const {
  std::string out = "a NaN or an infinity ";
  if (phase == "parameter") out += "was in the parameter " + op + " before the step";
  else if (phase == "argument") out += "was in an argument of " + op;
  else if (phase == "hook") out += "was born " + op;
  else out += "was born in the " + phase + " of " + op;
  if (!where.empty()) out += ", called at " + where;
  if (!layer.empty()) out += ", in layer '" + layer + "'";
  if (!rank.empty()) out += " [" + rank + "]";
  return out + ".";
}

class NanGuard::Impl : public TapeObserver, public std::enable_shared_from_this<Impl> {
 public:
  Impl(nn::Module& module, NanGuardOptions options) : options_(std::move(options)) {
    module.apply([&](const std::string& path, nn::Module& m) {
      // Which layer an op belongs to is known while the layer is being called.
      handles_.push_back(m.register_forward_pre_hook(
          [this, path](nn::Module& called, const nn::Args& args) {
            if (layers_.empty()) watch_arguments(called, args);
            layers_.push_back(path);
          },
          {.name = "NaN guard"}));
      handles_.push_back(m.register_forward_hook(
          [this, path](nn::Module&, const nn::Args&, const nn::Value&) {
            // Not if a hook before the one above threw, so that it was not called.
            if (!layers_.empty() && layers_.back() == path) layers_.pop_back();
          },
          {.name = "NaN guard", .always_call = true}));
    });
  }
  ~Impl() override {
    for (HookHandle& h : handles_) h.remove();
  }

  void on_op(Node& node, std::span<const Tensor> outputs) override {
    const auto place = std::make_shared<const Place>(
        Place{node.name(), node.site(), layers_.empty() ? std::string() : layers_.back()});
    // Nothing is born where nothing is computed.
    const auto* op = dynamic_cast<const OpNode*>(&node);
    if (!op || op->op().family != Family::view)
      for (const Tensor& t : outputs) watch(t, "forward", place);
    if (!options_.gradients) return;
    auto look = [weak = weak_from_this(), place](const variable_list& grad_inputs,
                                                 const variable_list& grad_outputs) {
      const auto self = weak.lock();
      if (!self) return;
      const auto is_old = [&](const Tensor& g) {
        return std::ranges::any_of(
            grad_outputs, [&](const Tensor& o) { return o.defined() && o.is_alias_of(g); });
      };
      for (const Tensor& g : grad_inputs)
        if (g.defined() && !is_old(g)) self->watch(g, "backward", place);
    };
    node.make_hooks()->add(HookKind::node_post, 0,
                           std::make_shared<CallableNodePostHook<decltype(look)>>(std::move(look)),
                           HookOptions{.name = "NaN guard", .site = {}},
                           /*is_tool=*/true);
  }

  void on_hook(const HookLabel& label, HookKind kind, const Node& node,
               const Tensor& result) override {
    if (options_.gradients)
      watch(result, "hook",
            std::make_shared<const Place>(
                Place{visit::hook_at(label, kind, node), node.site(), std::string()}));
  }

  std::optional<Report> find() {
    std::vector<Entry> entries;
    {
      const std::lock_guard lock(mutex_);
      entries.swap(entries_);
    }
    if (entries.empty()) return std::nullopt;
    const NoGradGuard no_grad;
    const TapeObserver::Pause pause;
    for (const Entry& e : entries)
      // What is not computed in the end was not born.
      if (!record::is_lost(e.sum) && std::isnan(e.sum.item<double>()))
        return Report{e.phase, e.place->op, e.place->site ? base::describe({e.place->site}) : "",
                      e.place->layer};
    return std::nullopt;
  }
  std::string rank() const {
    return options_.rank.empty() ? base::this_rank().str() : options_.rank;
  }

 private:
  struct Place {
    std::string op;
    const void* site;
    std::string layer;
  };
  struct Entry {
    const char* phase;
    std::shared_ptr<const Place> place;
    Tensor sum;  ///< 0, or NaN if something was not finite
  };

  void watch(const Tensor& t, const char* phase, std::shared_ptr<const Place> place) {
    if (!t.defined() || !t.is_floating_point() || t.numel() == 0) return;
    const TapeObserver::Pause pause;
    const NoGradGuard no_grad;
    // x - x is 0 for a number and NaN for anything else, and a sum forgets no NaN: one pass at the
    // speed of memory.
    const Tensor x = in_memory_order(t);
    Tensor sum = (x - x).sum();
    const std::lock_guard lock(mutex_);
    entries_.push_back({phase, std::move(place), std::move(sum)});
  }

  void watch_arguments(nn::Module& module, const nn::Args& args) {
    const auto parameters = module.named_parameters();
    const auto place = [](std::string what) {
      return std::make_shared<const Place>(Place{std::move(what), nullptr, {}});
    };
    for (const auto& p : parameters) watch(p.value(), "parameter", place(p.key()));
    for (nn::Value arg : args)
      arg.visit_tensors([&](Tensor& t) { watch(t, "argument", place(module.name())); });
  }

  NanGuardOptions options_;
  std::vector<HookHandle> handles_;
  std::vector<std::string> layers_;
  std::mutex mutex_;  // A backward pass may run on another thread.
  std::vector<Entry> entries_;
};

NanGuard::NanGuard(nn::Module& module, const NanGuardOptions& options)
    : impl_(std::make_shared<Impl>(module, options)) {
  TapeObserver::add(impl_);
}
NanGuard::~NanGuard() = default;

std::optional<NanGuard::Report> NanGuard::find() { return impl_->find(); }
void NanGuard::check() {
  if (const auto report = find()) fail(report->str(impl_->rank()));
}

}  // namespace grapnel::hooks
