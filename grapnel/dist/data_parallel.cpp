#include "grapnel/dist/data_parallel.h"

#include <exception>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/dist/hooks.h"
#include "grapnel/dist/reducer.h"
#include "grapnel/dist/replicas.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::dist {

namespace {

/// Stands between the outputs of the module and what uses them. A pass that starts from some of the
/// outputs so reaches all of them, with undefined gradients where there are none.
class OutputMarker final : public Node {
 public:
  explicit OutputMarker(std::weak_ptr<Reducer> reducer) : reducer_(std::move(reducer)) {}
  std::string name() const override { return "data_parallel_outputs"; }
  Grads apply(Grads grads) override {
    if (const auto reducer = reducer_.lock()) reducer->on_outputs();
    return grads;
  }
  Tensor mark(const Tensor& t) {
    add_next_edge(gradient_edge(t));
    const uint32_t slot = add_slot(t);
    Tensor out = t.detach();
    set_history(out, NodePtr(this), slot);
    return out;
  }

 private:
  std::weak_ptr<Reducer> reducer_;
};

std::vector<Parameter> trained_parameters(const nn::Module& module) {
  std::vector<Parameter> out;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) out.push_back({item.key(), item.value()});
  return out;
}

}  // namespace

std::shared_ptr<ProcessGroup> detail::StateOf<ProcessGroup&>::hold(const ProcessGroup& group) {
  return std::make_shared<ProcessGroup>(group);
}

NoSync::NoSync(DataParallelModule& model) : model_(model), before_(model.sync_) {
  check(!model.optimizer_inside_,
        "no_sync: the optimiser runs inside backward, so gradients cannot accumulate.");
  model.sync_ = false;
}
NoSync::~NoSync() { model_.sync_ = before_; }

DataParallelModule::DataParallelModule(std::shared_ptr<nn::Module> module, ProcessGroup group,
                                       DataParallelOptions options)
    : nn::Module("DistributedDataParallel"),
      inner_(std::move(module)),
      options_(std::move(options)),
      exceptions_(std::uncaught_exceptions()) {
  check(inner_ != nullptr, "DistributedDataParallel: the module is empty.");
  check(static_cast<bool>(group),
        "DistributedDataParallel: the group is empty.\nGet one from dist::init() or "
        "dist::run_threads().");
  register_module("module", inner_);
  std::vector<Parameter> parameters = trained_parameters(*inner_);
  check(!parameters.empty(),
        "DistributedDataParallel: the module has no parameter that requires grad, so there is "
        "nothing to average.");
  given_ = group;
  // Wrappers must not get into each other's way, so each has an order of its own.
  const ProcessGroup own = group.duplicate("data parallel");
  check_same_parameters(parameters, own);
  std::vector<Tensor> state = inner_->parameters();
  for (const Tensor& t : inner_->buffers()) state.push_back(t);
  broadcast_tensors(state, own);
  buffer_channel_ = own.channel("buffers");
  reducer_ = std::make_shared<Reducer>(std::move(parameters), own, options_);
  reducer_->listen();
  if (options_.reduced_precision)
    reducer_->set_hook(
        {"of reduced precision", hooks::reduce_in(options_.reduced_precision->reduce)});
}

DataParallelModule::~DataParallelModule() {
  if (std::uncaught_exceptions() <= exceptions_) return;
  try {
    group().abort("an exception ended the scope of its DistributedDataParallel");
  } catch (...) {
    // The exception that is under way says more.
  }
}

void DataParallelModule::reset(const ProcessGroup& group) {
  check(static_cast<bool>(group), "reset: the group is empty.");
  given_ = group;
  const ProcessGroup own = group.duplicate("data parallel");
  buffer_channel_ = own.channel("buffers");
  reducer_->reset(own);
}

void DataParallelModule::set_static_graph() { reducer_->set_static_graph(); }
const ProcessGroup& DataParallelModule::group() const { return reducer_->group(); }
ReducerStats DataParallelModule::stats() const { return reducer_->stats(); }
std::vector<std::vector<size_t>> DataParallelModule::bucket_layout() const {
  return reducer_->layout();
}
bool DataParallelModule::marks_outputs() const {
  return syncing_ &&
         (reducer_->options().find_unused_parameters || reducer_->options().static_graph);
}
HookHandle DataParallelModule::add_after_reduction_hook(const Tensor& parameter,
                                                        std::function<void(const Tensor&)> hook,
                                                        HookOptions options) {
  return reducer_->add_after_reduction_hook(parameter, std::move(hook), std::move(options));
}
void DataParallelModule::set_hook(CommHook hook) { reducer_->set_hook(std::move(hook)); }

void DataParallelModule::register_builtin_comm_hook(std::string_view name) {
  set_hook({std::string(name), hooks::by_name(name)});
}

void DataParallelModule::register_optimizer_in_backward(
    std::shared_ptr<optim::Optimizer> optimizer) {
  check(optimizer != nullptr, "register_optimizer_in_backward: the optimiser is null.");
  CommHook hook{"optimizer_in_backward",
                hooks::hook_then_optimizer(hooks::allreduce, std::move(optimizer)), true};
  reducer_->set_hook(std::move(hook));
  optimizer_inside_ = true;
}

std::vector<Tensor> DataParallelModule::buffers_to_sync() const {
  return options_.broadcast_buffers ? inner_->buffers() : std::vector<Tensor>();
}

void DataParallelModule::before_forward() {
  reducer_->check_usable();
  syncing_ = sync_ && GradMode::is_enabled();
  if (on_forward_) on_forward_(*this);
  if (syncing_) reducer_->before_forward();
  if (sync_)
    if (const auto buffers = buffers_to_sync(); !buffers.empty())
      broadcast_tensors(buffers, buffer_channel_, buffers_from_);
  if (GradMode::is_enabled()) reducer_->lower_precision();
  if (!syncing_) reducer_->disarm();
}

void DataParallelModule::after_forward(nn::Value& result) {
  if (!syncing_) return;
  IntrusivePtr<OutputMarker> marker;
  if (!marks_outputs()) return reducer_->prepare();
  result.visit_tensors([&](Tensor& t) {
    if (!t.defined() || !t.requires_grad()) return;
    if (!marker) marker = IntrusivePtr<OutputMarker>::adopt(new OutputMarker(reducer_));
    t = marker->mark(t);
  });
  reducer_->prepare();
}

nn::StateDict DataParallelModule::wrapper_state() const {
  nn::StateDict state;
  const ReducerStats stats = reducer_->stats();
  const auto add = [&](const char* name, const std::vector<int64_t>& values) {
    state.insert(name, from_vector(values));
  };
  add("iterations", {stats.iterations});
  add("rebuilt", {stats.rebuilt});
  std::vector<int64_t> members, sizes;
  for (const auto& bucket : reducer_->layout()) {
    sizes.push_back(static_cast<int64_t>(bucket.size()));
    for (size_t i : bucket) members.push_back(static_cast<int64_t>(i));
  }
  add("bucket_sizes", sizes);
  add("bucket_members", members);
  add("firings", reducer_->expected_firings());
  return state;
}

void DataParallelModule::load_wrapper_state(const nn::StateDict& state) {
  const auto get = [&](const char* name) {
    const Tensor* t = state.find(name);
    check(t != nullptr && t->dtype() == kInt64 && t->dim() == 1,
          "load_wrapper_state: there is no entry ", name, " of whole numbers.");
    return to_vector<int64_t>(*t);
  };
  const std::vector<int64_t> members = get("bucket_members"), sizes = get("bucket_sizes"),
                             iterations = get("iterations"), rebuilt = get("rebuilt");
  check(iterations.size() == 1 && rebuilt.size() == 1,
        "load_wrapper_state: iterations and rebuilt must be single numbers.");
  std::vector<std::vector<size_t>> layout;
  size_t at = 0;
  for (int64_t size : sizes) {
    check(size > 0 && at + static_cast<size_t>(size) <= members.size(),
          "load_wrapper_state: the bucket sizes do not fit the members.");
    layout.emplace_back();
    for (int64_t i = 0; i < size; ++i) layout.back().push_back(static_cast<size_t>(members[at++]));
  }
  reducer_->restore(iterations[0], rebuilt[0] != 0, std::move(layout), get("firings"));
}

}  // namespace grapnel::dist
