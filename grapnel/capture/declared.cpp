#include "grapnel/capture/declared.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/per_thread.h"
#include "grapnel/capture/graph_reader.h"
#include "grapnel/capture/key.h"
#include "grapnel/ops/tape.h"

namespace grapnel::capture {

namespace {

/// What one hook recorded, or why that cannot be recorded again.
struct HookBody {
  Graph graph;
  std::string why_not;
};

/// What the hook has recorded since it was called. Throws if that uses a tensor that is neither an
/// argument nor lifted.
HookBody body_of(const record::DeclaredHook& hook, const record::Recorder& recorder,
                 const RecordedSoFar& before, std::vector<Tensor> inputs,
                 const variable_list& results) {
  HookBody body;
  body.graph = graph_of(
      recorder, inputs, results,
      {.since = before, .lifted_numbers = hook.args.number_count(), .not_the_same = &body.why_not});
  const Graph& graph = body.graph;
  for (const Instruction& c : graph.instructions()) {
    if (!body.why_not.empty()) break;
    if (c.op->random) body.why_not = str("it draws random numbers (", c.op->name, ")");
    if (c.op->effect)
      body.why_not = str("it calls a function that is not recorded (", c.op->name, ")");
    for (const Graph::Id id : graph.calls().inputs_of(c))
      if (id != kNone && graph.values()[id].is_constant())
        fail("the ", hook.description(), " declares what it depends on, but uses a tensor of type ",
             graph.values()[id].dtype, graph.values()[id].sizes,
             " that it neither got as an argument nor lifted.\nPass it to args.lift(tensor) in "
             "compiled_args.");
  }
  for (const Graph::Id id : graph.outputs())
    if (id != kNone && graph.values()[id].is_constant())
      body.why_not = "its result is not what a recorded op returned";
  if (!body.why_not.empty()) body.graph = Graph();
  return body;
}

/// What a body takes: the arguments and lifted tensors.
std::vector<Tensor> inputs_of(const record::DeclaredHook& hook, const variable_list& arguments) {
  std::vector<Tensor> inputs;
  const std::vector<Tensor>& lifted = hook.args.tensors();
  inputs.reserve(arguments.size() + lifted.size() + hook.args.number_count());
  inputs.insert(inputs.end(), arguments.begin(), arguments.end());
  inputs.insert(inputs.end(), lifted.begin(), lifted.end());
  return inputs;
}

variable_list record_again(const Graph& body, const record::DeclaredHook& hook,
                           const variable_list& arguments) {
  std::vector<Tensor> inputs = inputs_of(hook, arguments);
  for (size_t i = 0; i < hook.args.number_count(); ++i)
    inputs.push_back(LiftedNumber::wrap(hook.args.number(i), i));
  return body.run(inputs);
}

/// Bodies of the whole program by key, and how often each was used.
struct Entry {
  explicit Entry(HookBody b) : body(std::move(b)) {}
  const HookBody body;
  std::atomic<int64_t> uses{0};
};
constexpr size_t kMostBodies = 4096;

struct HashOfWords {
  size_t operator()(const Words& words) const { return key::hash(words); }
};
struct Bodies {
  base::ProcessMutex mutex{base::ForkOrder::hook_bodies};
  std::unordered_map<Words, std::shared_ptr<Entry>, HashOfWords> by_key;
};
Bodies& bodies() {
  static Bodies* const instance = new Bodies;  // hooks may run until the very end
  return *instance;
}

/// Everything but values that the hook's work can depend on. A declared hook is looked up in every
/// pass, so the words are written without asking for memory; they end with the next call on this
/// thread.
const Words& key_of(const record::DeclaredHook& hook, const variable_list& arguments) {
  static constinit thread_local base::PerThread<Words> own_words;
  Words& words = own_words.get();
  words.clear();
  // Types are told apart by the address of their name, as their operator== does: two types of
  // different files, each in an unnamed namespace, may have equal names.
  key::wide(words, std::bit_cast<uint64_t>(hook.type.name()));
  words.push_back(static_cast<uint32_t>(hook.kind) | static_cast<uint32_t>(get_default_dtype())
                                                         << 8);
  words.push_back(static_cast<uint32_t>(hook.args.number_count()));
  key::bytes(words, hook.args.key());
  Storages seen;
  for (const variable_list* tensors : {&arguments, &hook.args.tensors()}) {
    words.push_back(static_cast<uint32_t>(tensors->size()));
    for (const Tensor& t : *tensors) key::look(words, t, seen);
  }
  return words;
}

bool is_due_for_audit(int64_t use) {
  const int64_t every = hook_audit();
  return every > 0 && use % every == 0;
}

}  // namespace

std::vector<Graph> hook_bodies() {
  const std::lock_guard lock(bodies().mutex);
  std::vector<Graph> graphs;
  for (const auto& [key, entry] : bodies().by_key)
    if (entry->body.why_not.empty()) graphs.push_back(entry->body.graph);
  return graphs;
}

void forget_hook_bodies() {
  const std::lock_guard lock(bodies().mutex);
  bodies().by_key.clear();
}

}  // namespace grapnel::capture

namespace grapnel::record {

using namespace capture;

variable_list call_declared(const DeclaredHook& hook, const variable_list& arguments,
                            const std::function<variable_list()>& body) {
  auto call = [&] {
    before_user_code();
    const DeclaredScope scope(&hook.args);
    return body();
  };
  // What builds a graph may switch that on and off inside, which the recorded calls do not show.
  if (GradMode::is_enabled()) return call();
  std::shared_ptr<Entry> entry;
  {
    const Words& words = key_of(hook, arguments);
    const std::lock_guard lock(bodies().mutex);
    if (const auto found = bodies().by_key.find(words); found != bodies().by_key.end())
      entry = found->second;
  }
  if (entry && !entry->body.why_not.empty()) return call();
  const bool audit = entry && is_due_for_audit(++entry->uses);
  if (entry && !audit) {
    open_recorder()->count_skipped_hook();
    return record_again(entry->body.graph, hook, arguments);
  }
  before_user_code();
  Words key = key_of(hook, arguments);  // before the hook runs, which may call other hooks
  const Recorder& recorder = *open_recorder();
  const uint64_t flushes = recorder.flushes();
  const RecordedSoFar before(recorder.trace());
  variable_list results = call();
  // A trace that was closed meanwhile, because a value was read or because it was long, does not
  // show what the hook did.
  if (recorder.flushes() != flushes) {
    check(!audit, "audit: the ", hook.description(),
          " declares what it depends on, and read a value that it did not read before.");
    return results;
  }
  HookBody seen = body_of(hook, recorder, before, inputs_of(hook, arguments), results);
  if (audit) {
    const std::string difference =
        seen.why_not.empty() ? seen.graph.difference(entry->body.graph).str() : seen.why_not;
    if (!difference.empty())
      fail("audit: the ", hook.description(),
           " declares what it depends on, but does not record what it recorded the first time: ",
           difference,
           ".\nDeclare what decided about it as a constant: args.declare(name, constants...), or "
           "lift it.");
    return results;
  }
  const std::lock_guard lock(bodies().mutex);
  if (bodies().by_key.size() >= kMostBodies) bodies().by_key.clear();
  bodies().by_key.emplace(std::move(key), std::make_shared<Entry>(std::move(seen)));
  return results;
}

}  // namespace grapnel::record
