/// What declared hooks recorded, kept to be recorded again. See Note [Declared hooks] in
/// ops/compiled_args.h.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "grapnel/capture/recorder.h"

namespace grapnel::capture {

/// The calls of one hook over its arguments and what it lifted.
class HookBody {
 public:
  /// Where an operand or result comes from.
  struct From {
    enum class What : uint8_t {
      nothing,
      argument,
      lifted_tensor,
      lifted_number,
      number,
      memory,
      result
    };
    What what = What::nothing;
    uint32_t index = 0;   ///< of the argument, tensor, number, or call
    uint32_t output = 0;  ///< of the call
    friend bool operator==(const From&, const From&) = default;
  };
  /// Reads the calls from `first` on; throws if they use a tensor that is neither an argument nor
  /// lifted. A body that cannot be recorded again has a reason instead.
  HookBody(const record::Recorder& recorder, size_t first_call, size_t first_value,
           size_t first_lifted, const record::DeclaredHook& hook, const variable_list& arguments,
           const variable_list& results);

  /// Records the calls on these arguments.
  variable_list record(const record::DeclaredHook& hook, const variable_list& arguments) const;
  const std::string& why_not() const { return why_not_; }
  /// What another body does differently; empty if nothing.
  std::string difference(const HookBody& other) const;

 private:
  struct Call {
    const Op* op;
    const void* site;
    bool inplace;
    std::vector<std::max_align_t> attrs;
    std::vector<uint64_t> attr_words;
    std::vector<From> inputs;
    friend bool operator==(const Call& a, const Call& b) {
      return a.op == b.op && a.inplace == b.inplace && a.attr_words == b.attr_words &&
             a.inputs == b.inputs;
    }
  };
  struct Number {
    DType dtype;
    uint64_t bits;
    friend bool operator==(const Number&, const Number&) = default;
  };
  struct Memory {
    DType dtype;
    Shape sizes;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  std::vector<Call> calls_;
  std::vector<Number> numbers_;
  std::vector<Memory> memories_;
  std::vector<From> results_;
  std::string why_not_;
};

/// Forgets all of them.
void forget_hook_bodies();

}  // namespace grapnel::capture
