#include "grapnel/ops/invoke.h"

#include <bit>
#include <cstring>
#include <optional>

#include "grapnel/base/context.h"
#include "grapnel/ops/defs/calls.h"
#include "grapnel/ops/record.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

namespace {

class Loans;

/// One call, as the trace keeps it.
struct InvokeCall final : ProgramCall {
  explicit InvokeCall(invoke_detail::Body f) : body(std::move(f)) {}
  void run(Inputs inputs, std::span<Tensor> out) const override;
  void run_with(Loans& loans, Inputs inputs, std::span<Tensor> out) const;

  invoke_detail::Body body;
  /// Arguments that are handed over themselves: a leaf comes with its grad().
  variable_list given = {};
  /// Which arguments the function may only look at, and the hook that it is (part of).
  std::vector<bool> looks = {};
  std::string looker = {};
  /// Of arguments that are lent, the version that the function sees: see Note [Lent gradients].
  std::vector<std::optional<uint32_t>> lent = {};

  void find_looker(const variable_list& inputs) {
    for (const Tensor& t : inputs) {
      std::string who = t.defined() ? record::who_looks_at(t) : std::string();
      looks.push_back(!who.empty());
      if (looker.empty()) looker = std::move(who);
    }
  }
  /// Sum of the versions of the memory that the function may only look at.
  uint32_t writes_to(const variable_list& arguments) const {
    uint32_t sum = 0;
    for (size_t i = 0; i < arguments.size() && !looker.empty(); ++i)
      if (looks[i]) sum += arguments[i].impl().storage->version();
    return sum;
  }
};

// Note [Lent gradients]
// Eager mode adopts a gradient if nobody else holds it, and copies it if a hook has kept it. When an
// opaque hook is recorded, nobody knows yet what it will keep; what follows is recorded as if that
// were nothing. So the hook is lent the memory under a storage of its own. If something still refers
// to that when the hook has run, the memory stays there, since the hook may know its address, and
// the graph goes on with a copy: a later write to the gradient is not seen by the hook, as in eager
// mode.
class Loans {
 public:
  Tensor lend(const Tensor& t, uint32_t version) {
    const TensorImpl& impl = t.impl();
    return Tensor(TensorImpl::create(lent_for(impl.storage, version), impl.dtype, impl.sizes,
                                     impl.strides, impl.offset));
  }
  /// When nothing here refers to what was lent any more.
  void end() {
    for (const Loan& loan : loans_)
      if (loan.lent->use_count() > 1) loan.owner->leave_memory_to(*loan.lent);
  }

 private:
  struct Loan {
    StoragePtr owner, lent;
  };
  const StoragePtr& lent_for(const StoragePtr& owner, uint32_t version) {
    for (const Loan& loan : loans_)
      if (loan.owner == owner) return loan.lent;
    loans_.push_back({owner, owner->lend()});
    loans_.back().lent->set_version(version);
    return loans_.back().lent;
  }

  std::vector<Loan> loans_;
};

/// Opaque calls of this thread that wait to be run, as long as their traces keep them.
using Waiting = std::vector<std::weak_ptr<const InvokeCall>>;
void forget_what_ran(Waiting& waiting) {
  std::erase_if(waiting, [](const auto& call) { return call.expired(); });
}

void check_like(const Tensor& want, const Tensor& got) {
  if (!got.defined()) return;
  if (!(got.shape() == want.shape()))
    fail("invoke: size mismatch: the function returned ", got.shape(), " for an argument of ",
         want.shape(), ".");
  if (got.dtype() != want.dtype())
    fail("invoke: dtype mismatch: the function returned ", got.dtype(), " for an argument of ",
         want.dtype(), ".");
  if (got.device() != want.device())
    fail("invoke: device mismatch: the function returned a tensor on ", got.device(),
         " for an argument on ", want.device(), ".");
  for (int i = 0; i < want.shape().size(); ++i)
    if (want.shape()[i] > 1 && got.impl().strides[i] != want.impl().strides[i])
      fail("invoke: stride mismatch: the function returned strides ", got.impl().strides,
           " for an argument of strides ", want.impl().strides, ".");
}

void InvokeCall::run(Inputs inputs, std::span<Tensor> out) const {
  Loans loans;
  try {
    run_with(loans, inputs, out);
  } catch (...) {
    loans.end();
    throw;
  }
  loans.end();
}

void InvokeCall::run_with(Loans& loans, Inputs inputs, std::span<Tensor> out) const {
  variable_list arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool other = this_context.on_other_tensors && given[i].defined() &&
                       given[i].impl().storage != inputs[i]->impl().storage;
    const auto on_loan = i < lent.size() ? lent[i] : std::nullopt;
    if (other) arguments.push_back(*inputs[i]);
    else if (on_loan) arguments.push_back(loans.lend(*inputs[i], *on_loan));
    else arguments.push_back(given[i].defined() ? given[i] : *inputs[i]);
  }
  const uint32_t writes = writes_to(arguments);
  const bool recording = GradMode::is_enabled();
  GradMode::set_enabled(false);
  variable_list results;
  try {
    results = body(arguments);
    if (writes_to(arguments) != writes) [[unlikely]]
      fail("the ", looker,
           " changed its argument in place. Gradient buffers may be shared; return a new tensor "
           "instead.");
  } catch (...) {
    GradMode::set_enabled(recording);
    throw;
  }
  GradMode::set_enabled(recording);
  if (!results.empty() && !out.empty())
    check(results.size() == out.size(), "invoke: the function returned ", results.size(),
          " tensors, expected ", out.size(), ".");
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].defined()) continue;
    const Tensor& result = i < results.size() && results[i].defined() ? results[i] : arguments[i];
    check_like(arguments[i], result);
    copy_elements(out[i], result);
  }
}

bool any_tracks(const variable_list& tensors) {
  for (const Tensor& t : tensors)
    if (t.defined() && tape::tracks(t)) return true;
  return false;
}

Tensor pending_like(const Tensor& t) {
  if (!t.defined()) return Tensor();
  Tensor out = evaluator(t.device()).empty({t.shape(), t.dtype(), t.device()});
  // Dense layouts other than row-major need the same memory, walked in another order.
  int64_t reach = 1;
  for (int i = 0; i < t.shape().size(); ++i) reach += (t.shape()[i] - 1) * t.impl().strides[i];
  if (t.numel() > 0 && reach == t.numel()) out.impl().strides = t.impl().strides;
  return out;
}

}  // namespace

struct WaitingCalls {
  Waiting calls;
};

void record::before_grad_is_replaced(const AutogradMeta& tensor) {
  WaitingCalls* const waiting = this_context.waiting;
  if (!active() || !waiting || waiting->calls.empty()) return;
  forget_what_ran(waiting->calls);
  for (const auto& weak : waiting->calls)
    if (const auto call = weak.lock())
      for (const Tensor& t : call->given)
        if (t.defined() && t.impl().autograd == &tensor) return before_user_code();
}

namespace invoke_detail {

variable_list call(Kind kind, Body body, const variable_list& inputs, size_t outputs) {
  GRAPNEL_CALL_SITE;
  variable_list results;
  // A function of the program is no op: whether it is called now or by the graph is decided here.
  const bool deferred = record::active() && (kind != Kind::traced || !record::walking());
  if (deferred) {
    auto kept = std::make_shared<InvokeCall>(std::move(body));
    if (kind == Kind::opaque) kept->find_looker(inputs);
    SmallVector<const Tensor*, 4> pointers;
    for (const Tensor& t : inputs) {
      // A function of the user's may keep its arguments, so they must not be written again by
      // whoever holds them otherwise: the call counts as an owner until it has run, or is lent the
      // gradient that it is shown. Effects of the library keep nothing, and values that only the
      // graph needs stay its own.
      const bool of_graph =
          t.defined() && t.impl().storage->pending() && !record::holds(*t.impl().storage);
      const bool lent =
          of_graph && !kept->looks.empty() && kept->looks[kept->given.size()] && !t.requires_grad();
      const bool handed_over = t.defined() && !lent && (kind != Kind::effect || !of_graph);
      if (kind == Kind::opaque)
        kept->lent.push_back(lent ? std::optional(t.impl().storage->version()) : std::nullopt);
      kept->given.push_back(handed_over ? t : Tensor());
      pointers.push_back(&t);
    }
    for (size_t i = 0; i < outputs; ++i) results.push_back(pending_like(inputs[i]));
    const Invoke::Attrs attrs{kept.get()};
    evaluator(kCPU).run(op_of<Invoke>, {pointers.data(), pointers.size()}, &attrs, results);
    if (kind == Kind::effect) {
      record::keep(std::move(kept));
    } else {
      Waiting& waiting = wanted_in_context<&Context::waiting>().calls;
      if (std::has_single_bit(waiting.size())) forget_what_ran(waiting);
      waiting.push_back(kept);
      record::keep_opaque(std::move(kept));
    }
  } else {
    const bool recording = GradMode::is_enabled();
    GradMode::set_enabled(false);
    try {
      const base::UserCodeScope user;
      results = body(inputs);
    } catch (...) {
      GradMode::set_enabled(recording);
      throw;
    }
    GradMode::set_enabled(recording);
    if (results.empty()) results.resize(outputs);
    for (size_t i = 0; i < results.size() && i < inputs.size(); ++i)
      if (inputs[i].defined()) check_like(inputs[i], results[i]);
  }
  if (GradMode::is_enabled() && any_tracks(inputs)) {
    // The results get a node, so that asking for a gradient through them says why there is none.
    SmallVector<const Tensor*, 4> pointers;
    for (const Tensor& t : inputs) pointers.push_back(&t);
    const Invoke::Attrs attrs{};
    variable_list named;
    for (Tensor& t : results)
      if (t.defined()) named.push_back(t = t.detach());
    if (!named.empty())
      tape::record(op_of<Invoke>, {pointers.data(), pointers.size()}, &attrs, named);
  }
  return results;
}

}  // namespace invoke_detail

variable_list effect(std::function<variable_list(const variable_list&)> fn,
                     const variable_list& inputs, size_t outputs) {
  return invoke_detail::call(invoke_detail::Kind::effect, std::move(fn), inputs, outputs);
}

}  // namespace grapnel
