/// Free functions on tensors, under LibTorch's names. Methods of Tensor call these.
///
/// The functions are not inlined: the address they return to is where the user's program called
/// them, and messages and anomaly reports show it as file and line.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel {

// --- arithmetic ---
#define GRAPNEL_DECLARE(name, Def) Tensor name(const Tensor& x);
GRAPNEL_UNARY_OPS(GRAPNEL_DECLARE)
GRAPNEL_UNARY_TEST_OPS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE
#define GRAPNEL_DECLARE(name, Def)               \
  Tensor name(const Tensor& a, const Tensor& b); \
  Tensor name(const Tensor& a, const Scalar& b); \
  Tensor name(const Scalar& a, const Tensor& b);
GRAPNEL_BINARY_OPS(GRAPNEL_DECLARE)
GRAPNEL_COMPARE_OPS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE
#define GRAPNEL_DECLARE(name, Def) Tensor name(const Tensor& a, const Tensor& b);
GRAPNEL_BINARY_TENSOR_OPS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE

/// a + alpha * b
Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha = 1);
Tensor add(const Tensor& a, const Scalar& b, const Scalar& alpha = 1);
/// a - alpha * b
Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha = 1);
Tensor sub(const Tensor& a, const Scalar& b, const Scalar& alpha = 1);

/// Elementwise arithmetic with broadcasting; numbers take the type of the tensor beside them.
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, const Scalar& b);
Tensor operator+(const Scalar& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Scalar& b);
Tensor operator-(const Scalar& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Scalar& b);
Tensor operator*(const Scalar& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Scalar& b);
Tensor operator/(const Scalar& a, const Tensor& b);
Tensor operator-(const Tensor& x);
// In place: the left side keeps its type and shape. A temporary is written to as well: x[0] += y
// changes x.
#define GRAPNEL_DECLARE(symbol)                           \
  Tensor& operator symbol(Tensor & a, const Tensor & b);  \
  Tensor& operator symbol(Tensor & a, const Scalar & b);  \
  Tensor& operator symbol(Tensor && a, const Tensor & b); \
  Tensor& operator symbol(Tensor && a, const Scalar & b);
GRAPNEL_DECLARE(+=)
GRAPNEL_DECLARE(-=)
GRAPNEL_DECLARE(*=)
GRAPNEL_DECLARE(/=)
#undef GRAPNEL_DECLARE
#define GRAPNEL_DECLARE(symbol, name)                       \
  Tensor operator symbol(const Tensor& a, const Tensor& b); \
  Tensor operator symbol(const Tensor& a, const Scalar& b);
GRAPNEL_DECLARE(<, lt)
GRAPNEL_DECLARE(<=, le)
GRAPNEL_DECLARE(>, gt)
GRAPNEL_DECLARE(>=, ge)
GRAPNEL_DECLARE(==, eq)
GRAPNEL_DECLARE(!=, ne)
#undef GRAPNEL_DECLARE
/// Elementwise logic on booleans, bitwise operations on integers.
Tensor operator!(const Tensor& x);
Tensor operator&(const Tensor& a, const Tensor& b);
Tensor operator|(const Tensor& a, const Tensor& b);
Tensor operator^(const Tensor& a, const Tensor& b);
Tensor operator~(const Tensor& x);
/// The remainder of a division, with the sign of b.
Tensor operator%(const Tensor& a, const Tensor& b);
Tensor operator%(const Tensor& a, const Scalar& b);

/// a where `condition` holds, b elsewhere.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b);
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b);
/// x limited to [min, max]; either limit may be left out.
Tensor clamp(const Tensor& x, const std::optional<Scalar>& min = {},
             const std::optional<Scalar>& max = {});
/// x with `value` wherever `mask` holds.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value);
/// start + weight * (end - start)
Tensor lerp(const Tensor& start, const Tensor& end, const Scalar& weight);
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight);
/// x + value * a * b
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
/// x + value * a / b
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
/// x where it is positive, negative_slope * x elsewhere.
Tensor leaky_relu(const Tensor& x, const Scalar& negative_slope = 0.01);
/// x * Phi(x); `approximate` is "none" or "tanh".
Tensor gelu(const Tensor& x, std::string_view approximate = "none");
/// log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold.
Tensor softplus(const Tensor& x, const Scalar& beta = 1, const Scalar& threshold = 20);
/// scale * x where x is positive, scale * alpha * (exp(input_scale * x) - 1) elsewhere.
Tensor elu(const Tensor& x, const Scalar& alpha = 1, const Scalar& scale = 1,
           const Scalar& input_scale = 1);
/// Bit by bit, for integers and booleans.
Tensor bitwise_and(const Tensor& a, const Tensor& b);
/// Bit by bit, for integers and booleans.
Tensor bitwise_or(const Tensor& a, const Tensor& b);
/// Bit by bit, for integers and booleans.
Tensor bitwise_xor(const Tensor& a, const Tensor& b);

// --- views and copies ---
/// The same elements in another shape: a view where strides allow it, else a copy. One size may be
/// -1.
Tensor reshape(const Tensor& x, IntArrayRef sizes);
/// The dimensions from start_dim to end_dim made into one.
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1);
/// A view with two dimensions exchanged.
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
/// A view with its dimensions in another order.
Tensor permute(const Tensor& x, IntArrayRef dims);
/// A view without dimensions of size 1: all of them, or the one named.
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int64_t dim);
/// A view with a new dimension of size 1 at `dim`.
Tensor unsqueeze(const Tensor& x, int64_t dim);
/// A view of the diagonal of two dimensions; it becomes the last dimension.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// Views of all slices along `dim`, which disappears.
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);
/// Views of pieces of split_size along `dim`; the last may be smaller.
std::vector<Tensor> split(const Tensor& x, int64_t split_size, int64_t dim = 0);
/// Views of at most `chunks` pieces of equal size along `dim`; the last may be smaller.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
/// Tensors one behind the other along an existing dimension.
Tensor cat(TensorList tensors, int64_t dim = 0);
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim = 0);
/// Tensors of one shape along a new dimension.
Tensor stack(TensorList tensors, int64_t dim = 0);
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim = 0);
/// Views of all tensors in their common shape.
std::vector<Tensor> broadcast_tensors(TensorList tensors);
/// A copy with memory of its own, which gradients flow through.
Tensor clone(const Tensor& x);
/// The order of elements turned round along the named dimensions.
Tensor flip(const Tensor& x, IntArrayRef dims);

// --- reductions ---
/// The sum of all elements or along dimensions. Integers and booleans are summed as i64.
Tensor sum(const Tensor& x, std::optional<DType> dtype = {});
Tensor sum(const Tensor& x, IntArrayRef dims, bool keepdim = false,
           std::optional<DType> dtype = {});
/// The mean of all elements or along dimensions.
Tensor mean(const Tensor& x, std::optional<DType> dtype = {});
Tensor mean(const Tensor& x, IntArrayRef dims, bool keepdim = false,
            std::optional<DType> dtype = {});
/// The product of all elements or along a dimension.
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, int64_t dim, bool keepdim = false);
/// The largest values along dimensions (none named: all). Equal ones share the gradient.
Tensor amax(const Tensor& x, IntArrayRef dims = {}, bool keepdim = false);
/// The smallest values along dimensions (none named: all). Equal ones share the gradient.
Tensor amin(const Tensor& x, IntArrayRef dims = {}, bool keepdim = false);
/// The largest value; along a dimension with its position; of two tensors elementwise.
Tensor max(const Tensor& x);
/// The smallest value; along a dimension with its position; of two tensors elementwise.
Tensor min(const Tensor& x);
Tensor max(const Tensor& a, const Tensor& b);
Tensor min(const Tensor& a, const Tensor& b);
std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false);
std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false);
/// The position of the largest value, the first of equal ones.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
/// The position of the smallest value, the first of equal ones.
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
/// Whether any element is not zero.
Tensor any(const Tensor& x);
/// Whether no element is zero.
Tensor all(const Tensor& x);
/// The variance; divided by n - 1 unless `unbiased` is false.
Tensor var(const Tensor& x, IntArrayRef dims = {}, bool unbiased = true, bool keepdim = false);
// A template, so that the list in var(x, {0}) is never taken for a flag.
template <std::same_as<bool> B>
Tensor var(const Tensor& x, B unbiased) {
  return var(x, IntArrayRef{}, unbiased);
}
/// The standard deviation; divided by n - 1 unless `unbiased` is false.
Tensor std(const Tensor& x, IntArrayRef dims = {}, bool unbiased = true, bool keepdim = false);
// A template, so that the list in std(x, {0}) is never taken for a flag.
template <std::same_as<bool> B>
Tensor std(const Tensor& x, B unbiased) {
  return std(x, IntArrayRef{}, unbiased);
}
/// The p-norm of all elements or along dimensions.
Tensor norm(const Tensor& x, const Scalar& p = 2);
Tensor norm(const Tensor& x, const Scalar& p, IntArrayRef dims, bool keepdim = false);
/// log(sum(exp(x))), computed without overflow.
Tensor logsumexp(const Tensor& x, IntArrayRef dims, bool keepdim = false);
/// The running sum along a dimension.
Tensor cumsum(const Tensor& x, int64_t dim);
/// The running product along a dimension.
Tensor cumprod(const Tensor& x, int64_t dim);
/// exp(x) divided by its sum along a dimension.
Tensor softmax(const Tensor& x, int64_t dim);
/// The logarithm of softmax, computed without underflow.
Tensor log_softmax(const Tensor& x, int64_t dim);

// --- products and convolutions ---
/// The product of vectors, matrices or batches of matrices; batches broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);
/// The product of two matrices.
Tensor mm(const Tensor& a, const Tensor& b);
/// Products of two batches of matrices, one by one.
Tensor bmm(const Tensor& a, const Tensor& b);
/// A matrix times a vector.
Tensor mv(const Tensor& a, const Tensor& vector);
/// The sum of products of two vectors.
Tensor dot(const Tensor& a, const Tensor& b);
/// All products of the elements of two vectors.
Tensor outer(const Tensor& a, const Tensor& b);
/// beta * x + alpha * (a @ b)
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta = 1,
             const Scalar& alpha = 1);
/// x @ weight^T + bias
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// Sums of products by index letters, as in einsum("bij,bjk->bik", {a, b}).
Tensor einsum(std::string_view equation, TensorList operands);
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands);
/// Correlation over [batch, channels, length] with a weight [out, in / groups, kernel].
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              IntArrayRef stride = {1}, IntArrayRef padding = {0}, IntArrayRef dilation = {1},
              int64_t groups = 1);
/// Correlation over [batch, channels, height, width] with a weight [out, in / groups, kernel...].
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              IntArrayRef stride = {1}, IntArrayRef padding = {0}, IntArrayRef dilation = {1},
              int64_t groups = 1);
/// The gradient of conv1d for its input, as a layer: [batch, in, length] with a weight [in, out /
/// groups, kernel]. `output_padding` adds elements at one end, where several sizes would fit.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        IntArrayRef stride = {1}, IntArrayRef padding = {0},
                        IntArrayRef output_padding = {0}, int64_t groups = 1,
                        IntArrayRef dilation = {1});
/// The gradient of conv2d for its input, as a layer: [batch, in, height, width] with a weight [in,
/// out / groups, kernel...]. `output_padding` adds elements at one end, where several sizes would
/// fit.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        IntArrayRef stride = {1}, IntArrayRef padding = {0},
                        IntArrayRef output_padding = {0}, int64_t groups = 1,
                        IntArrayRef dilation = {1});
/// The largest value of each window. The stride is the window unless told otherwise.
Tensor max_pool2d(const Tensor& x, IntArrayRef kernel_size, IntArrayRef stride = {},
                  IntArrayRef padding = {0}, IntArrayRef dilation = {1}, bool ceil_mode = false);
/// The mean of each window. The stride is the window unless told otherwise.
Tensor avg_pool2d(const Tensor& x, IntArrayRef kernel_size, IntArrayRef stride = {},
                  IntArrayRef padding = {0}, bool ceil_mode = false, bool count_include_pad = true);

// --- indexing and sorting ---
/// Elements of x at the positions `index` along a dimension.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// x with the elements of `source` put at the positions `index` along a dimension.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// x with the elements of `source` added at the positions `index` along a dimension.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// The slices of x at the positions `index` along a dimension.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
/// x with the slices of `source` added at the positions `index` along a dimension.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// The elements where `mask` holds, as a vector. Its size depends on values, so it ends a
/// recording.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// The positions of all elements that are not zero, a row each. Its size depends on values, so it
/// ends a recording.
Tensor nonzero(const Tensor& x);
/// Sorted values and where they were. Equal elements keep their order.
std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, bool descending = false);
/// The k largest (or smallest) values along a dimension and where they were.
std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true,
                                bool sorted = true);
/// The part on and below a diagonal; zero elsewhere.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
/// The part on and above a diagonal; zero elsewhere.
Tensor triu(const Tensor& x, int64_t diagonal = 0);
/// The rows of `weight` at `indices`. The row padding_idx gets no gradient.
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx = -1);
/// A new last dimension with a one at the position of each index.
Tensor one_hot(const Tensor& indices, int64_t num_classes = -1);

// --- normalisation, losses, attention ---
/// What a loss does with the losses of single elements.
enum class Reduce : uint8_t { none, mean, sum };

/// x with mean 0 and variance 1 over its last dimensions, then scaled and shifted.
Tensor layer_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
/// x with mean 0 and variance 1 per channel: of the batch when training, else by the running
/// values.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var, bool training,
                  double momentum = 0.1, double eps = 1e-5);
/// x with each element set to zero with probability p, the others scaled by 1 / (1 - p).
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
/// Minus the log-probability of the class `target`, weighted by class.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const Tensor& weight = {},
                Reduce reduction = Reduce::mean, int64_t ignore_index = -100);
/// Functions that a call without `grapnel::` or a using-directive does not find by its arguments:
/// programs have their own of the name, and LibTorch has none that would be found beside them.
namespace by_name {
/// log_softmax and nll_loss in one. `target` holds classes, or probabilities of all classes.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& weight = {},
                     Reduce reduction = Reduce::mean, int64_t ignore_index = -100,
                     double label_smoothing = 0);
}  // namespace by_name
using namespace by_name;
/// The squared difference.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduce reduction = Reduce::mean);
/// The absolute difference.
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduce reduction = Reduce::mean);
/// Targets and x are probabilities. Logarithms are not below -100, and the gradient stays finite
/// where x is 0 or 1.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                            Reduce reduction = Reduce::mean);
/// The cross entropy of sigmoid(logits) and a probability, computed without overflow.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const Tensor& weight = {}, const Tensor& pos_weight = {},
                                        Reduce reduction = Reduce::mean);
/// softmax(query @ key^T * scale + mask) @ value. The scale is 1 / sqrt(size of a key) unless told
/// otherwise.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0,
                                    bool is_causal = false, std::optional<double> scale = {});

// --- comparison of whole tensors ---
/// Whether shapes and all elements are equal.
bool equal(const Tensor& a, const Tensor& b);
/// Whether |a - b| <= atol + rtol * |b| for all elements.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);

}  // namespace grapnel
