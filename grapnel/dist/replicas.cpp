#include "grapnel/dist/replicas.h"

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/ops/factories.h"
#include "grapnel/ops/functions.h"

namespace grapnel::dist {

namespace {

Tensor to_tensor(const std::vector<int64_t>& values) {
  Tensor t = empty({static_cast<int64_t>(values.size())}, kInt64);
  std::copy(values.begin(), values.end(), t.data_ptr<int64_t>());
  return t;
}

/// Type, dimensions, sizes and strides of every parameter; `start` is where each begins.
std::vector<int64_t> describe(const std::vector<Parameter>& parameters,
                              std::vector<size_t>& start) {
  std::vector<int64_t> out;
  for (const Parameter& p : parameters) {
    start.push_back(out.size());
    out.push_back(static_cast<int64_t>(p.tensor.dtype()));
    out.push_back(p.tensor.dim());
    out.insert(out.end(), p.tensor.sizes().begin(), p.tensor.sizes().end());
    out.insert(out.end(), p.tensor.strides().begin(), p.tensor.strides().end());
  }
  return out;
}

std::string spell(const int64_t* d) {
  const auto dims = static_cast<int>(d[1]);
  Shape sizes, strides;
  for (int i = 0; i < dims; ++i) {
    sizes.push_back(d[2 + i]);
    strides.push_back(d[2 + dims + i]);
  }
  return str(static_cast<DType>(d[0]), " of shape ", sizes, " and strides ", strides);
}

}  // namespace

void check_same_parameters(const std::vector<Parameter>& parameters, const ProcessGroup& group) {
  const auto count = static_cast<int64_t>(parameters.size());
  const std::vector<Tensor> counts = group.all_gather(to_tensor({count})).wait();
  for (size_t r = 1; r < counts.size(); ++r)
    check(counts[r].item<int64_t>() == counts[0].item<int64_t>(), where(group),
          " the ranks wrap modules that differ: rank 0 has ", counts[0].item<int64_t>(),
          " parameters that require grad, rank ", r, " has ", counts[r].item<int64_t>(), ".");

  std::vector<size_t> start;
  const std::vector<int64_t> mine = describe(parameters, start);
  const Tensor length = to_tensor({static_cast<int64_t>(mine.size())});
  group.broadcast(length).wait();
  Tensor first = zeros({length.item<int64_t>()}, kInt64);
  if (group.rank() == 0) first = to_tensor(mine);
  group.broadcast(first).wait();

  // Rank 0's list is read parameter by parameter, up to the first that differs.
  const int64_t* theirs = first.data_ptr<int64_t>();
  const auto total = static_cast<size_t>(first.numel());
  int64_t bad = -1;
  size_t at = 0;
  std::vector<size_t> their_start;
  for (size_t i = 0; i < parameters.size(); ++i) {
    their_start.push_back(at);
    const size_t size = 2 + 2 * static_cast<size_t>(theirs[at + 1]);
    const bool same =
        start[i] == at && start[i] + size <= mine.size() &&
        std::equal(theirs + at, theirs + at + size, mine.begin() + static_cast<int64_t>(at));
    at += size;
    if (!same && bad < 0) bad = static_cast<int64_t>(i);
  }
  GRAPNEL_ASSERT(at == total, "the description of parameters has ", total, " numbers");

  // Everybody learns the outcome, so that nobody goes on alone.
  const std::vector<Tensor> outcomes = group.all_gather(to_tensor({bad})).wait();
  for (size_t r = 0; r < outcomes.size(); ++r) {
    const int64_t p = outcomes[r].item<int64_t>();
    if (p < 0) continue;
    const auto i = static_cast<size_t>(p);
    fail(where(group), " the ranks wrap modules that differ: parameter ", p, " (",
         parameters[i].name, ") of rank ", r, " is not like that of rank 0, which is ",
         spell(theirs + their_start[i]), ". Here it is ", spell(mine.data() + start[i]), ".");
  }
}

void broadcast_tensors(const std::vector<Tensor>& tensors, const ProcessGroup& group, int root,
                       int64_t bytes_at_once) {
  if (group.size() == 1) return;
  NoGradGuard no_grad;
  for (size_t begin = 0; begin < tensors.size();) {
    std::vector<Tensor> flat;
    int64_t bytes = 0;
    size_t end = begin;
    for (; end < tensors.size() && tensors[end].dtype() == tensors[begin].dtype() &&
           (bytes == 0 || bytes + tensors[end].nbytes() <= bytes_at_once);
         ++end) {
      flat.push_back(tensors[end].detach().reshape({-1}));
      bytes += tensors[end].nbytes();
    }
    const Tensor chunk = cat(flat);
    group.broadcast(chunk, root).wait();
    int64_t offset = 0;
    for (size_t i = begin; i < end; ++i) {
      const Tensor t = tensors[i].detach();
      if (group.rank() != root) t.copy_(chunk.narrow(0, offset, t.numel()).view(t.sizes()));
      offset += t.numel();
    }
    begin = end;
  }
}

}  // namespace grapnel::dist
