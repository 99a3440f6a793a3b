#include "grapnel/nn/rnn.h"

#include <cmath>

#include "grapnel/base/checked.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/init.h"

namespace grapnel::nn {

namespace {
std::string suffix(int64_t layer, bool reverse) {
  return "_l" + std::to_string(layer) + (reverse ? "_reverse" : "");
}
}  // namespace

// --- what both share ---

template <class Derived>
RNNImplBase<Derived>::RNNImplBase(const RNNOptionsBase& options_) : options(options_) {
  const auto& o = options;
  check(o.input_size() > 0 && o.hidden_size() > 0 && o.num_layers() > 0, Derived::title,
        ": input_size, hidden_size and num_layers must be positive, got ", o.input_size(), ", ",
        o.hidden_size(), " and ", o.num_layers(), ".");
  check(o.dropout() >= 0 && o.dropout() <= 1, Derived::title,
        ": dropout must be between 0 and 1, got ", o.dropout(), ".");
  check(o.proj_size() == 0 ||
            (Derived::states == 2 && o.proj_size() > 0 && o.proj_size() < o.hidden_size()),
        Derived::title, ": proj_size is for LSTM only and must be smaller than hidden_size, got ",
        o.proj_size(), " and ", o.hidden_size(), ".");
  RNNImplBase::reset();
}

template <class Derived>
void RNNImplBase<Derived>::reset() {
  const int64_t rows = checked_mul<int64_t>(Derived::gates, options.hidden_size(), Derived::title),
                directions = options.bidirectional() ? 2 : 1;
  for (int64_t layer = 0; layer < options.num_layers(); ++layer)
    for (int64_t direction = 0; direction < directions; ++direction) {
      const std::string s = suffix(layer, direction == 1);
      this->register_parameter(
          "weight_ih" + s,
          empty({rows, layer == 0 ? options.input_size()
                                  : checked_mul(directions, state_size(), "states of a layer")}));
      this->register_parameter("weight_hh" + s, empty({rows, state_size()}));
      if (options.bias()) {
        this->register_parameter("bias_ih" + s, empty({rows}));
        this->register_parameter("bias_hh" + s, empty({rows}));
      }
      if (options.proj_size() > 0)
        this->register_parameter("weight_hr" + s,
                                 empty({options.proj_size(), options.hidden_size()}));
    }
  reset_parameters();
}

template <class Derived>
void RNNImplBase<Derived>::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(options.hidden_size()));
  for (const Tensor& p : this->parameters()) init::uniform_(p, -bound, bound);
}

template <class Derived>
void RNNImplBase<Derived>::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::" << Derived::title << '(' << options.input_size() << ", "
         << options.hidden_size();
  if (options.num_layers() != 1) stream << ", num_layers=" << options.num_layers();
  if (!options.bias()) stream << ", bias=false";
  if (options.batch_first()) stream << ", batch_first=true";
  if (options.dropout() != 0) stream << ", dropout=" << options.dropout();
  if (options.bidirectional()) stream << ", bidirectional=true";
  if (options.proj_size() != 0) stream << ", proj_size=" << options.proj_size();
  stream << ')';
}

template <class Derived>
RNNWeights RNNImplBase<Derived>::weights(int64_t layer, bool reverse) const {
  const std::string s = suffix(layer, reverse);
  const auto& p = this->parameters_;
  const auto maybe = [&](const std::string& name) { return p.contains(name) ? p[name] : Tensor(); };
  return {p["weight_ih" + s], p["weight_hh" + s], maybe("bias_ih" + s), maybe("bias_hh" + s),
          maybe("weight_hr" + s)};
}

template <class Derived>
Tensor RNNImplBase<Derived>::run(const Tensor& given, State& state) {
  if (given.dim() == 2) {
    for (Tensor& s : state)
      if (s.defined()) s = s.unsqueeze(1);
    const int64_t batch_dim = options.batch_first() ? 0 : 1;
    const Tensor out = run(given.unsqueeze(batch_dim), state).squeeze(batch_dim);
    for (Tensor& s : state) s = s.squeeze(1);
    return out;
  }
  check(given.dim() == 3 && given.size(2) == options.input_size(), Derived::title,
        ": the input must be ", options.batch_first() ? "[batch, time, " : "[time, batch, ",
        options.input_size(), "], got shape ", given.shape(), ".");
  Tensor x = options.batch_first() ? given.transpose(0, 1) : given;
  const int64_t time = x.size(0), batch = x.size(1), directions = options.bidirectional() ? 2 : 1,
                slots = options.num_layers() * directions;
  check(time > 0, Derived::title, ": the sequence is empty: the input has shape ", given.shape(),
        ".");
  for (size_t i = 0; i < Derived::states; ++i) {
    const Shape shape{slots, batch, i == 0 ? state_size() : options.hidden_size()};
    if (!state[i].defined()) state[i] = zeros(shape, x.options());
    check(state[i].shape() == shape, Derived::title, ": the initial state must have shape ", shape,
          ", got ", state[i].shape(), ".");
  }

  std::vector<std::vector<Tensor>> last(Derived::states);
  for (int64_t layer = 0; layer < options.num_layers(); ++layer) {
    std::vector<Tensor> halves;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const RNNWeights w = weights(layer, direction == 1);
      State now;
      for (const Tensor& s : state) now.push_back(s[layer * directions + direction]);
      // The input's part of all gates at all times is one product.
      const std::vector<Tensor> projected = linear(x, w.ih, w.bias_ih).unbind(0);
      std::vector<Tensor> sequence(static_cast<size_t>(time));
      for (int64_t step = 0; step < time; ++step) {
        const auto t = static_cast<size_t>(direction == 0 ? step : time - 1 - step);
        now = Derived::cell(projected[t], now, w);
        sequence[t] = now[0];
      }
      halves.push_back(stack(sequence));
      for (size_t i = 0; i < now.size(); ++i) last[i].push_back(now[i]);
    }
    x = directions == 1 ? halves[0] : cat(halves, -1);
    if (layer + 1 < options.num_layers()) x = dropout(x, options.dropout(), this->is_training());
  }
  for (size_t i = 0; i < Derived::states; ++i) state[i] = stack(last[i]);
  return options.batch_first() ? x.transpose(0, 1) : x;
}

// --- LSTM ---

std::vector<Tensor> LSTMImpl::cell(const Tensor& projected, const std::vector<Tensor>& state,
                                   const RNNWeights& w) {
  const auto gates_now = (projected + linear(state[0], w.hh, w.bias_hh)).chunk(4, -1);
  const Tensor c = gates_now[1].sigmoid() * state[1] + gates_now[0].sigmoid() * gates_now[2].tanh();
  const Tensor h = gates_now[3].sigmoid() * c.tanh();
  return {w.hr.defined() ? linear(h, w.hr) : h, c};
}

std::tuple<Tensor, LSTMImpl::States> LSTMImpl::forward(const Tensor& input,
                                                       const std::optional<States>& hx) {
  State state{hx ? std::get<0>(*hx) : Tensor(), hx ? std::get<1>(*hx) : Tensor()};
  Tensor out = run(input, state);
  return {out, {state[0], state[1]}};
}

// --- GRU ---

std::vector<Tensor> GRUImpl::cell(const Tensor& projected, const std::vector<Tensor>& state,
                                  const RNNWeights& w) {
  const auto from_input = projected.chunk(3, -1),
             from_state = linear(state[0], w.hh, w.bias_hh).chunk(3, -1);
  const Tensor reset = (from_input[0] + from_state[0]).sigmoid(),
               update = (from_input[1] + from_state[1]).sigmoid();
  const Tensor next = (from_input[2] + reset * from_state[2]).tanh();
  return {next + update * (state[0] - next)};
}

std::tuple<Tensor, Tensor> GRUImpl::forward(const Tensor& input, const Tensor& hx) {
  State state{hx};
  Tensor out = run(input, state);
  return {out, state[0]};
}

template class RNNImplBase<LSTMImpl>;
template class RNNImplBase<GRUImpl>;

}  // namespace grapnel::nn
