/// What calls of compiled and of replayed functions are told apart by.
///
/// Note [What is told apart]
/// Two calls may share what was made for the first of them only if everything in which they differ
/// is read anew at every call. This table is the list of all there is, and where each is looked at.
/// Whoever adds a state of a thread or of the program that changes what an op does adds a line here;
/// tests/compile/told_apart_test.cpp varies every fact that is no part of a key and compares with
/// eager mode, and does not compile without an answer for a new one.
#pragma once

#include <cstdint>
#include <string_view>

namespace grapnel::compiler {

/// Facts about a call, in the order of kFacts.
enum class Fact : uint8_t {
  ops,
  settings,
  places,
  types,
  sizes,
  layouts,
  sharing,
  sharing_with_captured,
  values,
  captured_values,
  numbers,
  live_results,
  default_type,
  autocast,
  grad_mode,
  options,
  passes,
  threads,
  other_calls,
};

enum class Told : uint8_t {
  key,       ///< a part of the key: another key, another graph or recording
  recorded,  ///< what is recorded differs in it, since the body runs in every call
  anew,      ///< no part of the key: read at every call
  refused,   ///< a function that depends on it is an Error
  promised,  ///< not seen: the caller promises that the function does not depend on it
};

struct FactLine {
  Fact fact;
  std::string_view what;
  Told compiled;  ///< by the cache of executables (cache.h, capture/key.h)
  Told replayed;  ///< by the recordings of one function (replay.cpp)
};

// clang-format off
inline constexpr FactLine kFacts[] = {
    {Fact::ops,                   "which ops are called, on which values, in which order",    Told::key,      Told::promised},
    {Fact::settings,              "attributes that say what an op does",                      Told::key,      Told::promised},
    {Fact::places,                "attributes that say where and how much",                   Told::anew,     Told::promised},
    {Fact::types,                 "types and ranks of tensors, numbers among them",           Told::key,      Told::key},
    {Fact::sizes,                 "sizes; part of the key if not dynamic",                    Told::anew,     Told::key},
    {Fact::layouts,               "strides and offsets; whether a tensor fills its storage is key", Told::anew, Told::key},
    {Fact::sharing,               "which arguments share memory",                             Told::key,      Told::key},
    {Fact::sharing_with_captured, "which arguments share memory with captured tensors",       Told::key,      Told::anew},
    {Fact::values,                "values of arguments",                                      Told::anew,     Told::anew},
    {Fact::captured_values,       "values of captured tensors",                               Told::anew,     Told::anew},
    {Fact::numbers,               "plain numbers that are arguments",                         Told::anew,     Told::key},
    {Fact::live_results,          "which results somebody still looks at",                    Told::key,      Told::refused},
    {Fact::default_type,          "the default floating type",                                Told::key,      Told::key},
    {Fact::autocast,              "the type that Autocast lowers to",                         Told::recorded, Told::key},
    {Fact::grad_mode,             "whether gradients are recorded, and inference mode",       Told::recorded, Told::key},
    {Fact::options,               "CompileOptions; each function has its own recordings",     Told::key,      Told::key},
    {Fact::passes,                "PassOptions: which passes run",                            Told::key,      Told::key},
    {Fact::threads,               "the number of threads",                                    Told::anew,     Told::anew},
    {Fact::other_calls,           "what else was called before, by whom, on which thread",    Told::anew,     Told::anew},
};
// clang-format on

constexpr bool in_order() {
  for (uint8_t i = 0; i < sizeof(kFacts) / sizeof(kFacts[0]); ++i)
    if (kFacts[i].fact != static_cast<Fact>(i)) return false;
  return true;
}
static_assert(in_order());

}  // namespace grapnel::compiler
