/// Picture: one compiled step as a drawing: ops, the kernels they were fused into, and the hooks
/// that recorded them.
///
/// A Probe fills it while the step runs, so it shows what really happened. `dot()` is for Graphviz,
/// which does the layout.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "grapnel/capture/trace.h"
#include "grapnel/compile/observe.h"

namespace command {

class Picture {
 public:
  /// A hook that was called while the step was recorded, with the calls it recorded: [begin, end).
  struct Hook {
    std::string name, tensor;
    uint32_t begin = 0, end = 0;
    uint32_t source = grapnel::capture::kNone;  ///< the call that made the gradient it was given
  };
  struct Phase {
    std::string name;
    uint32_t begin = 0;
  };
  struct Style {
    std::set<std::string> phases = {"forward", "backward"};
    bool kernels = true;  ///< boxes around what was fused
  };

  /// Tensors from outside that have a name.
  std::map<const void*, std::string> names;
  std::vector<Hook> hooks;
  std::vector<Phase> phases;

  void add_graph(const grapnel::capture::Trace& trace);
  void add_item(const grapnel::RunObserver::Item& item);
  bool empty() const { return calls_.empty(); }
  size_t kernel_count() const { return kernels_.size(); }

  std::string dot(const Style& style) const;
  std::string dot() const { return dot(Style()); }

 private:
  struct Call {
    std::string op, type;     ///< "mul", "f32[16,1,3,3]"
    std::vector<int> inputs;  ///< positions of calls, or ~number of a source
    int kernel = -1;
    bool ran = false;
  };
  std::string phase_of(uint32_t call) const;
  int hook_of(uint32_t call) const;
  void draw_call(std::string& text, uint32_t call) const;

  std::vector<Call> calls_;
  std::vector<std::string> sources_;
  std::vector<std::vector<uint32_t>> kernels_;
};

/// Runs Graphviz. Throws when it is not installed or refuses.
std::string svg_of(const std::string& dot);

}  // namespace command
