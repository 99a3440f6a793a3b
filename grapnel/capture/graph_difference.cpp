/// What one recording of a computation does otherwise than another.
#include <algorithm>
#include <bit>

#include "grapnel/base/source_site.h"
#include "grapnel/capture/graph.h"
#include "grapnel/capture/graph_text.h"

namespace grapnel {

using capture::kNone;

namespace {

bool same_bits(const Scalar& a, const Scalar& b) {
  return a.dtype() == b.dtype() && (a.is_integral() ? a.to_int() == b.to_int()
                                                    : std::bit_cast<uint64_t>(a.to_double()) ==
                                                          std::bit_cast<uint64_t>(b.to_double()));
}
bool same_tensor(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const TensorImpl &x = a.impl(), &y = b.impl();
  return x.storage == y.storage && x.offset == y.offset && x.strides == y.strides;
}

/// Goes through both side by side. Values are the same if they were made by the same call or if they
/// are used for the first time at the same place and look alike.
class Comparison {
 public:
  Comparison(const Graph& now, const Graph& before)
      : now_(now),
        before_(before),
        same_(before.values().size(), kNone),
        met_(now.values().size()) {}

  Difference find() {
    if (now_.inputs().size() != before_.inputs().size())
      return {str("it takes ", now_.inputs().size(), " inputs, took ", before_.inputs().size())};
    for (size_t i = 0; i < now_.inputs().size(); ++i)
      if (std::string text = made(now_.inputs()[i], before_.inputs()[i]); !text.empty())
        return {str("input ", i, " ", text)};
    const auto calls = now_.instructions(), were = before_.instructions();
    for (size_t i = 0; i < std::min(calls.size(), were.size()); ++i)
      if (std::string text = call(calls[i], were[i]); !text.empty())
        return {str("call ", i, is_colon_needed_ ? str(", ", calls[i].op->name, ": ") : " ", text),
                calls[i].site};
    if (calls.size() > were.size())
      return {str("call ", were.size(), ", ", calls[were.size()].op->name, ", is new: there were ",
                  were.size(), " calls"),
              calls[were.size()].site};
    if (calls.size() < were.size())
      return {str("call ", calls.size(), ", ", were[calls.size()].op->name,
                  ", is missing: there are ", calls.size(), " calls")};
    if (now_.outputs().size() != before_.outputs().size())
      return {str("it returns ", now_.outputs().size(), " results, returned ",
                  before_.outputs().size())};
    for (size_t i = 0; i < now_.outputs().size(); ++i)
      if (std::string text = used(now_.outputs()[i], before_.outputs()[i]); !text.empty())
        return {str("result ", i, " ", text)};
    return {};
  }

 private:
  std::string call(const Graph::Instruction& now, const Graph::Instruction& before) {
    is_colon_needed_ = false;
    if (now.op != before.op || now.inplace != before.inplace)
      return str("is ", now.op->name, now.inplace ? "_" : "", ", was ", before.op->name,
                 before.inplace ? "_" : "");
    is_colon_needed_ = true;
    if (now.inputs != before.inputs)
      return str("it has ", now.inputs, " operands, had ", before.inputs);
    const auto in = now_.calls().inputs_of(now), were = before_.calls().inputs_of(before);
    for (size_t k = 0; k < in.size(); ++k)
      if (std::string text = used(in[k], were[k]); !text.empty())
        return str("operand ", k, " ", text);
    const std::string attrs = graph_text::of_attrs(now_.calls(), now),
                      attrs_before = graph_text::of_attrs(before_.calls(), before);
    if (attrs != attrs_before) return str("now with ", attrs, ", before with ", attrs_before);
    if (now.inplace) return "";
    const auto out = now_.calls().outputs_of(now), had = before_.calls().outputs_of(before);
    if (out.size() != had.size()) return str("it has ", out.size(), " results, had ", had.size());
    for (size_t k = 0; k < out.size(); ++k)
      if (std::string text = made(out[k], had[k]); !text.empty()) return str("its result ", text);
    return "";
  }

  /// Two values that stand for each other from here on.
  std::string made(Graph::Id now, Graph::Id before) {
    if (now == kNone || before == kNone)
      return now == before ? "" : now == kNone ? "is not there any more" : "was not there";
    same_[before] = now;
    met_[now] = true;
    const std::string text = graph_text::of(now_.values()[now]),
                      was = graph_text::of(before_.values()[before]);
    return text == was ? "" : str("is ", text, ", was ", was);
  }
  /// Two values in the same place.
  std::string used(Graph::Id now, Graph::Id before) {
    if (now == kNone || before == kNone || same_[before] != kNone) {
      if (before != kNone ? same_[before] == now : now == kNone) return "";
    } else if (!met_[now]) {
      const Graph::Value &x = now_.values()[now], &y = before_.values()[before];
      if (x.number && y.number) {
        same_[before] = now;
        met_[now] = true;
        return same_bits(*x.number, *y.number)
                   ? ""
                   : str("is ", graph_text::of(*x.number), ", was ", graph_text::of(*y.number));
      }
      if (x.number.has_value() == y.number.has_value() && x.fresh == y.fresh &&
          same_tensor(x.constant, y.constant))
        return made(now, before);
    }
    const bool outside = (now != kNone && now_.values()[now].is_constant()) ||
                         (before != kNone && before_.values()[before].is_constant());
    return outside ? "is another tensor from outside" : "is another value";
  }

  const Graph &now_, &before_;
  std::vector<Graph::Id> same_;  ///< of `now`, for values of `before`
  std::vector<bool> met_;        ///< values of `now`
  bool is_colon_needed_ = false;
};

}  // namespace

std::string Difference::str() const {
  const std::string place = site ? base::describe({site}) : "";
  return place.empty() ? what : grapnel::str(what, ", at ", place);
}

Difference Graph::difference(const Graph& before) const { return Comparison(*this, before).find(); }

}  // namespace grapnel
