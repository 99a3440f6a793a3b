#include "grapnel/dist/process_group.h"

#include <array>
#include <map>
#include <mutex>
#include <numeric>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/dist/communicator.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/record.h"

namespace grapnel::dist {

std::string_view name(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::product: return "product";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
  }
  __builtin_unreachable();
}

std::string_view name(CallKind kind) {
  switch (kind) {
    case CallKind::all_reduce: return "all_reduce";
    case CallKind::broadcast: return "broadcast";
    case CallKind::all_gather: return "all_gather";
    case CallKind::reduce_scatter: return "reduce_scatter";
    case CallKind::all_to_all: return "all_to_all";
    case CallKind::barrier: return "barrier";
    case CallKind::split: return "subgroup";
    case CallKind::send: return "send";
    case CallKind::recv: return "recv";
  }
  __builtin_unreachable();
}

std::string Call::str() const {
  std::string text(dist::name(kind));
  switch (kind) {
    case CallKind::barrier:
    case CallKind::split: return text + "()";
    case CallKind::all_reduce:
    case CallKind::reduce_scatter: text += grapnel::str("(", dist::name(op), ", "); break;
    case CallKind::broadcast: text += grapnel::str("(from rank ", peer, ", "); break;
    case CallKind::send: text += grapnel::str("(to rank ", peer, ", tag ", tag, ", "); break;
    case CallKind::recv: text += grapnel::str("(from rank ", peer, ", tag ", tag, ", "); break;
    case CallKind::all_gather:
    case CallKind::all_to_all: text += "("; break;
  }
  return text + grapnel::str(dtype, ", ", count, count == 1 ? " element" : " elements",
                             kind == CallKind::reduce_scatter || kind == CallKind::all_to_all
                                 ? " per rank)"
                                 : ")");
}

struct ProcessGroup::State {
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<std::atomic<uint64_t>> bytes_sent = std::make_shared<std::atomic<uint64_t>>(0);
  std::shared_ptr<std::atomic<int64_t>> timeout_ms;
  std::mutex mutex;  ///< sequence numbers are given and operations handed over in one order
  uint64_t sequence = 0;
  std::map<std::string, ProcessGroup> channels;
};

ProcessGroup::ProcessGroup(std::shared_ptr<Communicator> communicator,
                           std::chrono::milliseconds timeout)
    : state_(std::make_shared<State>()) {
  state_->communicator = std::move(communicator);
  state_->timeout_ms = std::make_shared<std::atomic<int64_t>>(timeout.count());
}

int ProcessGroup::rank() const { return communicator().rank(); }
int ProcessGroup::size() const { return communicator().size(); }
const std::string& ProcessGroup::name() const { return communicator().name(); }
void ProcessGroup::abort(const std::string& reason) const { communicator().abort(reason); }
bool ProcessGroup::aborted() const { return communicator().aborted(); }

Communicator& ProcessGroup::communicator() const {
  check(state_ != nullptr,
        "the ProcessGroup is empty.\nGet one from dist::init() or dist::run_threads().");
  return *state_->communicator;
}
std::chrono::milliseconds ProcessGroup::timeout() const {
  communicator();
  return std::chrono::milliseconds(state_->timeout_ms->load());
}
void ProcessGroup::set_timeout(std::chrono::milliseconds timeout) const {
  communicator();
  check(timeout.count() > 0, "set_timeout: the time must be positive, got ", timeout.count(),
        " ms.");
  state_->timeout_ms->store(timeout.count());
}
uint64_t ProcessGroup::bytes_sent() const {
  communicator();
  return state_->bytes_sent->load();
}
uint64_t ProcessGroup::sequence() const {
  communicator();
  std::lock_guard lock(state_->mutex);
  return state_->sequence;
}

std::string where(const ProcessGroup& group) {
  return str("[rank ", group.rank(), " of ", group.size(), "]");
}

Future<Tensor> Work::single() const {
  return done_.then([](const std::vector<Tensor>& results) {
    check(results.size() == 1, "Work::single: the collective has ", results.size(),
          " results.\nUse future().");
    return results[0];
  });
}

namespace {
/// See Note [Collectives in recordings].
void make_visible(CallKind kind, const std::array<Tensor, 2>& memory) {
  record::flush(name(kind).data());
  for (const Tensor& t : memory)
    if (t.defined())
      t.impl().storage->make_ready();  // throws if it belongs to another thread's recording
}
}  // namespace

// Every collective of every backend comes by here, before it has a number.
Work ProcessGroup::submit(Call call, const Tensor& input, const Tensor& output,
                          std::vector<Tensor> result) const {
  Communicator& c = communicator();
  make_visible(call.kind, {input, output});
  auto op = std::make_shared<Operation>();
  op->call = call;
  op->input = input;
  op->output = output;
  op->result = std::move(result);
  op->timeout = timeout();
  op->deadline = Clock::now() + op->timeout;
  op->done = Future<std::vector<Tensor>>::make(c.executor());
  const bool sends =
      call.kind != CallKind::recv && (call.kind != CallKind::broadcast || call.peer == rank());
  if (sends && input.defined())
    state_->bytes_sent->fetch_add(static_cast<uint64_t>(input.nbytes()), std::memory_order_relaxed);
  std::lock_guard lock(state_->mutex);
  op->sequence = call.is_point_to_point() ? 0 : state_->sequence++;
  const Work work(op->done, op->sequence);
  c.submit(std::move(op));
  return work;
}

Work ProcessGroup::in_place(Call call, const Tensor& t) const {
  check(t.defined(), dist::name(call.kind), ": the tensor is undefined.");
  call.dtype = t.dtype();
  call.count = t.numel();
  // What was saved of it for backward must notice, whoever writes, and when.
  if (call.kind != CallKind::send) t.impl().storage->bump_version();
  if (t.is_contiguous()) return submit(call, t, t, {t});
  // Backends work on plain memory; other layouts travel as a copy.
  NoGradGuard no_grad;
  const Tensor copy = t.detach().contiguous();
  const Work work = submit(call, copy, copy, {copy});
  return Work(work.future().then([t, copy](const std::vector<Tensor>&) {
    NoGradGuard off;
    t.detach().copy_(copy);
    return std::vector<Tensor>{t};
  }),
              work.sequence());
}

namespace {
void check_peer(const ProcessGroup& group, CallKind kind, int peer) {
  check(peer >= 0 && peer < group.size(), name(kind), ": there is no rank ", peer,
        " in a group of ", group.size(), ".");
}
int64_t part_size(const ProcessGroup& group, CallKind kind, const Tensor& t) {
  check(t.defined() && t.dim() > 0 && t.size(0) % group.size() == 0, name(kind),
        ": the first dimension must divide into ", group.size(), " equal parts, got ",
        t.defined() ? str("shape ", t.shape()) : std::string("an undefined tensor"), ".");
  return t.numel() / group.size();
}
}  // namespace

Work ProcessGroup::all_reduce(const Tensor& t, ReduceOp op) const {
  return in_place({.kind = CallKind::all_reduce, .op = op}, t);
}
Work ProcessGroup::broadcast(const Tensor& t, int root) const {
  check_peer(*this, CallKind::broadcast, root);
  return in_place({.kind = CallKind::broadcast, .peer = root}, t);
}
Work ProcessGroup::send(const Tensor& t, int to, int tag) const {
  check_peer(*this, CallKind::send, to);
  check(tag >= 0 && tag < 32768, "send: the tag must be in [0, 32768), got ", tag, ".");
  return in_place({.kind = CallKind::send, .peer = to, .tag = tag}, t);
}
Work ProcessGroup::recv(const Tensor& t, int from, int tag) const {
  check_peer(*this, CallKind::recv, from);
  check(tag >= 0 && tag < 32768, "recv: the tag must be in [0, 32768), got ", tag, ".");
  return in_place({.kind = CallKind::recv, .peer = from, .tag = tag}, t);
}
Work ProcessGroup::barrier() const { return submit({.kind = CallKind::barrier}, {}, {}, {}); }

Work ProcessGroup::all_gather(const Tensor& t) const {
  check(t.defined(), "all_gather: the tensor is undefined.");
  NoGradGuard no_grad;
  std::vector<int64_t> sizes{size()};
  sizes.insert(sizes.end(), t.sizes().begin(), t.sizes().end());
  const Tensor all = empty(sizes, t.options());
  return submit({.kind = CallKind::all_gather, .dtype = t.dtype(), .count = t.numel()},
                t.detach().contiguous(), all, all.unbind());
}

Work ProcessGroup::reduce_scatter(const Tensor& t, ReduceOp op) const {
  const int64_t count = part_size(*this, CallKind::reduce_scatter, t);
  NoGradGuard no_grad;
  std::vector<int64_t> sizes(t.sizes().begin(), t.sizes().end());
  sizes[0] /= size();
  const Tensor part = empty(sizes, t.options());
  return submit({.kind = CallKind::reduce_scatter, .op = op, .dtype = t.dtype(), .count = count},
                t.detach().contiguous(), part, {part});
}

Work ProcessGroup::all_to_all(const Tensor& t) const {
  const int64_t count = part_size(*this, CallKind::all_to_all, t);
  NoGradGuard no_grad;
  const Tensor out = empty(t.sizes(), t.options());
  return submit({.kind = CallKind::all_to_all, .dtype = t.dtype(), .count = count},
                t.detach().contiguous(), out, {out});
}

ProcessGroup ProcessGroup::subgroup(const std::vector<int>& ranks, const std::string& name) const {
  Communicator& c = communicator();
  check(!ranks.empty(), "subgroup: the list of ranks is empty.");
  for (size_t i = 0; i < ranks.size(); ++i) {
    check(ranks[i] >= 0 && ranks[i] < c.size(), "subgroup: there is no rank ", ranks[i],
          " in a group of ", c.size(), ".");
    for (size_t j = 0; j < i; ++j)
      check(ranks[i] != ranks[j], "subgroup: rank ", ranks[i], " is listed twice.");
  }
  auto part = c.split(ranks, name);
  if (!part) return {};
  ProcessGroup group(std::move(part), timeout());
  group.state_->bytes_sent = state_->bytes_sent;
  return group;
}

ProcessGroup ProcessGroup::duplicate(const std::string& name) const {
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  ProcessGroup group = subgroup(all, name);
  group.state_->timeout_ms = state_->timeout_ms;
  return group;
}

ProcessGroup ProcessGroup::channel(const std::string& name) const {
  communicator();
  std::unique_lock lock(state_->mutex);
  if (const auto it = state_->channels.find(name); it != state_->channels.end()) return it->second;
  lock.unlock();
  ProcessGroup group = duplicate(name);
  lock.lock();
  return state_->channels.emplace(name, std::move(group)).first->second;
}

ProcessGroup ProcessGroup::renew() const { return ProcessGroup(communicator().renew(), timeout()); }

ProcessGroup ProcessGroup::of_this_machine() const {
  const auto mine = static_cast<int64_t>(communicator().machine());
  const std::vector<Tensor> all = all_gather(full({1}, mine, kInt64)).wait();
  // Every machine's group is made by everybody, so that all make the same groups in the same order.
  std::map<int64_t, std::vector<int>> machines;
  for (int r = 0; r < size(); ++r)
    machines[all[static_cast<size_t>(r)].item<int64_t>()].push_back(r);
  ProcessGroup own;
  for (const auto& [machine, ranks] : machines)
    if (ProcessGroup group = subgroup(ranks, "machine")) own = group;
  return own;
}

}  // namespace grapnel::dist
