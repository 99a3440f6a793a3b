/// A machine for pickles that can make data and nothing else. Private to pt.cpp and its tests.
///
/// Note [Pickles that are data]
/// A pickle is a program for a stack machine. It can name any class or function and have it called.
/// Here a name is a text and no more: `call` decides which of a few names it stands in for, and
/// refuses the others. Every step takes bytes of the file and makes at most one value for each of
/// them, texts and containers are shared and not copied, so time and memory are bounded by the
/// file's length. Values that contain themselves, and values nested very deeply, are refused at the
/// end, so that whoever walks through the result may do so by recursion.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "grapnel/io/pt.h"

namespace grapnel::io {

/// Makes an empty container, or a text. All of them come from here: see Arena in pickle.cpp.
using PickleMaker = std::function<std::shared_ptr<PtValue::Node>(PtValue::Kind)>;

/// What a pickle asks of the program that reads it.
struct PickleCalls {
  /// Whether a name by itself is data, a text: "torch.float32".
  std::function<bool(std::string_view name)> is_text;
  /// The result of calling what is named, "torch._utils._rebuild_tensor_v2", with a tuple.
  std::function<PtValue(const std::string& name, const PtValue& arguments, const PickleMaker& make)>
      call;
  /// What a persistent id stands for.
  std::function<PtValue(const PtValue& id, const PickleMaker& make)> persistent;
};

/// How deeply values may be nested.
inline constexpr int most_pickle_levels = 200;

/// Refuses what is no data, rings, and what is too deep. Returns every container and text that is
/// in the value.
std::unordered_set<const PtValue::Node*> check_pickled(const PtValue& root,
                                                       const std::string& source);

/// Runs a pickle of protocol 2 to 5. `source` begins all messages.
PtValue run_pickle(std::string_view pickle, const PickleCalls& calls, const std::string& source);

}  // namespace grapnel::io
