/// The words of Note [Keys].
#pragma once

#include "grapnel/capture/trace.h"

namespace grapnel::capture::key {

/// A number was lifted.
void number(Trace& trace, const Value& value);
/// A tensor appeared for the first time.
void value(Trace& trace, const Value& value, bool with_sizes);
/// A call is about to be appended.
void call(Trace& trace, const Instruction& call);

/// Hash of all words.
uint64_t hash(const std::vector<uint32_t>& words);

}  // namespace grapnel::capture::key
