/// The function under recurrent layers.
#pragma once

#include "grapnel/tensor/tensor.h"

namespace grapnel {

/// What happens in a step, with h and c the states before it, x the step's row of the input, and p =
/// h @ weight.T + bias. Both have a part of H columns for each gate.
enum class RecurrentCell : uint8_t {
  lstm,  ///< i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of x + p; c = f * c + i * g, h = o * tanh(c)
  gru,   ///< r, z = sigmoid(x + p), n = tanh(x + r * p), h = n + z * (h - n)
  tanh,  ///< h = tanh(x + p)
  relu,  ///< h = max(x + p, 0)
};

struct RecurrentStates {
  Tensor all;   ///< h after each step, [T, N, H]
  Tensor cell;  ///< LSTM: c after the last step, [N, H]
};

/// All steps of a sequence in one direction, as one op. x [T, N, gates * H]; h and, for an LSTM, c
/// [N, H] before the first step; weight [gates * H, H]; bias [gates * H] or undefined. An LSTM has
/// four gates, a GRU three, the others one. With `reverse` the last row of x is the first step.
/// Under autocast everything is computed from operands of the type of x.
RecurrentStates recurrent(RecurrentCell cell, const Tensor& x, const Tensor& h, const Tensor& c,
                          const Tensor& weight, const Tensor& bias, bool reverse = false);

}  // namespace grapnel
