#include "python/src/collector.h"

#include <algorithm>
#include <any>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/function.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/op_node.h"
#include "python/src/callable.h"
#include "python/src/function.h"
#include "python/src/node_type.h"
#include "python/src/type_slots.h"

namespace grapnel::python {

namespace {

// --- everything behind the objects ---

using Id = uint32_t;

struct Thing {
  enum class Kind : uint8_t { header, meta, node } kind;
  bool used_elsewhere =
      false;  ///< by somebody who is no object of Python's, or something such a one leads to
  bool has_object = false, counted = false, reached = false;
  const void* address;
  uint32_t owners;     ///< in all
  uint32_t found = 0;  ///< of them
  uint32_t first_owned = 0, end_owned = 0, first_reference = 0, end_reference = 0;
  Id island;  ///< another thing of the same one, or itself
};

class Map {
 public:
  Map();
  /// The number of a header's or node's thing, if it is worth anything.
  const Id* find(const void* address) const {
    const auto found = ids_.find(address);
    return found == ids_.end() || things_[found->second].used_elsewhere ? nullptr : &found->second;
  }
  /// Whether the collector has counted the references of this object before: then it starts anew.
  bool has_counted(const void* address) const {
    const auto found = ids_.find(address);
    return found != ids_.end() && things_[found->second].counted;
  }
  int count(Id id, visitproc visit, void* arg);
  int reach(Id id, visitproc visit, void* arg);

 private:
  struct Island {
    uint32_t objects = 0, counted = 0;
    std::vector<Id> things;
  };

  Id add(Thing::Kind kind, const void* address, uint32_t owners);
  void own(Thing::Kind kind, const void* address, uint32_t owners) {
    const Id id = add(kind, address, owners);  // may move the things
    ++things_[id].found;
    owned_.push_back(id);
  }
  void own(const Tensor& t) {
    if (t.defined()) own(Thing::Kind::header, t.impl_ptr(), t.use_count());
  }
  void own(const AutogradMeta* meta) { own(Thing::Kind::meta, meta, meta->refs.use_count()); }
  void own(const NodePtr& node) {
    if (node) own(Thing::Kind::node, node.get(), node->use_count());
  }
  void refer(const Held& held) {
    // One reference of Python's stands for all copies.
    if (held.copies() == 1) references_.push_back(held.get());
  }
  void own_hooks(const HookTable* table);
  void own_saved(const SavedVariable& saved);
  void look_into(const AutogradMeta& meta);
  void look_into(Node& node);
  void mark_used_elsewhere();
  void find_islands();
  Id island_of(Id id);

  std::unordered_map<const void*, Id> ids_;
  std::vector<Thing> things_;
  std::vector<Id> owned_;
  std::vector<PyObject*> references_;
  std::unordered_map<Id, Island> islands_;
};

Enlisted tensors{&tensors, &tensors}, nodes{&nodes, &nodes};

template <class Object>
Object* object_at(Enlisted* link) {
  return reinterpret_cast<Object*>(reinterpret_cast<char*>(link) - offsetof(Object, enlisted));
}

Map::Map() {
  for (Enlisted* at = tensors.after; at != &tensors; at = at->after) {
    const PyTensor* const object = object_at<PyTensor>(at);
    if (!find_meta(object->tensor)) continue;
    Thing& thing =
        things_[add(Thing::Kind::header, object->tensor.impl_ptr(), object->tensor.use_count())];
    thing.found += 1 + object->co_owners;
    thing.has_object = true;
  }
  for (Enlisted* at = nodes.after; at != &nodes; at = at->after) {
    const PyNode* const object = object_at<PyNode>(at);
    if (!object->node) continue;
    Thing& thing = things_[add(Thing::Kind::node, object->node.get(), object->node->use_count())];
    ++thing.found;
    thing.has_object = true;
  }
  for (Id id = 0; id < things_.size(); ++id) {
    const auto [kind, address] = std::pair(things_[id].kind, things_[id].address);
    const auto owned = static_cast<uint32_t>(owned_.size()),
               references = static_cast<uint32_t>(references_.size());
    if (kind == Thing::Kind::node) look_into(*static_cast<Node*>(const_cast<void*>(address)));
    else if (kind == Thing::Kind::meta) look_into(*static_cast<const AutogradMeta*>(address));
    else if (const AutogradMeta* meta = static_cast<const TensorImpl*>(address)->autograd)
      own(meta);
    things_[id].first_owned = owned;
    things_[id].end_owned = static_cast<uint32_t>(owned_.size());
    things_[id].first_reference = references;
    things_[id].end_reference = static_cast<uint32_t>(references_.size());
  }
  mark_used_elsewhere();
  find_islands();
}

Id Map::add(Thing::Kind kind, const void* address, uint32_t owners) {
  const auto id = static_cast<Id>(things_.size());
  const auto [found, fresh] = ids_.try_emplace(address, id);
  if (fresh) things_.push_back({.kind = kind, .address = address, .owners = owners, .island = id});
  return found->second;
}

void Map::own_hooks(const HookTable* table) {
  if (!table) return;
  const HookTable::Reader reader(table->lists());
  for (const RetainEntry& entry : reader.value_or_empty().retain) own(entry.tensor.get());
  if (table->weak_from_this().use_count() != 1) return;
  table->visit_user_hooks([&](HookKind, uint32_t, const HookEntry& entry) {
    const auto* const callable = static_cast<const Callable*>(entry.hook->foreign());
    if (!callable || entry.hook.use_count() != 1) return;
    refer(callable->function);
    if (callable->declaration.use_count() == 1) refer(callable->declaration->owners);
  });
}

void Map::own_saved(const SavedVariable& saved) {
  own(saved.history().node);
  const auto* const packed =
      saved.packed() ? std::any_cast<std::shared_ptr<std::any>>(saved.packed()) : nullptr;
  if (!packed || packed->use_count() != 1) return;
  if (const auto* held = std::any_cast<Held>(packed->get())) refer(*held);
}

void Map::look_into(const AutogradMeta& meta) {
  own(meta.grad);
  own(meta.grad_fn);
  own(meta.borrowed_accumulator);
  if (meta.view) own(meta.view->base);
  own_hooks(meta.hooks.get());
}

void Map::look_into(Node& node) {
  for (const Edge& edge : node.next_edges()) own(edge.node);
  if (const auto* const leaf_node = dynamic_cast<const AccumulateGrad*>(&node))
    return own(leaf_node->leaf());
  own_hooks(node.hooks());
  if (auto* const op = dynamic_cast<OpNode*>(&node)) {
    for (const SavedVariable& saved : op->saved()) own_saved(saved);
  } else if (auto* const function = dynamic_cast<autograd::FunctionNode*>(&node)) {
    for (const SavedVariable& saved : function->saved_slots()) own_saved(saved);
    if (const FunctionState* const state = FunctionState::of(node);
        state && function->owned.use_count() == 1)
      for (const Held* held : {&state->type, &state->dict, &state->backward}) refer(*held);
  }
}

void Map::mark_used_elsewhere() {
  std::vector<Id> left;
  for (Id id = 0; id < things_.size(); ++id)
    if (things_[id].found != things_[id].owners) left.push_back(id);
  while (!left.empty()) {
    Thing& thing = things_[left.back()];
    left.pop_back();
    if (std::exchange(thing.used_elsewhere, true)) continue;
    left.insert(left.end(), owned_.begin() + thing.first_owned, owned_.begin() + thing.end_owned);
  }
}

Id Map::island_of(Id id) {
  while (things_[id].island != id) id = things_[id].island = things_[things_[id].island].island;
  return id;
}

void Map::find_islands() {
  for (Id id = 0; id < things_.size(); ++id) {
    if (things_[id].used_elsewhere) continue;
    for (uint32_t i = things_[id].first_owned; i < things_[id].end_owned; ++i)
      if (!things_[owned_[i]].used_elsewhere) things_[island_of(owned_[i])].island = island_of(id);
  }
  for (Id id = 0; id < things_.size(); ++id) {
    const Thing& thing = things_[id];
    if (thing.used_elsewhere) continue;
    Island& island = islands_[island_of(id)];
    island.objects += thing.has_object;
    if (thing.first_reference != thing.end_reference) island.things.push_back(id);
  }
}

int Map::count(Id id, visitproc visit, void* arg) {
  Island& island = islands_[island_of(id)];
  things_[id].counted = true;
  if (++island.counted != island.objects) return 0;
  for (const Id thing : island.things)
    for (uint32_t i = things_[thing].first_reference; i < things_[thing].end_reference; ++i)
      Py_VISIT(references_[i]);
  return 0;
}

int Map::reach(Id id, visitproc visit, void* arg) {
  std::vector<Id> left{id};
  while (!left.empty()) {
    Thing& thing = things_[left.back()];
    left.pop_back();
    if (thing.used_elsewhere || std::exchange(thing.reached, true)) continue;
    for (uint32_t i = thing.first_reference; i < thing.end_reference; ++i) Py_VISIT(references_[i]);
    left.insert(left.end(), owned_.begin() + thing.first_owned, owned_.begin() + thing.end_owned);
  }
  return 0;
}

// --- collections ---

/// What Python's collector calls tp_traverse with: first to subtract references from counts, then to follow them from what is in use.
visitproc visit_to_count = nullptr, visit_to_reach = nullptr;
bool is_full = false;  ///< a collection that looks at everything is under way
std::unique_ptr<Map> map;

enum class Asks : uint8_t { count, reach, nothing, outside };
Asks who_asks(visitproc visit) {
  if (!is_full) return Asks::outside;
  return visit == visit_to_count   ? Asks::count
         : visit == visit_to_reach ? Asks::reach
                                   : Asks::nothing;
}

int visit_by_map(Asks asks, const void* thing, visitproc visit, void* arg) {
  // When it counts a second time, finalizers have run, which may have changed everything.
  if (asks == Asks::count && (!map || map->has_counted(thing))) {
    try {
      map = std::make_unique<Map>();
    } catch (...) {
      is_full = false;  // no memory: everything counts as used
      map.reset();
    }
  }
  const Id* const id = map ? map->find(thing) : nullptr;
  if (!id) return 0;
  return asks == Asks::count ? map->count(*id, visit, arg) : map->reach(*id, visit, arg);
}

PyObject* on_collection(PyObject*, PyObject* args) {
  const char* moment = nullptr;
  PyObject* info = nullptr;
  if (!PyArg_ParseTuple(args, "sO:on_collection", &moment, &info)) return nullptr;
  PyObject* const generation =
      PyDict_Check(info) ? PyDict_GetItemString(info, "generation") : nullptr;
  map.reset();
  is_full = std::string_view(moment) == "start" && generation && PyLong_AsLong(generation) == 2 &&
            visit_to_reach && Held::any_alive() && !WithoutInterpreter::anywhere();
  Py_RETURN_NONE;
}
PyMethodDef collection_method = {"_on_collection", on_collection, METH_VARARGS, nullptr};

/// Learns what the collector calls tp_traverse with, by an object that it comes by in a small collection.
void learn_visits() {
  PyType_Slot slots[] = {{Py_tp_traverse, slot(+[](PyObject* self, visitproc visit, void* arg) {
                            if (!visit_to_count) visit_to_count = visit;
                            else if (visit != visit_to_count && !visit_to_reach)
                              visit_to_reach = visit;
                            Py_VISIT(Py_TYPE(self));
                            return 0;
                          })},
                         {0, nullptr}};
  PyType_Spec spec = {"grapnel._core.Probe", sizeof(PyObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
  const nb::object type = nb::steal(PyType_FromSpec(&spec));
  if (!type.is_valid()) throw nb::python_error();
  const nb::object probe = nb::steal(PyObject_CallNoArgs(type.ptr()));
  if (!probe.is_valid()) throw nb::python_error();
  nb::module_::import_("gc").attr("collect")(0);
}

void enlist(Enlisted& link, Enlisted& list) {
  link = {&list, list.after};
  list.after->before = &link;
  list.after = &link;
}

/// Hooks on a leaf that only its object and the modules and optimisers that keep it have.
int visit_own_hooks(const PyTensor* object, visitproc visit, void* arg) {
  const AutogradMeta* const meta = find_meta(object->tensor);
  const HookTable* const table = meta ? meta->hooks.get() : nullptr;
  if (!table || object->tensor.use_count() != 1 + object->co_owners) return 0;
  int stop = 0;
  table->visit_user_hooks([&](HookKind, uint32_t, const HookEntry& entry) {
    const auto* const callable = static_cast<const Callable*>(entry.hook->foreign());
    if (!stop && callable && entry.hook.use_count() == 1 && callable->function.copies() == 1)
      stop = visit(callable->function.get(), arg);
  });
  return stop;
}

}  // namespace

void enlist_tensor(PyTensor* object) { enlist(object->enlisted, tensors); }
void enlist_node(PyNode* object) { enlist(object->enlisted, nodes); }

int visit_behind(const PyTensor* object, visitproc visit, void* arg) {
  const Asks asks = who_asks(visit);
  if (asks == Asks::outside) return visit_own_hooks(object, visit, arg);
  if (asks == Asks::nothing || !find_meta(object->tensor)) return 0;
  return visit_by_map(asks, object->tensor.impl_ptr(), visit, arg);
}

int visit_behind(const PyNode* object, visitproc visit, void* arg) {
  const Asks asks = who_asks(visit);
  if (asks == Asks::nothing || !object->node) return 0;
  if (asks != Asks::outside) return visit_by_map(asks, object->node.get(), visit, arg);
  // A function's node, with the dictionary that lies in its state, may live only as long as this object.
  const FunctionState* const state =
      object->node->use_count() == 1 ? FunctionState::of(*object->node) : nullptr;
  if (state && object->dict && state->dict.get() == object->dict)
    Py_VISIT(object->dict);  // the state's count of it
  return 0;
}

void bind_collector(nb::module_&) {
  learn_visits();
  const nb::object callback = nb::steal(PyCFunction_New(&collection_method, nullptr));
  if (!callback.is_valid()) throw nb::python_error();
  nb::module_::import_("gc").attr("callbacks").attr("append")(callback);
}

}  // namespace grapnel::python
