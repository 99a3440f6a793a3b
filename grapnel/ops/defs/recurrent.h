/// Recurrent layers as one op: all steps of a sequence in one direction. The states of a step are
/// one product; what the cell does with it is one kernel.
#pragma once

#include "grapnel/functions/recurrent.h"
#include "grapnel/ops/define.h"

namespace grapnel {

struct RecurrentAttrs {
  int64_t cell = 0;      ///< a RecurrentCell
  bool reverse = false;  ///< the last step of the sequence comes first
  bool keep = true;      ///< what the gradient needs is a result, too
  static void visit(auto& self, auto&& v) {
    v("cell", self.cell);
    v("reverse", self.reverse);
    v("keep", self.keep);
  }
};

/// With p = h @ weight.T + bias: how many parts x and p have, and how many of H columns a step keeps for the gradient: gates, then
/// c or, of a GRU, the last part of p.
constexpr int64_t gates_of(RecurrentCell cell) { return cell == RecurrentCell::lstm ? 4 : cell == RecurrentCell::gru ? 3 : 1; }
constexpr int64_t kept_of(RecurrentCell cell) { return cell == RecurrentCell::lstm ? 5 : cell == RecurrentCell::gru ? 4 : 0; }

/// Takes x [T, N, gates * H], the first h [N, H], the first c [N, H] (LSTM), weight [gates * H, H]
/// and an optional bias [gates * H]. Gives all h [T, N, H], what was kept [T, N, kept * H], and the
/// last c (LSTM). Narrow types are computed in f32, and results rounded once.
struct Recurrent : Call<5> {
  static constexpr std::string_view name = "recurrent";
  using Attrs = RecurrentAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask kAll = input(1) | input(2) | input(3) | output(0) | output(1);
  static constexpr SaveMask saves[] = {kAll, kAll, kAll, kAll, kAll};
  static Grads grad(const Saved& s, const Grads& g);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

/// Takes the gradients of all h and of the last c (LSTM), all h, what was kept, the first h and c,
/// and the weight. Gives the gradients of x, the first h and the first c (LSTM), and of p where it
/// differs from that of x (GRU). Gradients that are to be differentiated again come from other ops,
/// with the same bits: see Recurrent::grad.
struct RecurrentBackward : Call<7> {
  static constexpr std::string_view name = "recurrent_backward";
  using Attrs = RecurrentAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

using RecurrentOps = OpList<Recurrent, RecurrentBackward>;

}  // namespace grapnel
