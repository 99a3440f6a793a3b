#include "grapnel/dist/thread_collectives.h"

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/functions.h"

namespace grapnel::dist {

namespace {
void reduce_into(const Tensor& target, const Tensor& other, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: target.add_(other); return;
    case ReduceOp::product: target.mul_(other); return;
    case ReduceOp::min: target.copy_(min(target, other)); return;
    case ReduceOp::max: target.copy_(max(target, other)); return;
  }
}
}  // namespace

void execute(const std::vector<OperationPtr>& ops) {
  NoGradGuard no_grad;
  const Call& call = ops[0]->call;
  const auto ranks = static_cast<int64_t>(ops.size());
  const auto input = [&](size_t r) { return ops[r]->input.detach(); };
  const auto output = [&](size_t r) { return ops[r]->output.detach(); };
  const auto part = [&](const Tensor& t, int64_t r) {
    return t.reshape({-1}).narrow(0, r * call.count, call.count);
  };
  switch (call.kind) {
    case CallKind::all_reduce:
      for (size_t r = 1; r < ops.size(); ++r) reduce_into(output(0), input(r), call.op);
      for (size_t r = 1; r < ops.size(); ++r) output(r).copy_(output(0));
      return;
    case CallKind::broadcast: {
      const auto root = static_cast<size_t>(call.peer);
      for (size_t r = 0; r < ops.size(); ++r)
        if (r != root) output(r).copy_(input(root));
      return;
    }
    case CallKind::all_gather:
      for (int64_t r = 0; r < ranks; ++r)
        part(output(0), r).copy_(input(static_cast<size_t>(r)).reshape({-1}));
      for (size_t r = 1; r < ops.size(); ++r) output(r).copy_(output(0));
      return;
    case CallKind::reduce_scatter:
      for (int64_t r = 0; r < ranks; ++r) {
        const Tensor sum = output(static_cast<size_t>(r)).reshape({-1});
        sum.copy_(part(input(0), r));
        for (size_t s = 1; s < ops.size(); ++s) reduce_into(sum, part(input(s), r), call.op);
      }
      return;
    case CallKind::all_to_all:
      for (int64_t to = 0; to < ranks; ++to)
        for (int64_t from = 0; from < ranks; ++from)
          part(output(static_cast<size_t>(to)), from)
              .copy_(part(input(static_cast<size_t>(from)), to));
      return;
    case CallKind::send:
    case CallKind::recv: ops[1]->output.detach().copy_(ops[0]->input.detach()); return;
    case CallKind::barrier:
    case CallKind::split: return;
  }
}

}  // namespace grapnel::dist
