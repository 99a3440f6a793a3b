#include "grapnel/hooks/per_sample.h"

#include <cmath>
#include <functional>
#include <utility>

#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/nn.h"

namespace grapnel::hooks {

namespace {

/// Squared norms of the parameters' gradients, one per example, from a layer, its input and the
/// gradient of its output.
using SquaresFn = std::function<Tensor(nn::Module& layer, const Tensor& x, const Tensor& g)>;

/// Sums the squares of all but the first dimension.
Tensor squares_of(const Tensor& t) { return t.square().reshape({t.size(0), -1}).sum({1}); }
/// Sums all dimensions between the first and the last `keep`.
Tensor sum_middle(const Tensor& t, int64_t keep) {
  Shape dims;
  for (int64_t i = 1; i < t.dim() - keep; ++i) dims.push_back(i);
  return dims.empty() ? t : t.sum(dims);
}
Tensor plus(const Tensor& a, const Tensor& b) {
  return !a.defined() ? b : !b.defined() ? a : a + b;
}

Tensor linear_squares(const nn::LinearImpl& layer, const Tensor& x, const Tensor& g) {
  Tensor out;
  if (layer.weight.requires_grad())
    out = x.dim() == 2 ? squares_of(x) * squares_of(g)  // an outer product
                       : squares_of(matmul(g.reshape({g.size(0), -1, g.size(-1)}).mT(),
                                           x.reshape({x.size(0), -1, x.size(-1)})));
  if (layer.bias.defined() && layer.bias.requires_grad())
    out = plus(out, squares_of(sum_middle(g, 1)));
  return out;
}

/// Every example becomes a group with a copy of the weight; the gradients of the copies are the
/// examples' gradients.
template <size_t D, class Layer>
Tensor conv_squares(const Layer& layer, const Tensor& x, const Tensor& g) {
  const auto& o = layer.options;
  const int64_t batch = x.size(0);
  const auto merged = [](const Tensor& t) { return t.flatten(0, 1).unsqueeze(0); };
  Tensor out;
  if (layer.weight.requires_grad()) {
    EnableGradGuard grad_on;
    Shape repeats = Shape::filled(static_cast<int>(layer.weight.dim()), 1);
    repeats[0] = batch;
    const Tensor copies = layer.weight.detach().repeat(repeats).set_requires_grad(true);
    const IntArrayRef padding = o.padding().sizes();
    Tensor y;
    if constexpr (D == 1)
      y = conv1d(merged(x), copies, {}, o.stride(), padding, o.dilation(), batch * o.groups());
    else y = conv2d(merged(x), copies, {}, o.stride(), padding, o.dilation(), batch * o.groups());
    out = squares_of(autograd::grad({y}, {copies}, {merged(g)})[0].unflatten(0, {batch, -1}));
  }
  if (layer.bias.defined() && layer.bias.requires_grad())
    out = plus(out, squares_of(g.flatten(2).sum({2})));
  return out;
}

/// Rows that occur several times in an example add up: the square of a sum is the sum of all
/// products of equal rows.
Tensor embedding_squares(const nn::EmbeddingImpl& layer, const Tensor& indices, const Tensor& g) {
  const Tensor rows = indices.reshape({indices.size(0), -1});
  Tensor grads = g.reshape({g.size(0), -1, g.size(-1)});
  if (layer.options.padding_idx())
    grads = grads.masked_fill((rows == *layer.options.padding_idx()).unsqueeze(-1), 0.0);
  const Tensor equal_rows = rows.unsqueeze(1) == rows.unsqueeze(2);
  return (matmul(grads, grads.mT()) * equal_rows.to(g.dtype())).sum({1, 2});
}

template <class Layer>
Tensor affine_squares(const Layer& layer, const Tensor& normalised, const Tensor& bias,
                      const Tensor& g) {
  const auto keep = static_cast<int64_t>(layer.options.normalized_shape().size());
  Tensor out;
  if (layer.weight.requires_grad()) out = squares_of(sum_middle(g * normalised, keep));
  if (bias.defined() && bias.requires_grad()) out = plus(out, squares_of(sum_middle(g, keep)));
  return out;
}

template <class Layer>
void check_plain_padding(const Layer& layer, const std::string& path) {
  check(
      !layer.options.padding().is_same() && layer.options.padding_mode() == nn::PaddingMode::zeros,
      "PerSampleNorms: '", path,
      "' has a padding that is not known here; only numbers of zeros are.");
}

/// Null for a layer without parameters of its own.
SquaresFn squares_fn(nn::Module& m, const std::string& path) {
  bool trained = false;
  for (const Tensor& p : m.parameters(false)) trained |= p.requires_grad();
  if (!trained) return nullptr;
  if (m.as<nn::Linear>())
    return [](nn::Module& l, const Tensor& x, const Tensor& g) {
      return linear_squares(*l.as<nn::Linear>(), x, g);
    };
  if (const auto* c = m.as<nn::Conv1d>()) {
    check_plain_padding(*c, path);
    return [](nn::Module& l, const Tensor& x, const Tensor& g) {
      return conv_squares<1>(*l.as<nn::Conv1d>(), x, g);
    };
  }
  if (const auto* c = m.as<nn::Conv2d>()) {
    check_plain_padding(*c, path);
    return [](nn::Module& l, const Tensor& x, const Tensor& g) {
      return conv_squares<2>(*l.as<nn::Conv2d>(), x, g);
    };
  }
  if (m.as<nn::Embedding>())
    return [](nn::Module& l, const Tensor& x, const Tensor& g) {
      return embedding_squares(*l.as<nn::Embedding>(), x, g);
    };
  if (m.as<nn::LayerNorm>())
    return [](nn::Module& l, const Tensor& x, const Tensor& g) {
      const auto& n = *l.as<nn::LayerNorm>();
      return affine_squares(n, layer_norm(x, n.options.normalized_shape(), {}, {}, n.options.eps()),
                            n.bias, g);
    };
  if (m.as<nn::RMSNorm>())
    return [](nn::Module& l, const Tensor& x, const Tensor& g) {
      const auto& n = *l.as<nn::RMSNorm>();
      return affine_squares(
          n, nn::functional::rms_norm(x, n.options.normalized_shape(), {}, n.options.eps()), {}, g);
    };
  fail("PerSampleNorms: '", path, "' is ", m.name(),
       ", whose gradient per example is not known here.\nFreeze its parameters, or leave it out: "
       "PerSampleNorms takes any part of a model.");
}

}  // namespace

/// Graphs may outlive the object; their hooks find out by this.
struct PerSampleNorms::State {
  Tensor squares;
  void add(const Tensor& more);
};

PerSampleNorms::PerSampleNorms(nn::Module& module, const PerSampleNormsOptions& options)
    : options_(options), state_(std::make_shared<State>()) {
  module.apply([&](const std::string& path, nn::Module& m) {
    const SquaresFn squares = squares_fn(m, path);
    if (!squares) return;
    handles_.push_back(m.register_forward_hook(
        [weak = std::weak_ptr(state_), squares, path](nn::Module& layer, const nn::Args& args,
                                                      const nn::Value& result) {
          const Tensor& out = result.toTensor();
          if (!out.requires_grad()) return;
          // The output is detached from the layer's input by the hook, so keeping the input makes
          // no cycle. The layer is kept, too: a graph may outlive its module.
          out.register_hook(
              [weak, squares, &layer, keep = layer.weak_from_this().lock(),
               x = args.at(0).toTensor().detach()](const Tensor& g) {
                const auto state = weak.lock();
                if (!state || !g.defined()) return;
                NoGradGuard no_grad;
                state->add(squares(layer, x, g.detach()));
              },
              {"per-sample norms of " + path, base::SourceLine()});
        },
        {.name = "per-sample norms"}));
  });
}

PerSampleNorms::~PerSampleNorms() {
  for (HookHandle& h : handles_) h.remove();
}

void PerSampleNorms::State::add(const Tensor& more) {
  if (!squares.defined()) {
    squares = more;
    return;
  }
  check(more.shape() == squares.shape(), "PerSampleNorms: layers saw batches of ", squares.size(0),
        " and of ", more.size(0),
        " examples.\nThe first dimension of every layer's input has to be the batch.");
  squares = squares + more;
}

Tensor PerSampleNorms::take() {
  Tensor& squares = state_->squares;
  check(squares.defined(), "PerSampleNorms: there was no backward pass since the last call.");
  const Tensor norms = std::exchange(squares, {}).sqrt();
  return options_.loss_is_mean ? norms * static_cast<double>(norms.size(0)) : norms;
}

}  // namespace grapnel::hooks
