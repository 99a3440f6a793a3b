/// Random graphs with random hooks, reproducible from a seed. Everything a hook sees or does
/// becomes an event, and the list of events, with the bits of every argument, must be the same
/// however the program is run.
///
/// What a program decides, it decides by its seed and by how often a hook fired, never by the mode
/// it is run in. Opaque hooks are called in order with all other hooks, but maybe later than the
/// code around a pass; so what the program itself notes stands in a list of its own.
#pragma once

#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/compile/modes.h"

namespace grapnel {

/// How the passes of a program are run. `forward` and `backward` wrap the two halves of a step;
/// `step` wraps both.
struct HookProgramMode {
  std::string name;
  bool capture = false, compiled_backward = false, whole_step = false;
  CompileOptions options;
};

struct HookEvent {
  std::string what;
  variable_list values;
};

/// Events of one pass. A pass that threw has events but no values: a recorded one computed nothing.
struct HookPass {
  std::vector<HookEvent> events, results;
  std::string error;
};

class HookProgram {
 public:
  HookProgram(uint64_t seed, const HookProgramMode& mode) : own_rng_(seed), mode_(mode) {}

  std::vector<HookPass> run() {
    manual_seed(7);
    make_leaves();
    const size_t passes = 1 + pick(3);
    for (size_t i = 0; i < passes; ++i) run_pass();
    return std::move(passes_);
  }

 private:
  struct Hook {
    uint64_t deed = 0, detail = 0;
    size_t calls = 0;
    HookHandle handle;
    bool opaque = false;
    Tensor captured;
    std::shared_ptr<Lifted> lifted;
    std::mt19937_64 rng;
  };
  /// What one pass will do, drawn before it starts.
  struct Plan {
    uint64_t form, input, other;
    bool retain, again;
  };
  /// While it lives, decisions are those of one hook.
  struct AsHook {
    HookProgram& program;
    std::mt19937_64* const outer;
    AsHook(HookProgram& p, size_t id)
        : program(p), outer(std::exchange(p.rng_, &p.hooks_[id].rng)) {}
    ~AsHook() { program.rng_ = outer; }
  };
  struct Thrown : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  uint64_t draw() { return (*rng_)(); }
  uint64_t pick(uint64_t n) { return draw() % n; }
  bool chance(uint64_t one_in) { return pick(one_in) == 0; }

  // --- the log ---

  static HookEvent event(std::string what, const variable_list& values, bool copy) {
    NoGradGuard no_grad;
    HookEvent event{std::move(what), {}};
    for (const Tensor& t : values)
      event.values.push_back(!t.defined() || !copy ? t : t.detach().clone());
    return event;
  }
  void note(std::string what, const variable_list& values = {}, bool copy = true) {
    passes_.back().events.push_back(event(std::move(what), values, copy));
  }
  void note_result(std::string what, const variable_list& values) {
    passes_.back().results.push_back(event(std::move(what), values, true));
  }
  bool is_long() const { return passes_.back().events.size() > 300; }

  // --- graphs ---

  void make_leaves() {
    // Made here and not where hooks are registered: what a step that fails has recorded is never
    // computed.
    for (int i = 0; i < 5; ++i) constants_.push_back(full({}, i - 1.5, kFloat32));
    const Shape shapes[] = {{}, {3}, {2, 3}, {2, 1}, {1, 3}, {3, 2}};
    const DType types[] = {kFloat32, kFloat32, kFloat32, kFloat64, kBFloat16};
    const size_t count = 2 + pick(3);
    Generator draws(draw());
    for (size_t i = 0; i < count; ++i) {
      const Shape& shape = shapes[pick(std::size(shapes))];
      leaves_.push_back(randn(shape, draws).to(types[pick(std::size(types))]).requires_grad_());
      values_.push_back(leaves_.back().detach().clone());
    }
    for (size_t i = pick(4); i > 0; --i) add_hook(leaves_[pick(leaves_.size())]);
  }

  Tensor from_pool() { return pool_[pick(pool_.size())]; }

  Tensor combine(const Tensor& a, const Tensor& b) {
    switch (pick(4)) {
      case 0: return a * b;
      case 1: return a - b;
      case 2: return maximum(a, b);
      default: return a + b;
    }
  }
  Tensor unary(const Tensor& a) {
    switch (pick(10)) {
      case 0: return a.sin();
      case 1: return a.tanh();
      case 2: return a.relu();
      case 3: return a * 1.5;
      case 4: return a.square();
      case 5: return sigmoid(a);
      case 6: return a.exp().clamp(0.0, 4.0);
      case 7: return Squared::apply(a);
      case 8: return a.to(kFloat32);
      default: return -a;
    }
  }
  Tensor reshaped(const Tensor& a) {
    if (a.dim() == 0) return a.expand({2});
    switch (pick(6)) {
      case 0: return a.transpose(0, -1);
      case 1: return a.sum({0});
      case 2: return a.reshape({-1});
      case 3: return a.mean();
      case 4: return a.slice(0, 0, {}, 2);
      default:
        return a.dim() == 2 ? a.to(kFloat32).matmul(a.to(kFloat32).transpose(0, 1))
                            : a.unsqueeze(0);
    }
  }
  struct Squared : autograd::Function<Squared> {
    static Tensor forward(autograd::AutogradContext* ctx, Tensor x) {
      ctx->save_for_backward({x});
      ctx->saved_data["two"] = 2.0;
      return x * x;
    }
    static variable_list backward(autograd::AutogradContext* ctx, variable_list grads) {
      return {grads[0] * ctx->saved_data["two"].toDouble() * ctx->get_saved_variables()[0]};
    }
  };

  static bool fits(const Tensor& a, const Tensor& b) {
    for (int64_t i = 1; i <= std::min(a.dim(), b.dim()); ++i)
      if (a.size(-i) != b.size(-i) && a.size(-i) != 1 && b.size(-i) != 1) return false;
    return true;
  }

  void forward() {
    pool_ = leaves_;
    const size_t steps = 2 + pick(8);
    for (size_t i = 0; i < steps; ++i) {
      const Tensor a = from_pool();
      switch (pick(8)) {
        case 0:
        case 1: pool_.push_back(unary(a)); break;
        case 2: pool_.push_back(reshaped(a)); break;
        case 3: {
          autograd::SavedTensorHooks hooks(
              [this](const Tensor& t) {
                note("pack", {t});
                return t.clone();
              },
              [this](const Tensor& t) {
                note("unpack", {t});
                return t;
              });
          pool_.push_back(unary(a));
          break;
        }
        case 4: {
          Tensor changed = a * 2;
          changed.add_(changed.detach());
          if (chance(2)) changed.mul_(0.5);
          pool_.push_back(changed);
          break;
        }
        default: {
          const Tensor b = from_pool();
          pool_.push_back(fits(a, b) ? combine(a, b) : unary(a));
        }
      }
      if (chance(2)) add_hook(from_pool());
      if (chance(6)) pool_.back().retain_grad();
    }
    if (chance(4)) add_multi_hook();
  }

  Tensor loss() {
    Tensor total;
    for (size_t i = leaves_.size(); i < pool_.size(); ++i)
      if (i + 1 == pool_.size() || pick(2))
        total = total.defined() ? total + pool_[i].to(kFloat32).sum() : pool_[i].to(kFloat32).sum();
    return total;
  }

  // --- hooks ---

  void add_hook(const Tensor& t) {
    if (hooks_.size() > 60) return;
    const size_t id = hooks_.size();
    hooks_.push_back({});
    hooks_[id].deed = pick(24);
    hooks_[id].detail = draw();
    hooks_[id].rng.seed(draw());
    hooks_[id].captured = constants_[pick(constants_.size())];
    hooks_[id].lifted = std::make_shared<Lifted>(static_cast<double>(pick(5)));
    hooks_[id].handle = attach(t, id);
  }

  HookHandle attach(const Tensor& t, size_t id) {
    const std::string name = str("h", id);
    auto one = [this, id](const Tensor& g) { return fire(id, "tensor", g); };
    switch (pick(t.is_leaf() ? 9 : 7)) {
      case 0: hooks_[id].opaque = true; return t.register_hook(opaque(one), {name});
      case 1:
        return t.is_leaf()
                   ? t.register_hook(one, {name})
                   : t.grad_fn()->register_prehook(
                         [this, id](const variable_list& g) { return fire_list(id, "pre", g, {}); },
                         {name});
      case 2:
        return t.is_leaf() ? t.register_hook(one, {name})
                           : t.grad_fn()->register_hook(
                                 [this, id](const variable_list& in, const variable_list& out) {
                                   return fire_list(id, "post", in, out);
                                 },
                                 {name});
      case 3:
        return t.register_hook(Declared{hooks_[id].lifted, static_cast<int>(hooks_[id].detail % 3)},
                               {name});
      case 7:
      case 8:
        return chance(8)
                   ? t.register_post_accumulate_grad_hook(opaque([this, id](const Tensor& leaf) {
                                                            note(str("opaque ", id), {leaf.grad()});
                                                          }),
                                                          {name})
                   : t.register_post_accumulate_grad_hook(
                         [this, id](const Tensor& leaf) { fire_leaf(id, leaf); }, {name});
      default: return t.register_hook(one, {name});
    }
  }

  /// A hook without side effects, which recordings need not call.
  struct Declared {
    std::shared_ptr<Lifted> factor;
    int form;
    void compiled_args(CompiledNodeArgs& args) const {
      args.declare("fuzz", form);
      args.lift(*factor);
    }
    Tensor operator()(const Tensor& g) const {
      if (!g.defined()) return g;
      switch (form) {
        case 0: return g * *factor;
        case 1: return (g + *factor).tanh();
        default: return where(g > 0, g, zeros_like(g)) * (Tensor(*factor) + 1).to(g.dtype());
      }
    }
  };

  void add_multi_hook() {
    const size_t id = hooks_.size();
    hooks_.push_back({});
    variable_list tensors;
    for (size_t i = 0; i < 3; ++i) tensors.push_back(from_pool());
    if (chance(2))
      hooks_[id].handle = register_multi_grad_hook(
          tensors, [this, id](const variable_list& g) { note(str("all ", id), g); },
          MultiGrad::all);
    else
      hooks_[id].handle = register_multi_grad_hook(
          tensors, [this, id](const Tensor& g) { note(str("any ", id), {g}); }, MultiGrad::any);
  }

  Tensor fire(size_t id, const char* kind, const Tensor& g) {
    const uint64_t detail = hooks_[id].detail;
    // A pass that failed may or may not have got to an opaque call.
    const size_t call = hooks_[id].opaque ? passes_.size() : hooks_[id].calls++;
    if (hooks_[id].opaque) kind = "opaque";
    if (detail % 4 == 0) note(str(kind, " ", id));
    else note(str(kind, " ", id), {g}, detail % 7 != 0);  // a copy, or the very tensor
    if (!g.defined() || is_long()) return {};
    const AsHook as_hook(*this, id);
    // Code that runs with the graph can neither change what the walk that recorded it has seen, nor
    // draw in its turn. Nor can it leave a gradient with its history: its result is another tensor,
    // always.
    constexpr uint64_t harmless[] = {0, 1, 2, 6, 7, 8, 18};
    switch (hooks_[id].opaque ? harmless[hooks_[id].deed % std::size(harmless)] : hooks_[id].deed) {
      case 0: return g * 2;
      case 1: return g + hooks_[id].captured.to(g.dtype());
      case 2: return call % 2 ? g * g : g + g;
      case 3: hooks_[id].handle.remove(); return g * 3;
      case 4: hooks_[detail % hooks_.size()].handle.remove(); return {};
      case 5: add_hook(pool_[detail % pool_.size()]); return g - 1;
      case 6:
        if (call == detail % 3)
          throw Thrown(str(hooks_[id].opaque ? "opaque" : "", "hook ", id, " threw"));
        return hooks_[id].opaque ? g * 2 : Tensor();
      case 7: return g.sum().item<double>() > 0 ? g * 2 : -g;
      case 8: return g.clone();
      case 9: {
        AutoGradMode recording(true);
        Tensor x = full({2}, 3.0, requires_grad());
        (x * x).sum().backward();
        note("nested", {x.grad()});
        return g * x.grad().sum().to(g.dtype());
      }
      case 10: return g * rand({}).to(g.dtype());
      case 11: return g;
      case 12: return g.reshape({-1}).reshape(g.sizes());
      case 13: autograd::queue_callback([this, id] { note(str("callback ", id)); }); return {};
      case 14:
        return detail % 5 ? g.clamp(-1.0, 1.0) : g.unsqueeze(0);  // of the wrong shape now and then
      case 15: kept_.push_back(g); return {};
      case 16: return kept_.empty() || !fits_exactly(kept_.back(), g) ? g : g + kept_.back();
      case 17:
        hooks_.back().handle.remove();
        add_hook(leaves_[detail % leaves_.size()]);
        return {};
      case 18: return g.sum() * g;
      case 19: return g.expand(g.sizes());
      default: return {};
    }
  }
  static bool fits_exactly(const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && a.dtype() == b.dtype();
  }

  std::optional<variable_list> fire_list(size_t id, const char* kind, const variable_list& first,
                                         const variable_list& second) {
    variable_list all = first;
    all.insert(all.end(), second.begin(), second.end());
    note(str(kind, " list ", id), all);
    for (size_t i = 0; i < first.size(); ++i) {
      if (!first[i].defined()) continue;
      const Tensor result = fire(id, kind, first[i]);
      if (!result.defined()) return std::nullopt;
      variable_list changed = first;
      changed[i] = result;
      return changed;
    }
    return std::nullopt;
  }

  void fire_leaf(size_t id, const Tensor& leaf) {
    Hook& h = hooks_[id];
    const size_t call = h.calls++;
    note(str("leaf ", id), {leaf, leaf.grad()});
    if (is_long()) return;
    const AsHook as_hook(*this, id);
    NoGradGuard no_grad;
    const Tensor grad = leaf.grad();
    Tensor target = leaf;
    switch (grad.defined() ? h.deed % 9 : 8) {
      case 0: target.mutable_grad().mul_(2.0); break;
      case 1: target.sub_(grad * 0.125); break;
      case 2: leaf.set_grad(grad / 4.0); break;
      case 3:
        target.sub_(grad * 0.25);
        leaf.reset_grad();
        break;
      case 4:
        if (call == h.detail % 3) throw Thrown(str("leaf hook ", id, " threw"));
        break;
      case 5:
        if (grad.sum().item<double>() > 0) target.mutable_grad().zero_();
        break;
      case 6: kept_.push_back(grad); break;
      case 7: hooks_[h.detail % hooks_.size()].handle.remove(); break;
      default: break;
    }
  }

  // --- passes ---

  Plan make_plan() { return {pick(7), draw(), draw(), chance(3), chance(2)}; }

  void backward(const Tensor& total, const Plan& plan) {
    const variable_list inputs{leaves_[plan.input % leaves_.size()],
                               pool_[plan.other % pool_.size()]};
    switch (plan.form) {
      case 0:
        for (const Tensor& g : autograd::grad({total}, inputs, {}, plan.retain, false, true))
          note_result("grad", {g});
        break;
      case 1: total.backward({}, plan.retain, false, inputs); break;
      case 2: {
        const variable_list first = autograd::grad({total}, leaves_, {}, true, true, true);
        Tensor sum;
        for (const Tensor& g : first)
          if (g.defined() && g.requires_grad())
            sum = sum.defined() ? sum + g.to(kFloat32).sum() : g.to(kFloat32).sum();
        for (const Tensor& g : first) note_result("first order", {g});
        if (sum.defined()) sum.backward();
        break;
      }
      case 3: total.backward(full({}, 0.5), plan.retain); break;
      default: total.backward({}, plan.retain);
    }
    if (plan.retain && plan.again && plan.form != 2) total.backward();
  }

  void run_pass() {
    passes_.emplace_back();
    for (Hook& h : hooks_)
      if (h.lifted) *h.lifted = static_cast<double>(pick(7)) - 2.0;
    if (chance(2))
      for (const Tensor& x : leaves_) x.reset_grad();
    const Plan plan = make_plan();
    try {
      if (mode_.whole_step) {
        compile([&] { forward(), backward(loss(), plan); }, mode_.options)();
      } else {
        Tensor total;
        auto make = [&] {
          forward();
          total = loss();
        };
        if (mode_.capture) compile(make, mode_.options)();
        else make();
        std::optional<CompiledBackward> scope;
        if (mode_.compiled_backward) scope.emplace(mode_.options);
        backward(total, plan);
      }
    } catch (const std::exception& e) {
      passes_.back().error = e.what();
    }
    if (!passes_.back().error.empty()) {
      // Only the order is the same in all modes now (RULINGS 4); start the next pass from what is.
      // An error of the library may come before an opaque call that was recorded.
      std::erase_if(passes_.back().events,
                    [](const HookEvent& e) { return e.what.rfind("opaque", 0) == 0; });
      for (HookEvent& e : passes_.back().events) e.values.clear();
      passes_.back().results.clear();
      kept_.clear();
      NoGradGuard no_grad;
      manual_seed(11);
      for (size_t i = 0; i < leaves_.size(); ++i) {
        leaves_[i].reset_grad();
        leaves_[i].detach().copy_(values_[i]);
      }
      return;
    }
    for (const Tensor& x : leaves_) note_result("end", {x, x.grad()});
    for (const Tensor& x : pool_)
      if (x.defined() && !x.is_leaf() && x.retains_grad()) note_result("retained", {x.grad()});
    for (const Tensor& x : kept_) note_result("kept", {x});
    note_result("drawn", {rand({2})});
  }

  std::mt19937_64 own_rng_;
  std::mt19937_64* rng_ = &own_rng_;
  HookProgramMode mode_;
  std::vector<Tensor> constants_, leaves_, values_, pool_, kept_;
  std::deque<Hook> hooks_;
  std::vector<HookPass> passes_;
};

/// All events as text, to look at.
inline std::string text_of(const std::vector<HookPass>& passes) {
  std::string out;
  for (size_t p = 0; p < passes.size(); ++p) {
    out += str("pass ", p, passes[p].error.empty() ? "" : " failed: ", passes[p].error, "\n");
    for (const auto* list : {&passes[p].events, &passes[p].results})
      for (const HookEvent& e : *list) {
        out += "  " + e.what;
        for (const Tensor& t : e.values)
          out += t.defined()
                     ? str(" ", t.dtype(), t.shape(), " ", t.numel() ? values_of(t)[0] : 0.0)
                     : " undefined";
        out += "\n";
      }
  }
  return out;
}

/// What differs first, as a sentence; empty if nothing does.
inline std::string first_difference(const std::vector<HookPass>& want,
                                    const std::vector<HookPass>& got) {
  auto text = [](const variable_list& values) {
    std::string out;
    for (const Tensor& t : values)
      out += t.defined()
                 ? str(" ", t.dtype(), t.shape(), " ", values_of(t).empty() ? 0.0 : values_of(t)[0])
                 : " undefined";
    return out;
  };
  auto compare = [&](const std::vector<HookEvent>& a,
                     const std::vector<HookEvent>& b) -> std::string {
    const size_t common = std::min(a.size(), b.size());
    for (size_t i = 0; i < common; ++i) {
      if (a[i].what != b[i].what)
        return str("event ", i, " is '", b[i].what, "', in eager mode '", a[i].what, "'");
      bool same = a[i].values.size() == b[i].values.size();
      for (size_t k = 0; same && k < a[i].values.size(); ++k)
        same = same_bits(a[i].values[k], b[i].values[k]);
      if (!same)
        return str("event ", i, " '", a[i].what, "' has", text(b[i].values), ", in eager mode",
                   text(a[i].values));
    }
    if (a.size() == b.size()) return "";
    return str("there are ", b.size(), " events, in eager mode ", a.size(), "; the next one is '",
               (a.size() > common ? a : b)[common].what, "'");
  };
  for (size_t p = 0; p < want.size() && p < got.size(); ++p) {
    if (const std::string what = compare(want[p].events, got[p].events); !what.empty())
      return str("pass ", p, ": ", what, "; ended with '", got[p].error, "', in eager mode '",
                 want[p].error, "'");
    if (const std::string what = compare(want[p].results, got[p].results); !what.empty())
      return str("pass ", p, ", results: ", what);
    // Messages may name the place in another way; that there is one must not differ.
    if (want[p].error.empty() != got[p].error.empty())
      return str("pass ", p, " ended with '", got[p].error, "', in eager mode with '",
                 want[p].error, "'");
    if (want[p].error.rfind("hook ", 0) == 0 && want[p].error != got[p].error)
      return str("pass ", p, " threw '", got[p].error, "', in eager mode '", want[p].error, "'");
  }
  return want.size() == got.size() ? "" : "another number of passes";
}

}  // namespace grapnel
