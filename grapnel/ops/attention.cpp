/// Attention: its shape rule, what it means in other ops, its gradient.
#include "grapnel/ops/defs/attention.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/internal.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

Tensor attention_weights(const Tensor& query, const Tensor& key, double scale, bool causal) {
  const Tensor scores = matmul(query * scale, key.mT());
  if (!causal) return softmax(scores, -1);
  // Query i sees keys 0 to i, so none sees nothing.
  const Tensor seen = ones({query.size(-2), key.size(-2)}, query.options().dtype(kBool)).tril();
  return softmax(masked_fill(scores, logical_not(seen), kUnseenScore), -1);
}

// --- the op ---

namespace {

TensorSpec result_spec(std::string_view op, const Tensor& q, const Tensor& k, const Tensor& v) {
  check_as<TypeError>(is_floating(q.dtype()), op, ": not defined for ", q.dtype(),
                      ".\nConvert first: x.to(kFloat32).");
  check(q.dim() == 4 && k.shape() == Shape{q.size(0), q.size(1), k.size(-2), q.size(3)} &&
            v.shape() == Shape{q.size(0), q.size(1), k.size(-2), v.size(-1)},
        op, ": needs q [B, H, L, E], k [B, H, S, E] and v [B, H, S, D], got ", q.shape(), ", ",
        k.shape(), " and ", v.shape(), ".");
  return {{q.size(0), q.size(2), q.size(1), v.size(3)}, q.dtype()};
}

}  // namespace

void Attention::infer(Inputs in, const Attrs&, Specs& out) {
  out.push_back(result_spec(name, *in[0], *in[1], *in[2]));
}

Grads Attention::grad(const Saved& s, const Tensor& g) {
  const Outputs grads =
      apply_all<AttentionBackward>(s.attrs<Attrs>(), g, s.input(0), s.input(1), s.input(2));
  return {grads[0].transpose(1, 2), grads[1].transpose(1, 2), grads[2].transpose(1, 2)};
}

Outputs Attention::lower(Inputs in, const Attrs& a) {
  const Tensor weights = attention_weights(computed(*in[0]), computed(*in[1]), a.scale, a.causal);
  return {matmul(weights, computed(*in[2])).transpose(1, 2).contiguous().to(in[0]->dtype())};
}
Samples Attention::samples() {
  const auto of = [](int64_t queries, int64_t keys, Attrs attrs) {
    return sample({sample_tensor({2, 2, queries, 3}, -1, 1),
                   sample_tensor({2, 2, keys, 3}, -1, 1.5), sample_tensor({2, 2, keys, 2})},
                  attrs);
  };
  return {of(3, 4, {.scale = 0.7, .causal = false}), of(4, 3, {.scale = 0.7, .causal = true}),
          of(2, 4, {.scale = -0.5, .causal = true})};
}

// --- its gradient ---

void AttentionBackward::infer(Inputs in, const Attrs&, Specs& out) {
  const TensorSpec result = result_spec(name, *in[1], *in[2], *in[3]);
  check(in[0]->shape() == result.sizes && in[0]->dtype() == result.dtype, name, ": the result is ",
        result.dtype, result.sizes, ", its gradient ", in[0]->dtype(), in[0]->shape(), ".");
  for (const Tensor* t : in.subspan(1))
    out.push_back({{t->size(0), t->size(2), t->size(1), t->size(3)}, t->dtype()});
}

/// With w the weights, d = g @ v.mT and s = w * (d - sum(w * d)), the outputs are scale * s @ k,
/// scale * s.mT @ q and w.mT @ g.
Grads AttentionBackward::grad(const Saved& saved, const Grads& incoming) {
  const Attrs& attrs = saved.attrs<Attrs>();
  const Tensor g = saved.input(0).transpose(1, 2), q = saved.input(1), k = saved.input(2),
               v = saved.input(3);
  const auto along = [](const Tensor& t) { return t.sum(-1, true); };
  const auto add = [](Tensor& to, const Tensor& more) { to = to.defined() ? to + more : more; };
  const Tensor w = attention_weights(q, k, attrs.scale, attrs.causal), d = matmul(g, v.mT()),
               centred = d - along(w * d), s = w * centred * attrs.scale;

  Tensor gg, gq, gk, gv, gw, gs;  // gs: of s, with the scale
  if (incoming[0].defined()) {
    const Tensor u = incoming[0].transpose(1, 2);
    add(gs, matmul(u, k.mT()) * attrs.scale);
    add(gk, matmul(s.mT(), u));
  }
  if (incoming[1].defined()) {
    const Tensor u = incoming[1].transpose(1, 2);
    add(gs, matmul(q, u.mT()) * attrs.scale);
    add(gq, matmul(s, u));
  }
  if (incoming[2].defined()) {
    const Tensor u = incoming[2].transpose(1, 2);
    add(gw, matmul(g, u.mT()));
    add(gg, matmul(w, u));
  }
  if (gs.defined()) {
    const Tensor sum = along(gs * w), gd = w * (gs - sum);
    add(gw, gs * centred - d * sum);
    add(gg, matmul(gd, v));
    add(gv, matmul(gd.mT(), g));
  }
  const Tensor scores = w * (gw - along(gw * w)) * attrs.scale;
  add(gq, matmul(scores, k));
  add(gk, matmul(scores.mT(), q));
  return {gg.defined() ? gg.transpose(1, 2) : gg, gq, gk, gv};
}

Outputs AttentionBackward::lower(Inputs in, const Attrs& a) {
  const Tensor g = computed(*in[0]).transpose(1, 2), q = computed(*in[1]), k = computed(*in[2]),
               v = computed(*in[3]), w = attention_weights(q, k, a.scale, a.causal),
               d = matmul(g, v.transpose(-2, -1)), s = w * (d - (w * d).sum(-1, true)) * a.scale;
  Outputs out{matmul(s, k), matmul(s.transpose(-2, -1), q), matmul(w.transpose(-2, -1), g)};
  for (Tensor& t : out) t = t.transpose(1, 2).contiguous().to(in[0]->dtype());
  return out;
}
Samples AttentionBackward::samples() {
  Samples samples = Attention::samples();
  for (Sample& s : samples)
    s.inputs.insert(s.inputs.begin(), sample_tensor({s.inputs[0].size(0), s.inputs[0].size(2),
                                                     s.inputs[0].size(1), s.inputs[2].size(3)},
                                                    -1, 2));
  return samples;
}

}  // namespace grapnel
