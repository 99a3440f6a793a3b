#include "grapnel/ops/compiled_args.h"

#include <atomic>
#include <cstdlib>
#include <utility>

#include "grapnel/base/context.h"
#include "grapnel/ops/op.h"

namespace grapnel {

namespace {
/// The number of a Lifted among those of the running hook.
size_t place_in_running(const Lifted& number) {
  const int64_t place = this_context.declared->place_of(number);
  check(place >= 0,
        "a declared hook uses a Lifted number that it did not pass to args.lift(...) in "
        "compiled_args.\n"
        "It would not be read again when the hook is not called.");
  return static_cast<size_t>(place);
}

std::atomic<int64_t>& audit_interval() {
  static std::atomic<int64_t> every = [] {
    const char* text = std::getenv("GRAPNEL_AUDIT_HOOKS");
    return text ? std::strtoll(text, nullptr, 10) : 0;
  }();
  return every;
}
}  // namespace

void KeyWriter::count(uint64_t n) {
  auto write = [&](uint8_t first, size_t size) {
    bytes_.push_back(static_cast<char>(first));
    for (size_t i = 0; i < size; ++i) bytes_.push_back(static_cast<char>(n >> 8 * i));
  };
  if (n < 253) write(static_cast<uint8_t>(n), 0);
  else if (n <= 0xffff) write(253, 2);
  else if (n <= 0xffffffff) write(254, 4);
  else write(255, 8);
}

double Lifted::value() const {
  check(!this_context.declared,
        "Lifted::value: inside a declared hook a lifted number has no value, because the hook is "
        "not called "
        "in every pass.\n"
        "Compute with it as a tensor (grad * factor), or declare it as a constant: "
        "args.declare(name, "
        "factor).");
  return value_;
}

Lifted::operator Tensor() const {
  return this_context.declared ? LiftedNumber::wrap(value_, place_in_running(*this))
                               : wrap_number(value_);
}

Tensor LiftedNumber::wrap(double value, size_t place) {
  Tensor t = wrap_number(value);
  t.impl().storage->set_pending(new LiftedNumber(value, place), 0);
  return t;
}

LiftedNumber* LiftedNumber::of(const Tensor& t) {
  return t.impl().wrapped_number ? dynamic_cast<LiftedNumber*>(t.impl().storage->pending())
                                 : nullptr;
}

void LiftedNumber::materialize(Storage&) {
  fail(
      "a declared hook reads the value of a lifted number, but it is not called in every pass.\n"
      "Compute with it as a tensor, or declare it as a constant: args.declare(name, factor).");
}

DeclaredScope::DeclaredScope(const CompiledNodeArgs* args)
    : outer_(std::exchange(this_context.declared, args)) {}
DeclaredScope::~DeclaredScope() { this_context.declared = outer_; }

void set_hook_audit(int64_t every) { audit_interval() = every; }
int64_t hook_audit() { return audit_interval(); }

}  // namespace grapnel
