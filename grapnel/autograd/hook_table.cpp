#include "grapnel/autograd/hook_table.h"

#include <algorithm>
#include <mutex>

#include "grapnel/autograd/meta.h"
#include "grapnel/base/spin_lock.h"

namespace grapnel {

std::ostream& operator<<(std::ostream& out, const HookDescription& d) {
  out << grapnel::name(d.kind);
  if (!d.label.name.empty()) out << " '" << d.label.name << "'";
  if (d.label.site.known()) out << " registered at " << d.label.site.str();
  return out;
}

const HookEntry* HookEntries::find(uint64_t id) const {
  const HookEntry* const at =
      std::lower_bound(all_.begin(), all_.end(), id,
                       [](const HookEntry& e, uint64_t wanted) { return e.id < wanted; });
  return at != all_.end() && at->id == id && at->hook ? at : nullptr;
}

void HookEntries::add_stands_for(uint64_t id, uint64_t other) {
  if (const HookEntry* const found = find(id))
    all_[static_cast<size_t>(found - all_.begin())].stands_for.push_back(other);
}

HookEntry HookEntries::remove(uint64_t id) {
  const HookEntry* const found = find(id);
  if (!found) return {};
  HookEntry& entry = all_[static_cast<size_t>(found - all_.begin())];
  HookEntry removed{id, std::exchange(entry.hook, nullptr), std::move(entry.label)};
  ++gaps_;
  constexpr size_t kShort = 16;
  if (all_.size() <= kShort || 2 * gaps_ > all_.size()) {
    all_.erase(std::remove_if(all_.begin(), all_.end(), [](const HookEntry& e) { return !e.hook; }),
               all_.end());
    gaps_ = 0;
  }
  return removed;
}

HookEntries& HookLists::list(HookKind kind, uint32_t slot) {
  if (kind == HookKind::node_pre) return pre;
  if (kind == HookKind::post_accumulate) return post_accumulate;
  if (kind == HookKind::node_post) return post;
  GRAPNEL_ASSERT(kind == HookKind::tensor, name(kind), "s live elsewhere");
  for (SlotHooks& s : tensor)
    if (s.slot == slot) return s.hooks;
  return tensor.emplace_back(SlotHooks{slot, {}}).hooks;
}

template <class Change>
void HookTable::change(Change&& fn) {
  lists_.change([&](HookLists& lists) {
    lists.sole_tensor_hook = nullptr;  // in case memory runs out below
    fn(lists);
    Kinds kinds = lists.tensor.empty() ? 0 : bit(HookKind::tensor);
    if (!lists.retain.empty()) kinds |= bit(HookKind::retain_grad);
    if (!lists.pre.empty()) kinds |= bit(HookKind::node_pre);
    if (!lists.post_accumulate.empty()) kinds |= bit(HookKind::post_accumulate);
    if (!lists.post.empty()) kinds |= bit(HookKind::node_post);
    kinds_.store(kinds, std::memory_order_release);
    const bool sole =
        lists.tensor.size() == 1 && lists.tensor[0].hooks.sole() && lists.retain.empty();
    lists.sole_tensor_hook = sole ? lists.tensor.data() : nullptr;
  });
}

HookHandle HookTable::add(HookKind kind, uint32_t slot, std::shared_ptr<HookBase> hook,
                          HookOptions options, bool is_tool) {
  static_assert(every_kind_has_a_bit());
  check_options(kind, options);
  uint64_t id = 0;
  change([&](HookLists& lists) {
    id = next_hook_id();  // one writer at a time: ids in a list ascend
    lists.list(kind, slot)
        .push_back({.id = id,
                    .hook = std::move(hook),
                    .label = {std::move(options.name), options.site},
                    .is_tool = is_tool});
    if (lists.first_id == 0) lists.first_id = id;
    lists.last_id = std::max(lists.last_id, id);
  });
  return HookHandle(id, weak_from_this());
}

void HookTable::remove_hook(uint64_t id) {
  HookEntry removed;
  change([&](HookLists& lists) {
    for_each_list(lists, [&](HookKind, uint32_t, HookEntries& entries) {
      if (!removed.hook) removed = entries.remove(id);
    });
  });
}

void HookTable::remove_user_hooks() {
  std::vector<HookEntry> removed;  // dies outside the lock: what hooks hold is the user's
  change([&](HookLists& lists) {
    for_each_list(lists, [&](HookKind, uint32_t, HookEntries& entries) {
      std::vector<uint64_t> ids;
      for (const HookEntry& e : entries)
        if (!e.is_tool) ids.push_back(e.id);
      for (const uint64_t id : ids) removed.push_back(entries.remove(id));
    });
  });
}

bool HookTable::has_hook(uint64_t id) const {
  bool found = false;
  const Reader reader(lists_);
  for_each_list(reader.value(), [&](HookKind, uint32_t, const HookEntries& entries) {
    found |= entries.contains(id);
  });
  return found;
}

bool HookTable::may_have_issued(uint64_t id) const {
  const Reader reader(lists_);
  const HookLists& lists = reader.value();
  return lists.first_id != 0 && id >= lists.first_id && id <= lists.last_id;
}

void HookTable::add_retain(uint32_t slot, IntrusivePtr<AutogradMeta> tensor) {
  change([&](HookLists& lists) { lists.retain.push_back({slot, std::move(tensor)}); });
}

void HookTable::remove_retain(const AutogradMeta* tensor) {
  RetainEntry removed;
  change([&](HookLists& lists) {
    for (size_t i = 0; i < lists.retain.size(); ++i) {
      if (lists.retain[i].tensor.get() != tensor) continue;
      removed = std::move(lists.retain[i]);
      lists.retain.erase(lists.retain.begin() + static_cast<ptrdiff_t>(i));
      return;
    }
  });
}

std::vector<HookInfo> HookTable::infos() const {
  std::vector<HookInfo> out;
  const Reader reader(lists_);
  for_each_list(reader.value(), [&](HookKind kind, uint32_t slot, const HookEntries& entries) {
    for (const HookEntry& e : entries)
      out.push_back({e.id, kind, static_cast<int>(slot), e.label.name, e.label.site.str()});
  });
  return out;
}

bool HookTable::has_user_hooks() const {
  bool any = false;
  const Reader reader(lists_);
  for_each_list(reader.value(), [&](HookKind, uint32_t, const HookEntries& entries) {
    for (const HookEntry& e : entries) any |= !e.is_tool;
  });
  return any;
}

void HookTable::add_stands_for(uint64_t id, uint64_t other) {
  change([&](HookLists& lists) {
    for_each_list(lists, [&](HookKind, uint32_t, HookEntries& entries) {
      entries.add_stands_for(id, other);
    });
  });
}

bool HookTable::calls(uint64_t id) const {
  bool found = false;
  const Reader reader(lists_);
  for_each_list(reader.value(), [&](HookKind, uint32_t, const HookEntries& entries) {
    for (const HookEntry& e : entries)
      found |= e.id == id || std::ranges::find(e.stands_for, id) != e.stands_for.end();
  });
  return found;
}

const std::shared_ptr<HookTable>& LazyHooks::make() {
  if (!get()) {
    auto fresh = std::make_shared<HookTable>();
    const base::SpinGuard guard(locked_);
    if (!owner_) {
      owner_ = std::move(fresh);
      table_.store(owner_.get(), std::memory_order_release);
    }
  }
  return owner_;
}

}  // namespace grapnel
