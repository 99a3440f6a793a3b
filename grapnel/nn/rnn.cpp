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

void check_nonlinearity(const char* title, Nonlinearity f) {
  check(f == Nonlinearity::tanh || f == Nonlinearity::relu, title,
        ": nonlinearity must be tanh or relu.");
}

/// An LSTM whose h is projected, step by step.
RecurrentStates projected_lstm(const Tensor& x, Tensor h, Tensor c, const RNNWeights& w,
                               bool reverse) {
  const std::vector<Tensor> rows = x.unbind(0);
  std::vector<Tensor> all(rows.size());
  for (size_t step = 0; step < rows.size(); ++step) {
    const size_t t = reverse ? rows.size() - 1 - step : step;
    const auto gates = (rows[t] + linear(h, w.hh, w.bias_hh)).chunk(4, -1);
    c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
    all[t] = h = linear(gates[3].sigmoid() * c.tanh(), w.hr);
  }
  return {stack(all), c};
}

}  // namespace

// --- what the layers share ---

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
  check_nonlinearity(Derived::title, o.nonlinearity());
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
  if (options.nonlinearity() == Nonlinearity::relu) stream << ", nonlinearity=relu";
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
Tensor RNNImplBase<Derived>::run_direction(const Tensor& x, State& state, const RNNWeights& w,
                                           bool reverse) const {
  // The input's part of all gates at all times is one product.
  const Tensor projected = linear(x, w.ih, w.bias_ih), c = state.size() > 1 ? state[1] : Tensor();
  const RecurrentStates out =
      w.hr.defined() ? projected_lstm(projected, state[0], c, w, reverse)
                     : recurrent(static_cast<const Derived*>(this)->cell(), projected, state[0], c,
                                 w.hh, w.bias_hh, reverse);
  state[0] = out.all.select(0, reverse ? 0 : -1);
  if (state.size() > 1) state[1] = out.cell;
  return out.all;
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
      halves.push_back(run_direction(x, now, w, direction == 1));
      for (size_t i = 0; i < now.size(); ++i) last[i].push_back(now[i]);
    }
    x = directions == 1 ? halves[0] : cat(halves, -1);
    if (layer + 1 < options.num_layers()) x = dropout(x, options.dropout(), this->is_training());
  }
  for (size_t i = 0; i < Derived::states; ++i) state[i] = stack(last[i]);
  return options.batch_first() ? x.transpose(0, 1) : x;
}

// --- the layers ---

std::tuple<Tensor, LSTMImpl::States> LSTMImpl::forward(const Tensor& input,
                                                       const std::optional<States>& hx) {
  State state{hx ? std::get<0>(*hx) : Tensor(), hx ? std::get<1>(*hx) : Tensor()};
  Tensor out = run(input, state);
  return {out, {state[0], state[1]}};
}

std::tuple<Tensor, Tensor> GRUImpl::forward(const Tensor& input, const Tensor& hx) {
  State state{hx};
  Tensor out = run(input, state);
  return {out, state[0]};
}

std::tuple<Tensor, Tensor> RNNImpl::forward(const Tensor& input, const Tensor& hx) {
  State state{hx};
  Tensor out = run(input, state);
  return {out, state[0]};
}

template class RNNImplBase<LSTMImpl>;
template class RNNImplBase<GRUImpl>;
template class RNNImplBase<RNNImpl>;

// --- single steps ---

template <class Derived>
RNNCellImplBase<Derived>::RNNCellImplBase(const RNNCellOptionsBase& options_) : options(options_) {
  check(options.input_size() > 0 && options.hidden_size() > 0, Derived::title,
        ": input_size and hidden_size must be positive, got ", options.input_size(), " and ",
        options.hidden_size(), ".");
  check_nonlinearity(Derived::title, options.nonlinearity());
  RNNCellImplBase::reset();
}

template <class Derived>
void RNNCellImplBase<Derived>::reset() {
  const int64_t rows = checked_mul<int64_t>(Derived::gates, options.hidden_size(), Derived::title);
  weight_ih = this->register_parameter("weight_ih", empty({rows, options.input_size()}));
  weight_hh = this->register_parameter("weight_hh", empty({rows, options.hidden_size()}));
  if (options.bias()) {
    bias_ih = this->register_parameter("bias_ih", empty({rows}));
    bias_hh = this->register_parameter("bias_hh", empty({rows}));
  }
  reset_parameters();
}

template <class Derived>
void RNNCellImplBase<Derived>::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(options.hidden_size()));
  for (const Tensor& p : this->parameters()) init::uniform_(p, -bound, bound);
}

template <class Derived>
void RNNCellImplBase<Derived>::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::" << Derived::title << '(' << options.input_size() << ", "
         << options.hidden_size();
  if (!options.bias()) stream << ", bias=false";
  if (options.nonlinearity() == Nonlinearity::relu) stream << ", nonlinearity=relu";
  stream << ')';
}

template <class Derived>
RecurrentStates RNNCellImplBase<Derived>::run(const Tensor& input, const Tensor& h,
                                              const Tensor& c) const {
  check(input.dim() <= 2 && input.dim() >= 1 && input.size(-1) == options.input_size(),
        Derived::title, ": the input must be [batch, ", options.input_size(), "] or [",
        options.input_size(), "], got shape ", input.shape(), ".");
  if (input.dim() == 1) {
    const auto row = [](const Tensor& t) { return t.defined() ? t.unsqueeze(0) : t; };
    const RecurrentStates out = run(input.unsqueeze(0), row(h), row(c));
    return {out.all.squeeze(0), out.cell.defined() ? out.cell.squeeze(0) : out.cell};
  }
  const Shape shape{input.size(0), options.hidden_size()};
  const auto state = [&](const Tensor& t) {
    if (!t.defined()) return zeros(shape, input.options());
    check(t.shape() == shape, Derived::title, ": the state must have shape ", shape, ", got ",
          t.shape(), ".");
    return t;
  };
  const RecurrentCell kind = static_cast<const Derived*>(this)->cell();
  const RecurrentStates out =
      recurrent(kind, linear(input, weight_ih, bias_ih).unsqueeze(0), state(h),
                kind == RecurrentCell::lstm ? state(c) : Tensor(), weight_hh, bias_hh);
  return {out.all.squeeze(0), out.cell};
}

LSTMCellImpl::States LSTMCellImpl::forward(const Tensor& input, const std::optional<States>& hx) {
  const RecurrentStates out =
      run(input, hx ? std::get<0>(*hx) : Tensor(), hx ? std::get<1>(*hx) : Tensor());
  return {out.all, out.cell};
}
Tensor GRUCellImpl::forward(const Tensor& input, const Tensor& hx) {
  return run(input, hx, Tensor()).all;
}
Tensor RNNCellImpl::forward(const Tensor& input, const Tensor& hx) {
  return run(input, hx, Tensor()).all;
}

template class RNNCellImplBase<LSTMCellImpl>;
template class RNNCellImplBase<GRUCellImpl>;
template class RNNCellImplBase<RNNCellImpl>;

}  // namespace grapnel::nn
