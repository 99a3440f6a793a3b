#include "grapnel/compile/trace.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/base/source_site.h"
#include "grapnel/capture/graph_reader.h"

namespace grapnel::compiler {

namespace {

class Inspector final : public record::Sink {
 public:
  bool names_hooks() const override { return true; }
  void run(capture::Trace&) override {
    fail("trace: the function is too long to be recorded in one piece.");
  }
  void on_break(const record::Break& why, const capture::Trace&) override {
    fail_as<GraphBreak>(
        "trace: ", why.reason, why.site ? str(" at ", base::describe({why.site})) : "",
        ".\nA traced function computes nothing, so there is no value to read. Wrap the reader in "
        "invoke(...).");
  }
};

}  // namespace

Graph trace_list(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& fn,
                 const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    check(!inputs[i].defined() || !inputs[i].impl().storage->pending() ||
              inputs[i].impl().storage->pending() != record::open_recorder(),
          "trace: input ", i,
          " is made by the compiled function that calls trace, which has not "
          "computed it yet.\nCall trace outside of compiled functions, or on a tensor that looks "
          "like it and was made outside.");
  Inspector inspector;
  record::RecordScope scope(inspector);
  std::vector<Tensor> results;
  {
    const base::UserCodeScope user;
    results = fn(inputs);
  }
  return capture::graph_of(scope.recorder(), inputs, results);
}

}  // namespace grapnel::compiler
