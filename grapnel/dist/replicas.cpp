#include "grapnel/dist/replicas.h"

#include <sstream>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/record.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::dist {

namespace {

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

namespace {

/// Names are told only when something is wrong, so nothing is spent on them otherwise.
std::vector<std::vector<std::string>> names_of_all(const std::vector<Parameter>& parameters,
                                                   const ProcessGroup& group) {
  std::string mine;
  for (const Parameter& p : parameters) mine += p.name + '\n';
  const auto length = static_cast<int64_t>(mine.size());
  const std::vector<Tensor> lengths = group.all_gather(from_vector<int64_t>({length})).wait();
  int64_t longest = 0;
  for (const Tensor& t : lengths) longest = std::max(longest, t.item<int64_t>());
  std::vector<uint8_t> letters(mine.begin(), mine.end());
  letters.resize(static_cast<size_t>(longest));
  const Tensor text = from_vector(letters);
  std::vector<std::vector<std::string>> out;
  for (const Tensor& t : group.all_gather(text).wait()) {
    const std::vector<uint8_t> p = to_vector<uint8_t>(t);
    std::istringstream lines(
        std::string(p.begin(), p.begin() + lengths[out.size()].item<int64_t>()));
    out.emplace_back();
    for (std::string line; std::getline(lines, line);) out.back().push_back(line);
  }
  return out;
}

/// ", which rank 0 lacks: a, b" for the names in `some` that are not in `others`.
std::string extra(const std::vector<std::string>& some, const std::vector<std::string>& others,
                  const std::string& who_lacks) {
  std::string list;
  size_t count = 0;
  for (const std::string& name : some)
    if (std::find(others.begin(), others.end(), name) == others.end() && ++count <= 10)
      list += str(count == 1 ? "" : ", ", name);
  if (count > 10) list += str(" and ", count - 10, " more");
  return count ? str("\n", who_lacks, " lacks ", list, ".") : "";
}

/// All ranks call it with the same counts, so all of them get to the names, or none.
void check_same_counts(const std::vector<Parameter>& parameters, const ProcessGroup& group) {
  const auto count = static_cast<int64_t>(parameters.size());
  const std::vector<Tensor> counts = group.all_gather(from_vector<int64_t>({count})).wait();
  const auto of = [&](size_t r) { return counts[r].item<int64_t>(); };
  size_t other = 1;
  while (other < counts.size() && of(other) == of(0)) ++other;
  if (other == counts.size()) return;
  const auto names = names_of_all(parameters, group);
  const std::string r = str("Rank ", other);
  fail(where(group), " the ranks wrap modules that differ: rank 0 has ", of(0),
       " parameters that require grad, rank ", other, " has ", of(other), ".",
       extra(names[0], names[other], r), extra(names[other], names[0], "Rank 0"));
}

}  // namespace

void check_same_parameters(const std::vector<Parameter>& parameters, const ProcessGroup& group) {
  check_same_counts(parameters, group);
  std::vector<size_t> start;
  const std::vector<int64_t> mine = describe(parameters, start);
  const Tensor length = from_vector<int64_t>({static_cast<int64_t>(mine.size())});
  group.broadcast(length).wait();
  Tensor first = zeros({length.item<int64_t>()}, TensorOptions(kInt64).device(kCPU));
  if (group.rank() == 0) first = from_vector(mine);
  group.broadcast(first).wait();

  // Rank 0's list is read parameter by parameter, up to the first that differs.
  const std::vector<int64_t> theirs = to_vector<int64_t>(first);
  const size_t total = theirs.size();
  int64_t bad = -1;
  size_t at = 0;
  std::vector<size_t> their_start;
  for (size_t i = 0; i < parameters.size(); ++i) {
    their_start.push_back(at);
    const size_t size = 2 + 2 * static_cast<size_t>(theirs[at + 1]);
    const bool same = start[i] == at && start[i] + size <= mine.size() &&
                      std::equal(theirs.data() + at, theirs.data() + at + size,
                                 mine.begin() + static_cast<int64_t>(at));
    at += size;
    if (!same && bad < 0) bad = static_cast<int64_t>(i);
  }
  GRAPNEL_ASSERT(at == total, "the description of parameters has ", total, " numbers");

  // Everybody learns the outcome, so that nobody goes on alone.
  const std::vector<Tensor> outcomes = group.all_gather(from_vector<int64_t>({bad})).wait();
  for (size_t r = 0; r < outcomes.size(); ++r) {
    const int64_t p = outcomes[r].item<int64_t>();
    if (p < 0) continue;
    const auto i = static_cast<size_t>(p);
    fail(where(group), " the ranks wrap modules that differ: parameter ", p, " (",
         parameters[i].name, ") of rank ", r, " is not like that of rank 0, which is ",
         spell(theirs.data() + their_start[i]), ". Here it is ", spell(mine.data() + start[i]),
         ".");
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
    // In a recording, received when the graph comes to it.
    const Tensor chunk = effect(
        [group, root](const variable_list& x) {
          group.broadcast(x[0], root).wait();
          return x;
        },
        {cat(flat)}, 1)[0];
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
