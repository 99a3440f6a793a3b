#include "grapnel/compile/trace.h"

#include "grapnel/base/source_site.h"
#include "grapnel/capture/recorder.h"
#include "grapnel/ops/on_failure.h"

namespace grapnel::compile_detail {

namespace {

class Inspector final : public record::Sink {
 public:
  bool names_hooks() const override { return true; }
  void run(capture::Trace&) override {
    fail("trace: the function is too long to be recorded in one piece.");
  }
  void on_break(const record::Break& why, const capture::Trace&) override {
    fail("trace: ", why.reason, why.site ? str(" at ", base::describe({why.site})) : "",
         ".\nA traced function computes nothing, so there is no value to read. Wrap the reader in "
         "invoke(...).");
  }
};

}  // namespace

Graph trace_list(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& fn,
                 const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    check(!record::active() || !inputs[i].defined() || !inputs[i].impl().storage->pending() ||
              record::is_lost(inputs[i]),
          "trace: input ", i, " is made by the compiled function that calls trace, which has not "
          "computed it yet.\nCall trace outside of compiled functions, or on a tensor that looks "
          "like it and was made outside.");
  Inspector inspector;
  record::RecordScope scope(inspector);
  std::vector<capture::ValueId> in, out;
  for (const Tensor& t : inputs) in.push_back(scope.recorder().value_of(t));
  std::vector<Tensor> results;
  {
    const base::UserCodeScope user;
    results = fn(inputs);
  }
  for (const Tensor& t : results)
    out.push_back(t.defined() ? scope.recorder().value_of(t) : capture::kNone);
  return Graph::from_trace(scope.recorder().trace(), in, out);
}

}  // namespace grapnel::compile_detail
