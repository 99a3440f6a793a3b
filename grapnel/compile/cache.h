/// The executables of the whole program, by key. Shared by all compiled functions that name the
/// same backend and options.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "grapnel/compile/executable.h"

namespace grapnel::compiler {

/// See Note [What is told apart] in told_apart.h.
struct CacheKey {
  capture::Words words;
  uint64_t hash = 0;
  CacheKey(const capture::Words& trace_words, const CompileOptions& options);
  explicit CacheKey(capture::Words all);
  friend bool operator==(const CacheKey& a, const CacheKey& b) { return a.words == b.words; }
};

/// More than a program that settles down needs; the least recently used one goes first.
inline constexpr size_t kMostExecutables = 4096;

/// The executable for `key`. The first to ask makes it, on its own thread, while others who ask for
/// the same one wait; `made` says whether it was this call. What `make` throws reaches all who
/// wait, and the next one tries again.
std::shared_ptr<const Executable> find_or_make(
    const CacheKey& key, bool& made, const std::function<std::unique_ptr<Executable>()>& make);
void evict(const CacheKey& key);
void evict_all();

}  // namespace grapnel::compiler
