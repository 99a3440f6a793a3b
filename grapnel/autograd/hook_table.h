/// The hooks of one node or leaf. Lists are versioned: whoever runs a list sees the version it
/// started with, so hooks may be added and removed at any time, from any thread, by anyone,
/// themselves included.
#pragma once

#include <atomic>
#include <memory>
#include <ostream>
#include <vector>

#include "grapnel/autograd/node.h"
#include "grapnel/base/intrusive_ptr.h"
#include "grapnel/base/pool.h"
#include "grapnel/base/small_vector.h"
#include "grapnel/base/versioned.h"

namespace grapnel {

struct AutogradMeta;
void intrusive_retain(const AutogradMeta* meta) noexcept;
void intrusive_release(const AutogradMeta* meta) noexcept;

/// Prints "tensor hook 'clip' registered at train.cpp:12". Hooks are checked at every firing, so
/// nothing is put together before it is printed.
struct HookDescription {
  const HookLabel& label;
  HookKind kind;
  friend std::ostream& operator<<(std::ostream& out, const HookDescription& d);
};
inline HookDescription describe(const HookLabel& label, HookKind kind) { return {label, kind}; }

struct HookEntry {
  uint64_t id = 0;
  std::shared_ptr<HookBase> hook;
  HookLabel label;
  /// The hooks that this one calls, if they have numbers of their own: it is a part of a compound
  /// hook, or the place of a module's hooks in one graph.
  std::vector<uint64_t> stands_for = {};
  /// A tool put it there, which would put it on another node as well: it need not be kept.
  bool is_tool = false;
};

/// Hooks of one kind in order of registration, which is that of their ids. In a long list, removing
/// leaves a gap that readers skip, until half of the list is gaps: so many hooks may be removed in
/// any order without moving the others every time.
class HookEntries {
 public:
  class Iterator {
   public:
    Iterator(const HookEntry* at, const HookEntry* end) : at_(at), end_(end) { skip_gaps(); }
    const HookEntry& operator*() const { return *at_; }
    Iterator& operator++() {
      ++at_;
      skip_gaps();
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }

   private:
    void skip_gaps() {
      while (at_ != end_ && !at_->hook) ++at_;
    }
    const HookEntry *at_, *end_;
  };
  Iterator begin() const { return {all_.begin(), all_.end()}; }
  Iterator end() const { return {all_.end(), all_.end()}; }
  size_t size() const { return all_.size() - gaps_; }
  bool empty() const { return size() == 0; }
  /// The only one; null if there are none, or more.
  const HookEntry* sole() const { return all_.size() == 1 ? &all_[0] : nullptr; }

  /// `entry` has the highest id so far.
  void push_back(HookEntry entry) { all_.push_back(std::move(entry)); }
  bool contains(uint64_t id) const { return find(id) != nullptr; }
  /// The hook of that number, which is no longer part of the list; or an empty entry.
  HookEntry remove(uint64_t id);
  /// Remembers that the hook of number `id`, if it is here, calls the hook `other`.
  void add_stands_for(uint64_t id, uint64_t other);

 private:
  const HookEntry* find(uint64_t id) const;
  SmallVector<HookEntry, 1> all_;
  size_t gaps_ = 0;
};

/// Whether hooks of the kind stand in the table of a node or leaf.
constexpr bool stands_in_table(HookKind kind) {
  switch (kind) {
    case HookKind::tensor:
    case HookKind::retain_grad:
    case HookKind::node_pre:
    case HookKind::post_accumulate:
    case HookKind::node_post: return true;
    case HookKind::capture:
    case HookKind::unpack:
    case HookKind::end_of_pass:
    case HookKind::pack:
    case HookKind::multi_grad:
    case HookKind::multi_post_accumulate:
    case HookKind::forward_pre:
    case HookKind::forward:
    case HookKind::full_backward_pre:
    case HookKind::full_backward:
    case HookKind::state_dict_pre:
    case HookKind::state_dict_post:
    case HookKind::load_state_dict_pre:
    case HookKind::load_state_dict_post:
    case HookKind::registration:
    case HookKind::step_pre:
    case HookKind::step_post:
    case HookKind::comm:
    case HookKind::after_reduction: return false;
  }
  return false;
}

struct RetainEntry {
  uint32_t slot = 0;
  IntrusivePtr<AutogradMeta> tensor;  ///< a dead tensor's place is marked as such and skipped
};

/// One version of all lists of a table.
struct HookLists : base::Pooled {
  struct SlotHooks {
    uint32_t slot = 0;
    HookEntries hooks;
  };
  SmallVector<SlotHooks, 1> tensor;  ///< in the order in which each slot got its first hook
  SmallVector<RetainEntry, 1> retain;
  HookEntries pre, post_accumulate, post;
  /// Set when one tensor hook, and no retain-grad, is all there is to run before the node: the
  /// usual case.
  const SlotHooks* sole_tensor_hook = nullptr;
  uint64_t first_id = 0, last_id = 0;  ///< ever given out

  /// Of a kind that has one.
  HookEntries& list(HookKind kind, uint32_t slot);
};

class HookTable final : public HookOwner, public std::enable_shared_from_this<HookTable> {
 public:
  HookHandle add(HookKind kind, uint32_t slot, std::shared_ptr<HookBase> hook, HookOptions options,
                 bool is_tool = false);
  void remove_hook(uint64_t id) override;
  bool has_hook(uint64_t id) const override;
  /// Whether the id was ever given out by this table, as far as can be told.
  bool may_have_issued(uint64_t id) const;

  void add_retain(uint32_t slot, IntrusivePtr<AutogradMeta> tensor);
  void remove_retain(const AutogradMeta* tensor);

  /// Whether there may be hooks of one of the kinds. Walking a node asks this first, so that kinds
  /// without hooks cost one load.
  template <std::same_as<HookKind>... Kinds>
  bool has(Kinds... kinds) const {
    return kinds_.load(std::memory_order_acquire) & (bit(kinds) | ...);
  }
  std::vector<HookInfo> infos() const;
  /// Calls visit(kind, slot, entry) for all hooks but those of tools: for collectors of other
  /// languages, which ask an entry for its hook's `foreign()`. The hook is shared while
  /// `entry.hook.use_count()` is above one: somebody runs an older version of the list.
  template <class Visit>
  void visit_user_hooks(Visit&& visit) const {
    const Reader reader(lists_);
    for_each_list(reader.value_or_empty(), [&](HookKind kind, uint32_t slot, const auto& entries) {
      for (const HookEntry& entry : entries)
        if (!entry.is_tool) visit(kind, slot, entry);
    });
  }
  /// Drops them: for collectors that found a cycle through them.
  void remove_user_hooks();
  /// Whether there are hooks besides those of tools.
  bool has_user_hooks() const;
  /// Remembers that hook `id` of this table calls the hook `other`.
  void add_stands_for(uint64_t id, uint64_t other);
  /// Whether a hook of this number, or one that stands for it, is here.
  bool calls(uint64_t id) const;

  using Reader = base::Versioned<HookLists>::Reader;
  const base::Versioned<HookLists>& lists() const { return lists_; }

 private:
  using Kinds = uint8_t;
  static constexpr Kinds bit(HookKind kind) {
    return static_cast<Kinds>(1 << static_cast<int>(kind));
  }
  static constexpr bool every_kind_has_a_bit() {
    for (int i = 0; i < kHookKinds; ++i)
      if (const auto kind = static_cast<HookKind>(i); stands_in_table(kind) && bit(kind) == 0)
        return false;
    return true;
  }
  template <class Change>
  void change(Change&& fn);
  template <class Fn>
  static void for_each_list(auto& lists, Fn&& fn) {
    for (auto& slot : lists.tensor) fn(HookKind::tensor, slot.slot, slot.hooks);
    fn(HookKind::node_pre, 0u, lists.pre);
    fn(HookKind::post_accumulate, 0u, lists.post_accumulate);
    fn(HookKind::node_post, 0u, lists.post);
  }

  base::Versioned<HookLists> lists_;
  std::atomic<Kinds> kinds_{0};  ///< one bit for each kind in lists_
};

template <std::same_as<HookKind>... Kinds>
  requires(sizeof...(Kinds) > 0)
const HookTable* Node::hooks(Kinds... kinds) const {
  const HookTable* table = hooks();
  return table && table->has(kinds...) ? table : nullptr;
}

}  // namespace grapnel
