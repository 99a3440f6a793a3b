#include "grapnel/functions/generator.h"

#include <bit>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <random>
#include <utility>

#include "grapnel/base/at_fork.h"
#include "grapnel/ops/record.h"
#include "grapnel/ops/vectors.h"

namespace grapnel {

namespace {
/// A few locks for all generators: nobody holds one for long, and a fork has to know them all.
struct alignas(64) Lock {
  base::ProcessMutex mutex{base::ForkOrder::generator};
};
constinit Lock locks[16];
}  // namespace

struct Generator::Impl {
  base::ProcessMutex& mutex =
      locks[(std::bit_cast<uintptr_t>(this) / sizeof(std::max_align_t)) % std::size(locks)].mutex;
  GeneratorState state;
};

Generator::Generator(uint64_t seed) : impl_(std::make_shared<Impl>()) { impl_->state.seed = seed; }

uint64_t Generator::seed() {
  std::random_device device;
  const uint64_t fresh = uint64_t{device()} << 32 | device();
  set_current_seed(fresh);
  return fresh;
}

GeneratorState Generator::state() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->state;
}
void Generator::set_state(GeneratorState state) {
  const std::lock_guard lock(impl_->mutex);
  impl_->state = state;
}

Tensor Generator::get_state() const {
  const GeneratorState now = state();
  return from_vector<int64_t>({static_cast<int64_t>(now.seed), static_cast<int64_t>(now.offset)});
}
void Generator::set_state(const Tensor& state) {
  check(state.dtype() == kInt64 && state.shape() == Shape{2},
        "Generator::set_state: a state is i64[2], got ", state.dtype(), state.shape(),
        ".\nPass what get_state() returned.");
  const std::vector<int64_t> x = to_vector<int64_t>(state);
  set_state({static_cast<uint64_t>(x[0]), static_cast<uint64_t>(x[1])});
}

Generator Generator::clone() const {
  Generator copy;
  copy.impl_->state = state();
  return copy;
}

GeneratorState Generator::advance(int64_t count) {
  const std::lock_guard lock(impl_->mutex);
  const GeneratorState now = impl_->state;
  record::on_undo([impl = impl_, now] {
    const std::lock_guard undo_lock(impl->mutex);
    impl->state = now;
  });
  impl_->state.offset += static_cast<uint64_t>(count);
  return now;
}

Generator& default_generator() {
  if (this_context.generator) return *this_context.generator;
  // Never destroyed: static objects of the user's program may still draw while they are torn down.
  static Generator* const generator = new Generator;
  return *generator;
}
void manual_seed(uint64_t seed) { default_generator().set_current_seed(seed); }

DefaultGeneratorScope::DefaultGeneratorScope(Generator generator)
    : own_(std::move(generator)), outer_(std::exchange(this_context.generator, &own_)) {}
DefaultGeneratorScope::~DefaultGeneratorScope() { this_context.generator = outer_; }

}  // namespace grapnel
