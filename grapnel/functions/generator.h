/// Where random numbers come from: a seed and a count of the numbers drawn so far.
///
/// `manual_seed(1)` makes a program's draws repeatable, whatever the number of threads: see Note
/// [Random draws] in cpu/kernels/random_kernel.h. A Generator of one's own keeps one part of a program
/// independent of the others.
#pragma once

#include <cstdint>
#include <memory>

#include "grapnel/tensor/tensor.h"

namespace grapnel {

/// All there is to remember: equal states give equal draws.
struct GeneratorState {
  uint64_t seed = 0;
  uint64_t offset = 0;
  friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

/// A counted handle, as in LibTorch: copies draw from the same sequence. Safe to use from several
/// threads.
class Generator {
 public:
  static constexpr uint64_t default_seed = 0x9E3779B97F4A7C15;

  explicit Generator(uint64_t seed = default_seed);

  uint64_t current_seed() const { return state().seed; }
  /// Starts the sequence of `seed` from its beginning.
  void set_current_seed(uint64_t seed) { set_state(GeneratorState{seed, 0}); }
  /// A seed that nobody can foresee; returns it.
  uint64_t seed();

  GeneratorState state() const;
  void set_state(GeneratorState state);
  /// The state as an i64 tensor of two elements, for checkpoints.
  Tensor get_state() const;
  void set_state(const Tensor& state);
  /// An independent generator in the same state.
  Generator clone() const;

  /// The state for a fill of `count` elements; the next fill starts behind it.
  GeneratorState advance(int64_t count);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// The one that `rand` and friends use when none is given: that of the calling thread if it has one
/// of its own, else that of the process. Its seed is always the same until manual_seed changes it.
Generator& default_generator();
/// Seeds the default generator of the calling thread, so that what follows draws the same numbers in
/// every run.
void manual_seed(uint64_t seed);

/// While it lives, this thread's default generator is the given one. Threads that are ranks have
/// one each, so that what a rank draws does not depend on the others.
class DefaultGeneratorScope {
 public:
  explicit DefaultGeneratorScope(Generator generator);
  ~DefaultGeneratorScope();
  DefaultGeneratorScope(const DefaultGeneratorScope&) = delete;
  DefaultGeneratorScope& operator=(const DefaultGeneratorScope&) = delete;

 private:
  Generator own_;
  Generator* outer_;
};

}  // namespace grapnel
