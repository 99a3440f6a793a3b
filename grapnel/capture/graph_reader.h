/// Graphs of what has been recorded.
#pragma once

#include <string>
#include <vector>

#include "grapnel/capture/graph.h"
#include "grapnel/capture/recorder.h"

namespace grapnel::capture {

/// A place in an open recording. The default is its beginning.
struct RecordedSoFar {
  size_t calls = 0, values = 0, lifted_numbers = 0;
  RecordedSoFar() = default;
  explicit RecordedSoFar(const Trace& trace)
      : calls(trace.calls.size()),
        values(trace.values.size()),
        lifted_numbers(trace.lifted_numbers.size()) {}
};

struct ReadOptions {
  RecordedSoFar since = {};
  size_t lifted_numbers = 0;  ///< how many more inputs there are
  /// Constants are memory of the caller's itself, not the copy that the recorder took of it.
  bool borrows = false;
  /// Is told if running the graph in a recording would not record the same calls again.
  std::string* not_the_same = nullptr;
};

/// What an open recorder has written down as a function of tensors. What else it uses is a constant
/// of the graph; what was computed before `since`, one whose values are missing.
Graph graph_of(const record::Recorder& recorder, const std::vector<Tensor>& inputs,
               const std::vector<Tensor>& outputs, const ReadOptions& options = {});
/// A closed trace as a function of some of its values.
Graph graph_of(const Trace& trace, const std::vector<ValueId>& inputs,
               const std::vector<ValueId>& outputs);
/// A closed trace, without inputs, and what is still wanted of it.
Graph graph_of(const Trace& trace);

}  // namespace grapnel::capture
