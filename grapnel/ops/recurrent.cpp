/// Recurrent layers: their shape rule, what they mean in other ops, gradients, and samples. Shape
/// letters: T time, N batch, H features of a state.
#include "grapnel/ops/defs/recurrent.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/factories.h"
#include "grapnel/ops/internal.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

namespace {

RecurrentCell cell_of(const RecurrentAttrs& a) { return static_cast<RecurrentCell>(a.cell); }

void check_cell(std::string_view op, const RecurrentAttrs& a) {
  check(a.cell >= 0 && a.cell <= static_cast<int64_t>(RecurrentCell::relu), op,
        ": cell must be 0 (LSTM), 1 (GRU), 2 (tanh) or 3 (relu), got ", a.cell, ".");
}

void check_shape(std::string_view op, std::string_view what, const Tensor& t, const Shape& shape) {
  check(t.defined(), op, ": ", what, " is missing; its shape is ", shape, ".");
  check(t.shape() == shape, op, ": ", what, " must have shape ", shape, ", got ", t.shape(), ".");
}

/// All operands that are there have one type, and it is floating.
void check_types(std::string_view op, Inputs in) {
  check_as<TypeError>(is_floating(in[0]->dtype()), op, ": not defined for ", in[0]->dtype(),
                      ".\nConvert first: x.to(kFloat32).");
  for (const Tensor* t : in)
    check_as<TypeError>(!t->defined() || t->dtype() == in[0]->dtype(), op,
                        ": operands must have one type, got ", in[0]->dtype(), " and ",
                        t->defined() ? t->dtype() : in[0]->dtype(), ".");
}

/// The place of a step in the sequence, and of the one that is computed before it.
int64_t place_of(const RecurrentAttrs& a, int64_t step, int64_t time) {
  return a.reverse ? time - 1 - step : step;
}

/// Part `i` of the last dimension, which has H columns for each.
Tensor part(const Tensor& t, int64_t i, int64_t features) {
  return t.slice(-1, i * features, (i + 1) * features);
}

struct Step {
  Tensor h, c, kept;
};

Step step_of(RecurrentCell cell, const Tensor& x, const Tensor& p, const Tensor& h, const Tensor& c) {
  const int64_t n = h.size(-1);
  if (cell == RecurrentCell::gru) {
    const Tensor rz = (x.slice(-1, 0, 2 * n) + p.slice(-1, 0, 2 * n)).sigmoid(), r = part(rz, 0, n),
                 z = part(rz, 1, n), q = part(p, 2, n), now = (part(x, 2, n) + r * q).tanh();
    return {now + z * (h - now), {}, cat({r, z, now, q}, -1)};
  }
  const Tensor sum = x + p;
  if (cell == RecurrentCell::tanh) return {sum.tanh(), {}, {}};
  if (cell == RecurrentCell::relu) return {sum.relu(), {}, {}};
  const Tensor i = part(sum, 0, n).sigmoid(), f = part(sum, 1, n).sigmoid(),
               g = part(sum, 2, n).tanh(), o = part(sum, 3, n).sigmoid(), next = f * c + i * g;
  return {o * next.tanh(), next, cat({i, f, g, o, next}, -1)};
}

/// All h before their steps.
Tensor states_before(const RecurrentAttrs& a, const Tensor& y, const Tensor& first) {
  const Tensor begin = first.unsqueeze(0);
  return a.reverse ? cat({y.slice(0, 1, y.size(0)), begin}, 0)
                   : cat({begin, y.slice(0, 0, y.size(0) - 1)}, 0);
}

}  // namespace

void Recurrent::infer(Inputs in, const Attrs& a, Specs& out) {
  check_cell(name, a);
  const Tensor &x = *in[0], &h = *in[1], &c = *in[2], &weight = *in[3], &bias = *in[4];
  check_types(name, in);
  const RecurrentCell cell = cell_of(a);
  check(x.dim() == 3 && h.dim() == 2, name, ": needs x [T, N, gates * H] and h [N, H], got ",
        x.shape(), " and ", h.shape(), ".");
  const int64_t time = x.size(0), batch = x.size(1), features = h.size(1);
  check(time > 0, name, ": the sequence is empty: x has shape ", x.shape(), ".");
  const int64_t columns = checked_mul(gates_of(cell), features, "columns of all gates");
  check_shape(name, "x", x, {time, batch, columns});
  check_shape(name, "h", h, {batch, features});
  check_shape(name, "weight", weight, {columns, features});
  if (cell == RecurrentCell::lstm) check_shape(name, "c", c, {batch, features});
  else check(!c.defined(), name, ": only an LSTM has a second state.");
  if (bias.defined()) check_shape(name, "bias", bias, {columns});
  out.push_back({{time, batch, features}, x.dtype()});
  out.push_back({a.keep ? Shape{time, batch, checked_mul(kept_of(cell), features, "what is kept")}
                        : Shape{0},
                 dtype_of(compute_type(x.dtype()))});
  if (cell == RecurrentCell::lstm) out.push_back({h.shape(), x.dtype()});
}

Outputs Recurrent::lower(Inputs in, const Attrs& a) {
  const RecurrentCell cell = cell_of(a);
  const Tensor x = computed(*in[0]), turned = computed(*in[3]).t();
  const int64_t time = x.size(0);
  Tensor h = computed(*in[1]), c = in[2]->defined() ? computed(*in[2]) : Tensor();
  std::vector<Tensor> all(static_cast<size_t>(time)), kept = all;
  for (int64_t step = 0; step < time; ++step) {
    const int64_t t = place_of(a, step, time);
    Tensor p = matmul(h, turned);
    if (in[4]->defined()) p = p + computed(*in[4]);
    Step now = step_of(cell, x.select(0, t), p, h, c);
    all[static_cast<size_t>(t)] = h = now.h;
    kept[static_cast<size_t>(t)] = now.kept;
    c = now.c;
  }
  const DType type = in[0]->dtype();
  Outputs out{stack(all).to(type)};
  if (!a.keep) out.push_back(empty({0}, x.options()));
  else if (kept_of(cell) == 0) out.push_back(empty({time, x.size(1), 0}, x.options()));
  else out.push_back(stack(kept));
  if (cell == RecurrentCell::lstm) out.push_back(c.to(type));
  return out;
}

namespace {

struct StepGradient {
  Tensor x, p, h, c;  ///< p only where it is not x; h: what reached it but through p
};

/// One step backwards. gh and gc are what reached its states, `more` what reached what it kept, if
/// anything did: the same for RecurrentBackward's kernel, which knows no such thing.
StepGradient step_backward(RecurrentCell cell, const Tensor& gh, const Tensor& gc_after, const Tensor& y,
                           const Tensor& kept, const Tensor& h, const Tensor& c,
                           const Tensor& more) {
  const int64_t n = y.size(-1);
  const auto with = [&](const Tensor& g, int64_t i) {
    return more.defined() ? g + part(more, i, n) : g;
  };
  if (cell == RecurrentCell::tanh) return {gh * (1.0 - y * y), {}, {}, {}};
  if (cell == RecurrentCell::relu) return {masked_fill(gh, y <= 0.0, 0.0), {}, {}, {}};
  if (cell == RecurrentCell::gru) {
    const Tensor r = part(kept, 0, n), z = part(kept, 1, n), now = part(kept, 2, n),
                 q = part(kept, 3, n);
    const Tensor gz = with(gh * (h - now), 1), gn = with(gh * (1.0 - z), 2),
                 dn = gn * (1.0 - now * now), gr = with(dn * q, 0), dq = with(dn * r, 3);
    const Tensor dr = gr * (r * (1.0 - r)), dz = gz * (z * (1.0 - z));
    return {cat({dr, dz, dn}, -1), cat({dr, dz, dq}, -1), gh * z, {}};
  }
  const Tensor i = part(kept, 0, n), f = part(kept, 1, n), g = part(kept, 2, n),
               o = part(kept, 3, n), u = part(kept, 4, n).tanh();
  const Tensor gc = with(gc_after + gh * o * (1.0 - u * u), 4);
  const Tensor gi = with(gc * g, 0), gf = with(gc * c, 1), gg = with(gc * i, 2),
               go = with(gh * u, 3);
  return {cat({gi * (i * (1.0 - i)), gf * (f * (1.0 - f)), gg * (1.0 - g * g),
               go * (o * (1.0 - o))},
              -1),
          {},
          {},
          gc * f};
}

/// RecurrentBackward in other ops. `more`: the gradient of what was kept, or undefined.
Outputs backward_by_steps(Inputs in, const RecurrentAttrs& a, const Tensor& more) {
  const RecurrentCell cell = cell_of(a);
  const DType type = in[0]->dtype();
  const Tensor gy = computed(*in[0]), y = computed(*in[2]), kept = computed(*in[3]), h = computed(*in[4]),
               c = in[5]->defined() ? computed(*in[5]) : Tensor(), weight = computed(*in[6]);
  const int64_t time = y.size(0), n = y.size(2);
  Tensor gc = in[1]->defined() ? computed(*in[1]) : Tensor(), product = zeros_like(h),
         direct = product;
  std::vector<Tensor> gx(static_cast<size_t>(time)), gp = gx;
  for (int64_t step = time - 1; step >= 0; --step) {
    const int64_t t = place_of(a, step, time), before = place_of(a, step - 1, time);
    const auto at = [&](const Tensor& all, int64_t place) { return all.select(0, place); };
    const Tensor gh = at(gy, t) + (cell == RecurrentCell::gru ? direct + product : product);
    const StepGradient g = step_backward(
        cell, gh, gc, at(y, t), kept_of(cell) ? at(kept, t) : Tensor(),
        step > 0 ? at(y, before) : h,
        cell == RecurrentCell::lstm && step > 0 ? part(at(kept, before), 4, n) : c,
        more.defined() && kept_of(cell) ? at(more, t) : Tensor());
    gx[static_cast<size_t>(t)] = g.x;
    gp[static_cast<size_t>(t)] = g.p;
    product = matmul(g.p.defined() ? g.p : g.x, weight);
    direct = g.h;
    gc = g.c;
  }
  Outputs out{stack(gx).to(type), (cell == RecurrentCell::gru ? direct + product : product).to(type)};
  if (cell == RecurrentCell::lstm) out.push_back(gc.to(type));
  if (cell == RecurrentCell::gru) out.push_back(stack(gp).to(type));
  return out;
}

}  // namespace

Grads Recurrent::grad(const Saved& s, const Grads& g) {
  const Attrs& a = s.attrs<Attrs>();
  check(a.keep, "recurrent: its gradient needs what a call with keep = true gives.");
  const RecurrentCell cell = cell_of(a);
  const Tensor h = s.input(1), c = s.input(2), weight = s.input(3), y = s.output(0),
               kept = s.output(1);
  const Tensor gy = g[0].defined() ? g[0] : zeros_like(y),
               gc = cell != RecurrentCell::lstm ? Tensor() : g[2].defined() ? g[2] : zeros_like(h);
  const Tensor* in[] = {&gy, &gc, &y, &kept, &h, &c, &weight};
  // A kernel cannot be differentiated, and does not know gradients of gradients: those of what was
  // kept.
  const Outputs grads = GradMode::is_enabled() || g[1].defined()
                            ? backward_by_steps(in, a, g[1])
                            : apply_all(op_of<RecurrentBackward>, in, &a);
  const Tensor& gp = cell == RecurrentCell::gru ? grads[2] : grads[0];
  Grads out{grads[0], grads[1], cell == RecurrentCell::lstm ? grads[2] : Tensor(), Tensor(), Tensor()};
  // All steps at once: one product of all rows.
  const auto rows = [](const Tensor& t) { return t.reshape({t.size(0) * t.size(1), t.size(2)}); };
  if (s.needs(3)) out[3] = matmul(rows(gp).t(), rows(states_before(a, y, h)));
  if (s.needs(4)) out[4] = gp.sum({0, 1});
  return out;
}

Samples Recurrent::samples() {
  Samples out;
  for (const RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
    for (const bool reverse : {false, true}) {
      const int64_t columns = gates_of(cell) * 2;
      out.push_back(sample({sample_tensor({3, 2, columns}), sample_tensor({2, 2}, -1, 1),
                            cell == RecurrentCell::lstm ? sample_tensor({2, 2}, -1, 0.5) : Tensor(),
                            sample_tensor({columns, 2}, -1, 1.3),
                            reverse ? Tensor() : sample_tensor({columns}, -0.4, 0.7)},
                           Attrs{.cell = static_cast<int64_t>(cell), .reverse = reverse}));
    }
  return out;
}

void RecurrentBackward::infer(Inputs in, const Attrs& a, Specs& out) {
  check_cell(name, a);
  const Tensor &gy = *in[0], &gc = *in[1], &y = *in[2], &kept = *in[3], &h = *in[4], &c = *in[5],
               &weight = *in[6];
  const RecurrentCell cell = cell_of(a);
  check(y.dim() == 3 && y.size(0) > 0, name, ": needs states [T, N, H] of at least one step, got ",
        y.shape(), ".");
  const int64_t time = y.size(0), batch = y.size(1), features = y.size(2),
                columns = checked_mul(gates_of(cell), features, "columns of all gates");
  const Tensor* of_one_type[] = {&gy, &gc, &y, &h, &c, &weight};
  check_types(name, of_one_type);
  check_as<TypeError>(is_floating(kept.dtype()), name, ": what was kept must be numbers, got ",
                      kept.dtype(), ".");
  check_shape(name, "the gradient", gy, y.shape());
  check_shape(name, "what was kept", kept,
              {time, batch, checked_mul(kept_of(cell), features, "what is kept")});
  check_shape(name, "h", h, {batch, features});
  check_shape(name, "weight", weight, {columns, features});
  if (cell == RecurrentCell::lstm) {
    check_shape(name, "c", c, {batch, features});
    check_shape(name, "the gradient of c", gc, {batch, features});
  } else {
    check(!c.defined() && !gc.defined(), name, ": only an LSTM has a second state.");
  }
  out.push_back({{time, batch, columns}, y.dtype()});
  out.push_back({h.shape(), y.dtype()});
  if (cell == RecurrentCell::lstm) out.push_back({h.shape(), y.dtype()});
  if (cell == RecurrentCell::gru) out.push_back({{time, batch, columns}, y.dtype()});
}

Outputs RecurrentBackward::lower(Inputs in, const Attrs& a) {
  return backward_by_steps(in, a, Tensor());
}

Samples RecurrentBackward::samples() {
  Samples out;
  for (const Sample& forward : Recurrent::samples()) {
    const auto& a = *static_cast<const Attrs*>(forward.attrs.get());
    const Tensor &h = forward.inputs[1], &c = forward.inputs[2];
    const int64_t kept = kept_of(cell_of(a)) * 2;
    out.push_back(sample({sample_tensor({3, 2, 2}, -1, 1),
                          c.defined() ? sample_tensor({2, 2}, -0.5, 1) : Tensor(),
                          sample_tensor({3, 2, 2}, -0.9, 0.8),
                          kept ? sample_tensor({3, 2, kept}, 0.1, 0.9) : empty({3, 2, 0}, kFloat64),
                          h, c, forward.inputs[3]},
                         a));
  }
  return out;
}

}  // namespace grapnel
