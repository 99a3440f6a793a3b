/// How oneDNN is called here: on the calling thread alone, with memory of ours.
///
/// Debian's oneDNN computes on an OpenMP team, whose idle threads spin beside our pool and whose
/// size would reach the bits of a result. So every call happens under a OneThread guard, on tiles
/// that we cut, from our own pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/per_thread.h"

namespace grapnel::kernels {

/// While one lives, oneDNN starts no team on this thread. The user's own OpenMP setting is back
/// afterwards.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// The processor as oneDNN knows it, limited to the instruction set of base::cpu_isa.
const dnnl::engine& onednn_engine();

/// This thread's stream.
const dnnl::stream& onednn_stream();

/// Memory, aligned to 64 bytes, that grows and is used again. Two uses at once need two objects.
class Scratch {
 public:
  void* get(size_t bytes);
  float* floats(int64_t count) {
    return static_cast<float*>(get(static_cast<size_t>(count) * sizeof(float)));
  }
  double* doubles(int64_t count) {
    return static_cast<double*>(get(static_cast<size_t>(count) * sizeof(double)));
  }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  size_t size_ = 0;
};

/// The most recently used values, shared by all threads. Making a value happens outside the lock:
/// threads that miss at the same time may make it twice, and one copy is kept. Never destroyed.
template <class Key, class Value, class Hash>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(size_t capacity) : capacity_(capacity) {}

  template <class Make>
  std::shared_ptr<const Value> get(const Key& key, Make make) {
    if (auto found = find(key)) return found;
    auto made = std::make_shared<const Value>(make());
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = places_.try_emplace(key);
    if (!is_new) return place->second->second;
    order_.emplace_front(key, std::move(made));
    place->second = order_.begin();
    if (order_.size() > capacity_) {
      places_.erase(order_.back().first);
      order_.pop_back();
    }
    return order_.front().second;
  }

 private:
  std::shared_ptr<const Value> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(key);
    if (place == places_.end()) return nullptr;
    order_.splice(order_.begin(), order_, place->second);
    return place->second->second;
  }

  using Order = std::list<std::pair<Key, std::shared_ptr<const Value>>>;
  const size_t capacity_;
  base::ProcessMutex mutex_{base::ForkOrder::plans};
  Order order_;  // latest first
  std::unordered_map<Key, typename Order::iterator, Hash> places_;
};

/// Hashes a key that is an array of integers.
struct HashIntegers {
  template <class Key>
  size_t operator()(const Key& key) const {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (const int64_t value : key) {
      hash = (hash ^ static_cast<uint64_t>(value)) * 0xD6E8FEB86659FD93u;
      hash ^= hash >> 32;
    }
    return static_cast<size_t>(hash);
  }
};

}  // namespace grapnel::kernels
