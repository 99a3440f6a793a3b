/// HookList: hooks of one kind on an object that is no node, as modules and optimisers keep them.
///
/// Whoever runs the list holds a copy of it as it was at the start, so hooks may be added and
/// removed at any time, from any thread, by anyone, themselves included. The copy is made when
/// somebody asks for it after a change, so that many changes in a row cost no more than each by
/// itself. A list that was never used is one null pointer.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "grapnel/base/error.h"
#include "grapnel/base/place.h"
#include "grapnel/tensor/hook.h"

namespace grapnel {

/// One byte, held for a few instructions.
class HookListLock {
 public:
  void lock() noexcept;
  void unlock() noexcept;

 private:
  std::atomic<bool> taken_{false};
};

/// `Hook` is a callable, maybe with switches of its own. Copying a list copies the hooks, under new
/// ids.
template <class Hook>
class HookList {
 public:
  struct Entry {
    uint64_t id = 0;
    Hook hook;
    std::string name;
    base::SourceLine site;
    /// Set by HookHandle::remove(HookHandle::now): calls already arranged are off, too.
    mutable std::atomic<bool> stopped{false};

    Entry(uint64_t number, Hook h, std::string n, base::SourceLine s)
        : id(number), hook(std::move(h)), name(std::move(n)), site(s) {}
    /// "forward hook 'log' registered at train.cpp:12"
    std::string describe(std::string_view kind) const {
      return str(kind, name.empty() ? "" : " '", name, name.empty() ? "" : "'",
                 site.known() ? " registered at " : "", site.str());
    }
  };
  using Entries = std::vector<std::shared_ptr<const Entry>>;
  using Snapshot = std::shared_ptr<const Entries>;

  HookList() = default;
  HookList(const HookList& other) { *this = other; }
  HookList& operator=(const HookList& other) {
    if (this == &other) return *this;
    clear();
    if (const Snapshot entries = other.snapshot())
      for (const auto& e : *entries) add(e->hook, e->name, e->site, false);
    return *this;
  }

  HookHandle add(HookKind kind, Hook hook, HookOptions options) {
    check_options(kind, options);
    return add(std::move(hook), std::move(options.name), options.site, options.prepend);
  }
  bool empty() const {
    const State* state = raw_.load(std::memory_order_acquire);
    return !state || state->count.load(std::memory_order_acquire) == 0;
  }
  /// Null when empty.
  Snapshot snapshot() const { return empty() ? nullptr : state_->snapshot(); }
  void remove(uint64_t id) {
    if (!empty()) state_->remove_hook(id);
  }
  void clear() {
    if (!empty()) state_->clear();
  }

 private:
  struct State final : HookOwner {
    std::atomic<size_t> count{0};

    Snapshot snapshot() const {
      std::lock_guard guard(lock_);
      if (!snapshot_) {
        auto fresh = std::make_shared<Entries>();
        fresh->reserve(by_place_.size());
        for (const auto& [place, entry] : by_place_) fresh->push_back(entry);
        snapshot_ = std::move(fresh);
      }
      return snapshot_;
    }
    void add(std::shared_ptr<const Entry> entry, bool prepend) {
      Snapshot old;
      std::lock_guard guard(lock_);
      if (issued_.size() >= forget_at_) {
        std::erase_if(issued_, [](const auto& known) { return known.second.expired(); });
        forget_at_ = 2 * issued_.size() + 16;
      }
      issued_.emplace(entry->id, entry);
      const auto id = static_cast<int64_t>(entry->id);
      by_place_.emplace(prepend ? -id : id, std::move(entry));
      changed(old);
    }
    void clear() {
      Places dying;
      Snapshot old;
      std::lock_guard guard(lock_);
      dying.swap(by_place_);
      changed(old);
    }
    void remove_hook(uint64_t id) override {
      typename Places::node_type dying;
      Snapshot old;
      std::lock_guard guard(lock_);
      dying = by_place_.extract(static_cast<int64_t>(id));
      if (dying.empty()) dying = by_place_.extract(-static_cast<int64_t>(id));
      if (!dying.empty()) changed(old);
    }
    void remove_hook_now(uint64_t id) override {
      // Hooks that were removed before are stopped, too: graphs may still hold them.
      std::shared_ptr<const Entry> entry;
      {
        std::lock_guard guard(lock_);
        if (const auto known = issued_.find(id); known != issued_.end())
          entry = known->second.lock();
      }
      if (entry) entry->stopped.store(true, std::memory_order_release);
      remove_hook(id);
    }
    bool has_hook(uint64_t id) const override {
      std::lock_guard guard(lock_);
      const auto place = static_cast<int64_t>(id);
      return by_place_.contains(place) || by_place_.contains(-place);
    }

   private:
    /// Keyed by the id, or by minus the id for prepended ones, which puts them in order of calling.
    using Places = std::map<int64_t, std::shared_ptr<const Entry>>;
    /// With the lock held. What dies, dies after the lock: what hooks captured is the user's.
    void changed(Snapshot& old) {
      count.store(by_place_.size(), std::memory_order_release);
      old.swap(snapshot_);
    }

    mutable HookListLock lock_;
    Places by_place_;
    mutable Snapshot snapshot_;  ///< of by_place_; null if nobody has asked since it changed
    /// Those that someone may still call.
    std::map<uint64_t, std::weak_ptr<const Entry>> issued_;
    size_t forget_at_ = 16;
  };

  HookHandle add(Hook hook, std::string name, base::SourceLine site, bool prepend) {
    auto entry =
        std::make_shared<const Entry>(next_hook_id(), std::move(hook), std::move(name), site);
    const uint64_t id = entry->id;
    const auto state = make_state();
    state->add(std::move(entry), prepend);
    return HookHandle(id, state);
  }
  std::shared_ptr<State> make_state() {
    std::lock_guard guard(making_);
    if (!state_) {
      state_ = std::make_shared<State>();
      raw_.store(state_.get(), std::memory_order_release);
    }
    return state_;
  }

  HookListLock making_;
  std::atomic<State*> raw_{nullptr};
  std::shared_ptr<State> state_;
};

/// For catch blocks: tells the exception that it came through that hook.
void note_failure_of(const std::string& hook, const std::type_info* owner) noexcept;

/// Calls each hook of a list as it is now. What goes wrong in one is told with its name: it is a
/// `kind`, of an `owner` if one is given.
template <class Hook, class Call>
void call_hooks(const HookList<Hook>& list, HookKind kind, const std::type_info* owner,
                Call&& call) {
  const auto entries = list.snapshot();
  if (!entries) return;
  const base::HookCodeScope user;
  for (const auto& entry : *entries) {
    try {
      call(entry->hook);
    } catch (...) {
      note_failure_of(entry->describe(grapnel::name(kind)), owner);
      throw;
    }
  }
}

}  // namespace grapnel
