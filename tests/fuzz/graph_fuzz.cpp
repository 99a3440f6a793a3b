/// libFuzzer's entry for graphs as text: any bytes give a graph or an Error, and a graph that is
/// read runs, with its gradients, to results or an Error. Build with the preset `fuzz`; then
///
///   build/fuzz/tests/graph_fuzz -max_len=1500 -rss_limit_mb=2048 corpus/ tests/fuzz/corpus/graph/
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "grapnel/grapnel.h"

namespace {

using namespace grapnel;

constexpr int64_t kMostElements = 4096;
/// Beyond this no memory is tried; between the two a program would only be slow.
constexpr double kHopeless = 1e18;

/// Whether no list of numbers in the text makes a tensor that takes long, whatever it is used for.
bool is_cheap(std::string_view text) {
  double product = 1;
  bool in_list = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') product = 1, in_list = true;
    if (text[i] == ']') in_list = false;
    if (text[i] < '0' || text[i] > '9') continue;
    double number = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
      number = number * 10 + (text[i] - '0');
    --i;
    product = in_list ? product * (number > 1 ? number : 1) : number;
    if (product > static_cast<double>(kMostElements) && product < kHopeless) return false;
  }
  return true;
}

Tensor some_tensor(DType dtype, const Shape& sizes) {
  const Tensor numbers = arange(checked_numel(sizes, "graph_fuzz"), kInt64).remainder(7);
  Tensor t = numbers.to(dtype).reshape(sizes);
  if (t.is_floating_point()) t.set_requires_grad(true);
  return t;
}

[[noreturn]] void broken(const char* what, const std::string& a, const std::string& b) {
  std::fprintf(stderr, "%s:\n%s\n%s\n", what, a.c_str(), b.c_str());
  std::abort();
}

void run(Graph& graph) {
  std::vector<Tensor> inputs;
  for (Graph::Id id = 0; id < graph.values().size(); ++id) {
    const Graph::Value& v = graph.values()[id];
    if (checked_numel(v.sizes, "graph_fuzz") > kMostElements) return;
    if (v.missing) graph.set_constant(graph.name_of(id), some_tensor(v.dtype, v.sizes));
  }
  // Writes go to copies: leaves that require grad are not written.
  for (const Graph::Id id : graph.inputs())
    inputs.push_back(id == capture::kNone
                         ? Tensor()
                         : some_tensor(graph.values()[id].dtype, graph.values()[id].sizes) * 1);
  std::vector<Tensor> roots, seeds;
  for (const Tensor& t : graph.run(inputs)) {
    if (!t.defined() || t.numel() > (1 << 20)) continue;
    t.clone();
    if (!t.requires_grad()) continue;
    roots.push_back(t);
    seeds.push_back(ones_like(t));
  }
  if (!roots.empty()) autograd::backward(roots, seeds);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_num_threads(1);
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (!is_cheap(text)) return 0;
  try {
    Graph graph = Graph::parse(text);
    const std::string printed = graph.str();
    if (const std::string again = Graph::parse(printed).str(); again != printed)
      broken("a graph reads back as another one", printed, again);
    run(graph);
  } catch (const Error&) {
  }
  return 0;
}
