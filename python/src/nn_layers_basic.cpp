// Layers with weights, and pooling: one entry each.
#include "grapnel/nn/conv.h"
#include "grapnel/nn/embedding.h"
#include "grapnel/nn/linear.h"
#include "grapnel/nn/norm.h"
#include "grapnel/nn/pooling.h"
#include "python/src/nn_layers.h"

namespace grapnel::python {

namespace {

template <class M, class Options>
std::unique_ptr<nn::Module> make(const Options& options) {
  return std::make_unique<M>(options);
}

nn::PaddingMode padding_mode(const Arguments& a) {
  const std::string name = a.text("padding_mode");
  if (name == "zeros") return nn::PaddingMode::zeros;
  if (name == "reflect") return nn::PaddingMode::reflect;
  if (name == "replicate") return nn::PaddingMode::replicate;
  if (name == "circular") return nn::PaddingMode::circular;
  fail("padding_mode is 'zeros', 'reflect', 'replicate' or 'circular', got '", name, "'.");
}

template <size_t D>
nn::ConvOptions<D> conv(const Arguments& a) {
  const auto size = [&](const char* name) { return nn::ExpandingArray<D>(a.integers(name)); };
  nn::ConvPadding<D> padding = 0;
  if (nb::isinstance<nb::str>(a.at("padding"))) {
    const std::string kind = a.text("padding");
    check(kind == "same" || kind == "valid", "padding is a number, 'same' or 'valid', got '", kind,
          "'.");
    padding = kind == "same" ? nn::Padding::same : nn::Padding::valid;
  } else {
    padding = size("padding");
  }
  return nn::ConvOptions<D>(a.integer("in_channels"), a.integer("out_channels"),
                            size("kernel_size"))
      .stride(size("stride"))
      .padding(padding)
      .dilation(size("dilation"))
      .groups(a.integer("groups"))
      .bias(a.flag("bias"))
      .padding_mode(padding_mode(a));
}

nn::BatchNormOptions batch_norm(const Arguments& a) {
  return nn::BatchNormOptions(a.integer("num_features"))
      .eps(a.number("eps"))
      .momentum(a.maybe_number("momentum"))
      .affine(a.flag("affine"))
      .track_running_stats(a.flag("track_running_stats"));
}

template <size_t D>
nn::MaxPoolOptions<D> max_pool(const Arguments& a) {
  auto out = nn::MaxPoolOptions<D>(a.integers("kernel_size"))
                 .padding(a.integers("padding"))
                 .dilation(a.integers("dilation"))
                 .ceil_mode(a.flag("ceil_mode"));
  if (!a.none("stride")) out.stride(a.integers("stride"));
  return out;
}
template <size_t D>
nn::AvgPoolOptions<D> avg_pool(const Arguments& a) {
  auto out = nn::AvgPoolOptions<D>(a.integers("kernel_size"))
                 .padding(a.integers("padding"))
                 .ceil_mode(a.flag("ceil_mode"))
                 .count_include_pad(a.flag("count_include_pad"));
  if (!a.none("stride")) out.stride(a.integers("stride"));
  return out;
}

constexpr const char* kConv =
    "in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, "
    "padding_mode='zeros'";
constexpr const char* kBatchNorm =
    "num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True";
constexpr const char* kMaxPool = "kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False";
constexpr const char* kAvgPool =
    "kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True";

template <class M>
std::vector<Layer::TensorMember> weight_and_bias() {
  return {tensor_in<M, &M::weight>("weight"), tensor_in<M, &M::bias>("bias")};
}
template <class M>
Layer batch_norm_layer(const char* name) {
  Layer out = layer<M>(name, kBatchNorm,
                       [](const Arguments& a) { return make<M>(batch_norm(a)); });
  out.tensors = weight_and_bias<M>();
  out.tensors.push_back(tensor_in<M, &M::running_mean>("running_mean"));
  out.tensors.push_back(tensor_in<M, &M::running_var>("running_var"));
  out.tensors.push_back(tensor_in<M, &M::num_batches_tracked>("num_batches_tracked"));
  return out;
}
Layer with(Layer layer, std::vector<Layer::TensorMember> tensors) {
  layer.tensors = std::move(tensors);
  return layer;
}

}  // namespace

void add_basic_layers(std::vector<Layer>& out) {
  using namespace nn;
  using A = const Arguments&;
  out.push_back(with(layer<LinearImpl>("Linear", "in_features, out_features, bias=True",
                                       [](A a) {
                                         return make<LinearImpl>(
                                             LinearOptions(a.integer("in_features"),
                                                           a.integer("out_features"))
                                                 .bias(a.flag("bias")));
                                       }),
                     weight_and_bias<LinearImpl>()));
  out.back().describe = [](const Module& m, nb::dict& d) {
    const LinearOptions& o = static_cast<const LinearImpl&>(m).options;
    d["in_features"] = o.in_features();
    d["out_features"] = o.out_features();
    d["bias"] = o.bias();
  };
  out.push_back(layer<IdentityImpl>("Identity", "*args, **kwargs",
                                    [](A) -> std::unique_ptr<Module> {
                                      return std::make_unique<IdentityImpl>();
                                    }));
  out.push_back(layer<FlattenImpl>("Flatten", "start_dim=1, end_dim=-1", [](A a) {
    return make<FlattenImpl>(
        FlattenOptions().start_dim(a.integer("start_dim")).end_dim(a.integer("end_dim")));
  }));
  out.push_back(with(
      layer<Conv1dImpl>("Conv1d", kConv, [](A a) { return make<Conv1dImpl>(conv<1>(a)); }),
      weight_and_bias<Conv1dImpl>()));
  out.push_back(with(
      layer<Conv2dImpl>("Conv2d", kConv, [](A a) { return make<Conv2dImpl>(conv<2>(a)); }),
      weight_and_bias<Conv2dImpl>()));
  out.push_back(with(
      layer<EmbeddingImpl>(
          "Embedding",
          "num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0",
          [](A a) {
            return make<EmbeddingImpl>(
                EmbeddingOptions(a.integer("num_embeddings"), a.integer("embedding_dim"))
                    .padding_idx(a.maybe_integer("padding_idx"))
                    .max_norm(a.maybe_number("max_norm"))
                    .norm_type(a.number("norm_type")));
          }),
      {tensor_in<EmbeddingImpl, &EmbeddingImpl::weight>("weight")}));
  out.push_back(batch_norm_layer<BatchNorm1dImpl>("BatchNorm1d"));
  out.push_back(batch_norm_layer<BatchNorm2dImpl>("BatchNorm2d"));
  out.push_back(with(
      layer<LayerNormImpl>("LayerNorm",
                           "normalized_shape, eps=1e-5, elementwise_affine=True, bias=True",
                           [](A a) {
                             return make<LayerNormImpl>(
                                 LayerNormOptions(a.integers("normalized_shape"))
                                     .eps(a.number("eps"))
                                     .elementwise_affine(a.flag("elementwise_affine"))
                                     .bias(a.flag("bias")));
                           }),
      weight_and_bias<LayerNormImpl>()));
  out.back().describe = [](const Module& m, nb::dict& d) {
    const LayerNormOptions& o = static_cast<const LayerNormImpl&>(m).options;
    nb::list shape;
    for (const int64_t size : o.normalized_shape()) shape.append(size);
    d["normalized_shape"] = shape;
    d["eps"] = o.eps();
    d["elementwise_affine"] = o.elementwise_affine();
    d["bias"] = o.bias();
  };
  out.push_back(with(
      layer<GroupNormImpl>("GroupNorm", "num_groups, num_channels, eps=1e-5, affine=True",
                           [](A a) {
                             return make<GroupNormImpl>(
                                 GroupNormOptions(a.integer("num_groups"),
                                                  a.integer("num_channels"))
                                     .eps(a.number("eps"))
                                     .affine(a.flag("affine")));
                           }),
      weight_and_bias<GroupNormImpl>()));
  out.push_back(with(
      layer<RMSNormImpl>("RMSNorm", "normalized_shape, eps=None, elementwise_affine=True",
                         [](A a) {
                           return make<RMSNormImpl>(
                               RMSNormOptions(a.integers("normalized_shape"))
                                   .eps(a.maybe_number("eps"))
                                   .elementwise_affine(a.flag("elementwise_affine")));
                         }),
      {tensor_in<RMSNormImpl, &RMSNormImpl::weight>("weight")}));
#define GRAPNEL_POOL(Name, D, options, arguments) \
  out.push_back(                                  \
      layer<Name##Impl>(#Name, arguments, [](A a) { return make<Name##Impl>(options<D>(a)); }))
  GRAPNEL_POOL(MaxPool1d, 1, max_pool, kMaxPool);
  GRAPNEL_POOL(MaxPool2d, 2, max_pool, kMaxPool);
  GRAPNEL_POOL(AvgPool1d, 1, avg_pool, kAvgPool);
  GRAPNEL_POOL(AvgPool2d, 2, avg_pool, kAvgPool);
#undef GRAPNEL_POOL
#define GRAPNEL_POOL(Name)                                       \
  out.push_back(layer<Name##Impl>(#Name, "output_size", [](A a) { \
    return make<Name##Impl>(Name##Options(a.sizes("output_size"))); \
  }))
  GRAPNEL_POOL(AdaptiveAvgPool1d);
  GRAPNEL_POOL(AdaptiveAvgPool2d);
  GRAPNEL_POOL(AdaptiveMaxPool1d);
  GRAPNEL_POOL(AdaptiveMaxPool2d);
#undef GRAPNEL_POOL
}

}  // namespace grapnel::python
