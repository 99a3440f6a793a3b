/// What `at` and `torch` have in common: one list of Grapnel's names, declared in both.
///
/// Names are declared one by one and not through a using-directive: a program that says `using
/// namespace torch;` must find torch::nn and not grapnel::nn beside it. Pointwise functions follow
/// from tensor/op_list.h and functions/one_call.h.
#pragma once

#include "grapnel/grapnel.h"
#include "grapnel/nn/nn.h"
#include "grapnel/optim/optim.h"
#include "grapnel/tensor/tensor_index.h"

// X(name) for every type and function that means the same here and there.
// clang-format off
#define GRAPNEL_COMPAT_TYPES(X)                                                                  \
  X(Tensor) X(TensorList) X(Scalar) X(ScalarType) X(TensorOptions) X(Device) X(DeviceType)       \
  X(IntArrayRef) X(IntList) X(Half) X(BFloat16) X(Generator) X(Storage) X(GradMode)              \
  X(AutoGradMode) X(NoGradGuard) X(IValue) X(OrderedDict) X(kBool) X(kUInt8) X(kByte) X(kInt32)  \
  X(kInt) X(kInt64) X(kLong) X(kFloat16) X(kHalf) X(kBFloat16) X(kFloat32) X(kFloat) X(kFloat64) \
  X(kDouble) X(kCPU) X(kStrided)
#define GRAPNEL_COMPAT_FACTORIES(X)                                                            \
  X(tensor) X(empty) X(empty_strided) X(zeros) X(ones) X(full) X(scalar_tensor) X(arange)      \
  X(linspace) X(eye) X(rand) X(randn) X(randint) X(randperm) X(empty_like) X(zeros_like)       \
  X(ones_like) X(full_like) X(rand_like) X(randn_like) X(randint_like) X(from_blob)            \
  X(requires_grad) X(dtype) X(device) X(manual_seed) X(get_default_dtype) X(set_default_dtype) \
  X(get_num_threads) X(set_num_threads) X(promote_types) X(logspace) X(layout) X(normal)       \
  X(bernoulli) X(multinomial)
#define GRAPNEL_COMPAT_FUNCTIONS(X)                                                                \
  X(add) X(sub) X(where) X(clamp) X(masked_fill) X(lerp) X(addcmul) X(addcdiv) X(leaky_relu)       \
  X(gelu) X(softplus) X(elu) X(bitwise_and) X(bitwise_or) X(bitwise_xor) X(reshape) X(flatten)     \
  X(transpose) X(permute) X(squeeze) X(unsqueeze) X(diagonal) X(unbind) X(split) X(chunk) X(cat)   \
  X(stack) X(broadcast_tensors) X(clone) X(flip) X(sum) X(mean) X(prod) X(amax) X(amin) X(max)     \
  X(min) X(argmax) X(argmin) X(any) X(all) X(var) X(std) X(norm) X(logsumexp) X(cumsum) X(cumprod) \
  X(softmax) X(log_softmax) X(matmul) X(mm) X(bmm) X(mv) X(dot) X(outer) X(addmm) X(linear)        \
  X(einsum) X(conv1d) X(conv2d) X(max_pool2d) X(avg_pool2d) X(gather) X(scatter) X(scatter_add)    \
  X(index_select) X(index_add) X(masked_select) X(nonzero) X(sort) X(topk) X(tril) X(triu)         \
  X(embedding) X(one_hot) X(layer_norm) X(batch_norm) X(dropout) X(nll_loss) X(mse_loss)           \
  X(l1_loss) X(binary_cross_entropy_with_logits) X(scaled_dot_product_attention) X(equal)          \
  X(allclose) X(isclose) X(binary_cross_entropy) X(conv_transpose1d) X(conv_transpose2d) X(pad)    \
  X(pixel_shuffle) X(pixel_unshuffle) X(swapaxes) X(swapdims) X(moveaxis) X(tile)                  \
  X(repeat_interleave) X(diag) X(diag_embed) X(meshgrid) X(vstack) X(hstack) X(std_mean)           \
  X(var_mean) X(median) X(quantile) X(count_nonzero) X(bincount) X(histc) X(searchsorted)          \
  X(bucketize) X(cosine_similarity) X(pairwise_distance) X(cdist) X(cross) X(tensordot)            \
  X(hardtanh) X(relu6) X(selu) X(celu) X(mish) X(hardsigmoid) X(hardswish) X(hardshrink)           \
  X(softshrink) X(threshold) X(glu) X(prelu) X(rrelu) X(logit) X(nan_to_num)
// clang-format on

#define GRAPNEL_COMPAT_USING(name) using ::grapnel::name;
#define GRAPNEL_COMPAT_USING_OP(name, Def) using ::grapnel::name;
#define GRAPNEL_COMPAT_NAMES                         \
  GRAPNEL_COMPAT_TYPES(GRAPNEL_COMPAT_USING)         \
  GRAPNEL_COMPAT_FACTORIES(GRAPNEL_COMPAT_USING)     \
  GRAPNEL_COMPAT_FUNCTIONS(GRAPNEL_COMPAT_USING)     \
  GRAPNEL_UNARY_OPS(GRAPNEL_COMPAT_USING_OP)         \
  GRAPNEL_UNARY_TEST_OPS(GRAPNEL_COMPAT_USING_OP)    \
  GRAPNEL_UNARY_FUNCTIONS(GRAPNEL_COMPAT_USING_OP)   \
  GRAPNEL_BINARY_OPS(GRAPNEL_COMPAT_USING_OP)        \
  GRAPNEL_BINARY_TENSOR_OPS(GRAPNEL_COMPAT_USING_OP) \
  GRAPNEL_COMPARE_OPS(GRAPNEL_COMPAT_USING_OP)
