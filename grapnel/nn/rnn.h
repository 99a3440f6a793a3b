/// LSTM, GRU and RNN, and single steps of them. Shape letters: T time, N batch, I input_size, H hidden_size, D directions (1 or
/// 2), K num_layers.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include "grapnel/base/arg.h"
#include "grapnel/functions/recurrent.h"
#include "grapnel/nn/init.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

/// Options of all three.
struct RNNOptionsBase {
  RNNOptionsBase(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  GRAPNEL_ARG(int64_t, input_size);
  GRAPNEL_ARG(int64_t, hidden_size);
  GRAPNEL_ARG(int64_t, num_layers) = 1;
  GRAPNEL_ARG(bool, bias) = true;
  /// Sequences are [N, T, I] instead of [T, N, I].
  GRAPNEL_ARG(bool, batch_first) = false;
  /// Between layers, in training.
  GRAPNEL_ARG(double, dropout) = 0;
  GRAPNEL_ARG(bool, bidirectional) = false;
  /// LSTM only: the hidden state is projected to this many features; 0 leaves it as it is.
  GRAPNEL_ARG(int64_t, proj_size) = 0;
  /// RNN only: tanh or relu.
  GRAPNEL_ARG(Nonlinearity, nonlinearity) = Nonlinearity::tanh;
};
using LSTMOptions = RNNOptionsBase;
using GRUOptions = RNNOptionsBase;
using RNNOptions = RNNOptionsBase;

/// Weights of one layer and direction: [gates * H, input], [gates * H, state], and the biases
/// [gates * H].
struct RNNWeights {
  Tensor ih, hh, bias_ih, bias_hh, hr;
};

/// What the three share: the parameters, under PyTorch's names (`weight_ih_l0`,
/// `weight_hh_l0_reverse`, ...), and the layers.
template <class Derived>
class RNNImplBase : public Cloneable<Derived> {
 public:
  explicit RNNImplBase(const RNNOptionsBase& options_);
  RNNImplBase(int64_t input_size, int64_t hidden_size)
      : RNNImplBase(RNNOptionsBase(input_size, hidden_size)) {}
  void reset() override;
  /// All uniform in +-1 / sqrt(hidden_size).
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  RNNOptionsBase options;

 protected:
  /// The state is one tensor or, of an LSTM, two, each [K * D, N, features]; undefined ones start
  /// as zeros.
  using State = std::vector<Tensor>;
  /// Runs all layers in both directions. Returns the last layer's sequence and replaces `state` by
  /// the last one.
  Tensor run(const Tensor& input, State& state);

 private:
  RNNWeights weights(int64_t layer, bool reverse) const;
  /// One layer in one direction: all its states, and `state` becomes the last one.
  Tensor run_direction(const Tensor& x, State& state, const RNNWeights& w, bool reverse) const;
  int64_t state_size() const {
    return options.proj_size() > 0 ? options.proj_size() : options.hidden_size();
  }
};

/// Returns (output [T, N, D * H], (h [K * D, N, H], c [K * D, N, H])).
class LSTMImpl : public RNNImplBase<LSTMImpl> {
 public:
  using RNNImplBase::RNNImplBase;
  static constexpr const char* title = "LSTM";
  static constexpr int64_t gates = 4;
  static constexpr size_t states = 2;
  using States = std::tuple<Tensor, Tensor>;
  std::tuple<Tensor, States> forward(const Tensor& input, const std::optional<States>& hx = {});
  RecurrentCell cell() const { return RecurrentCell::lstm; }
};
GRAPNEL_MODULE(LSTM);

/// Returns (output [T, N, D * H], h [K * D, N, H]).
class GRUImpl : public RNNImplBase<GRUImpl> {
 public:
  using RNNImplBase::RNNImplBase;
  static constexpr const char* title = "GRU";
  static constexpr int64_t gates = 3;
  static constexpr size_t states = 1;
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& hx = {});
  RecurrentCell cell() const { return RecurrentCell::gru; }
};
GRAPNEL_MODULE(GRU);

/// Elman's network. Returns (output [T, N, D * H], h [K * D, N, H]).
class RNNImpl : public RNNImplBase<RNNImpl> {
 public:
  using RNNImplBase::RNNImplBase;
  static constexpr const char* title = "RNN";
  static constexpr int64_t gates = 1;
  static constexpr size_t states = 1;
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& hx = {});
  RecurrentCell cell() const {
    return options.nonlinearity() == Nonlinearity::relu ? RecurrentCell::relu
                                                        : RecurrentCell::tanh;
  }
};
GRAPNEL_MODULE(RNN);

extern template class RNNImplBase<LSTMImpl>;
extern template class RNNImplBase<GRUImpl>;
extern template class RNNImplBase<RNNImpl>;

// --- single steps ---

/// Options of all cells.
struct RNNCellOptionsBase {
  RNNCellOptionsBase(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  GRAPNEL_ARG(int64_t, input_size);
  GRAPNEL_ARG(int64_t, hidden_size);
  GRAPNEL_ARG(bool, bias) = true;
  /// RNNCell only: tanh or relu.
  GRAPNEL_ARG(Nonlinearity, nonlinearity) = Nonlinearity::tanh;
};
using LSTMCellOptions = RNNCellOptionsBase;
using GRUCellOptions = RNNCellOptionsBase;
using RNNCellOptions = RNNCellOptionsBase;

/// One step of a layer, for loops that look at what lies between: inputs [N, I] or [I], states [N, H]
/// or [H]; undefined ones are zeros.
template <class Derived>
class RNNCellImplBase : public Cloneable<Derived> {
 public:
  explicit RNNCellImplBase(const RNNCellOptionsBase& options_);
  RNNCellImplBase(int64_t input_size, int64_t hidden_size)
      : RNNCellImplBase(RNNCellOptionsBase(input_size, hidden_size)) {}
  void reset() override;
  /// All uniform in +-1 / sqrt(hidden_size).
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  RNNCellOptionsBase options;
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  RecurrentStates run(const Tensor& input, const Tensor& h, const Tensor& c) const;
};

/// Returns (h, c).
class LSTMCellImpl : public RNNCellImplBase<LSTMCellImpl> {
 public:
  using RNNCellImplBase::RNNCellImplBase;
  static constexpr const char* title = "LSTMCell";
  static constexpr int64_t gates = 4;
  using States = std::tuple<Tensor, Tensor>;
  States forward(const Tensor& input, const std::optional<States>& hx = {});
  RecurrentCell cell() const { return RecurrentCell::lstm; }
};
GRAPNEL_MODULE(LSTMCell);

/// Returns h.
class GRUCellImpl : public RNNCellImplBase<GRUCellImpl> {
 public:
  using RNNCellImplBase::RNNCellImplBase;
  static constexpr const char* title = "GRUCell";
  static constexpr int64_t gates = 3;
  Tensor forward(const Tensor& input, const Tensor& hx = {});
  RecurrentCell cell() const { return RecurrentCell::gru; }
};
GRAPNEL_MODULE(GRUCell);

/// Returns h.
class RNNCellImpl : public RNNCellImplBase<RNNCellImpl> {
 public:
  using RNNCellImplBase::RNNCellImplBase;
  static constexpr const char* title = "RNNCell";
  static constexpr int64_t gates = 1;
  Tensor forward(const Tensor& input, const Tensor& hx = {});
  RecurrentCell cell() const {
    return options.nonlinearity() == Nonlinearity::relu ? RecurrentCell::relu
                                                        : RecurrentCell::tanh;
  }
};
GRAPNEL_MODULE(RNNCell);

extern template class RNNCellImplBase<LSTMCellImpl>;
extern template class RNNCellImplBase<GRUCellImpl>;
extern template class RNNCellImplBase<RNNCellImpl>;

}  // namespace grapnel::nn
