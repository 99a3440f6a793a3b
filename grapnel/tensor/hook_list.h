/// HookList: hooks of one kind on an object that is no node, as modules and optimisers keep them.
///
/// The list is copy-on-write. Whoever runs it holds the version it started with, so hooks may be
/// added and removed at any time, from any thread, by anyone, themselves included. A list that was
/// never used is one null pointer.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "grapnel/base/error.h"
#include "grapnel/base/spin_lock.h"
#include "grapnel/tensor/hook.h"

namespace grapnel {

/// `Hook` is a callable, maybe with switches of its own. Copying a list copies the hooks, under new
/// ids.
template <class Hook>
class HookList {
 public:
  struct Entry {
    uint64_t id = 0;
    Hook hook;
    std::string name;
    std::source_location site;
    /// Set by HookHandle::remove(HookHandle::now): calls already arranged are off, too.
    mutable std::atomic<bool> stopped{false};

    Entry(uint64_t number, Hook h, std::string n, std::source_location s)
        : id(number), hook(std::move(h)), name(std::move(n)), site(s) {}
    /// "forward hook 'log' registered at train.cpp:12"
    std::string describe(std::string_view kind) const {
      return str(kind, name.empty() ? "" : " '", name, name.empty() ? "" : "'", " registered at ",
                 site.file_name(), ":", site.line());
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

  HookHandle add(Hook hook, std::string name, std::source_location site, bool prepend) {
    auto entry =
        std::make_shared<const Entry>(next_hook_id(), std::move(hook), std::move(name), site);
    const uint64_t id = entry->id;
    const auto state = make_state();
    state->add(std::move(entry), prepend);
    return HookHandle(id, state);
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
    if (!empty()) state_->change([](Entries& entries) { entries.clear(); });
  }

 private:
  struct State final : HookOwner {
    std::atomic<size_t> count{0};

    Snapshot snapshot() const {
      std::lock_guard guard(lock_);
      return entries_;
    }
    template <class Change>
    void change(Change&& fn) {
      // The old version, and with it the hooks it alone owns, dies outside the lock: what they
      // captured is the user's.
      Snapshot old;
      std::lock_guard guard(lock_);
      auto fresh = std::make_shared<Entries>(*entries_);
      fn(*fresh);
      count.store(fresh->size(), std::memory_order_release);
      old = std::exchange(entries_, std::move(fresh));
    }
    void add(std::shared_ptr<const Entry> entry, bool prepend) {
      change([&](Entries& entries) {
        std::erase_if(issued_, [](const auto& weak) { return weak.expired(); });
        issued_.push_back(entry);
        entries.insert(prepend ? entries.begin() : entries.end(), std::move(entry));
      });
    }
    void remove_hook(uint64_t id) override {
      change([&](Entries& entries) {
        std::erase_if(entries, [&](const auto& e) { return e->id == id; });
      });
    }
    void remove_hook_now(uint64_t id) override {
      // Hooks that were removed before are stopped, too: graphs may still hold them.
      std::vector<std::weak_ptr<const Entry>> issued;
      {
        std::lock_guard guard(lock_);
        issued = issued_;
      }
      for (const auto& weak : issued)
        if (const auto e = weak.lock(); e && e->id == id)
          e->stopped.store(true, std::memory_order_release);
      remove_hook(id);
    }
    bool has_hook(uint64_t id) const override {
      for (const auto& e : *snapshot())
        if (e->id == id) return true;
      return false;
    }

   private:
    mutable base::SpinLock lock_;
    Snapshot entries_ = std::make_shared<const Entries>();
    std::vector<std::weak_ptr<const Entry>> issued_;  ///< those that someone may still call
  };

  std::shared_ptr<State> make_state() {
    std::lock_guard guard(making_);
    if (!state_) {
      state_ = std::make_shared<State>();
      raw_.store(state_.get(), std::memory_order_release);
    }
    return state_;
  }

  base::SpinLock making_;
  std::atomic<State*> raw_{nullptr};
  std::shared_ptr<State> state_;
};

}  // namespace grapnel
