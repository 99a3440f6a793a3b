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
Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha = 1);
Tensor sub(const Tensor& a, const Scalar& b, const Scalar& alpha = 1);

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
// In place. A temporary is written to as well: x[0] += y changes x.
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
Tensor operator!(const Tensor& x);
Tensor operator&(const Tensor& a, const Tensor& b);
Tensor operator|(const Tensor& a, const Tensor& b);
Tensor operator^(const Tensor& a, const Tensor& b);

/// a where `condition` holds, b elsewhere.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b);
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b);
Tensor clamp(const Tensor& x, const std::optional<Scalar>& min = {},
             const std::optional<Scalar>& max = {});
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value);
Tensor lerp(const Tensor& start, const Tensor& end, const Scalar& weight);
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight);
/// x + value * a * b
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
/// x + value * a / b
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
Tensor leaky_relu(const Tensor& x, const Scalar& negative_slope = 0.01);
/// x * Phi(x); `approximate` is "none" or "tanh".
Tensor gelu(const Tensor& x, std::string_view approximate = "none");
Tensor softplus(const Tensor& x, const Scalar& beta = 1, const Scalar& threshold = 20);
Tensor elu(const Tensor& x, const Scalar& alpha = 1);
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);

// --- views and copies ---
Tensor reshape(const Tensor& x, IntArrayRef sizes);
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1);
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor permute(const Tensor& x, IntArrayRef dims);
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int64_t dim);
Tensor unsqueeze(const Tensor& x, int64_t dim);
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, int64_t split_size, int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
Tensor cat(TensorList tensors, int64_t dim = 0);
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim = 0);
Tensor stack(TensorList tensors, int64_t dim = 0);
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim = 0);
std::vector<Tensor> broadcast_tensors(TensorList tensors);
Tensor clone(const Tensor& x);
Tensor flip(const Tensor& x, IntArrayRef dims);

// --- reductions ---
Tensor sum(const Tensor& x, std::optional<DType> dtype = {});
Tensor sum(const Tensor& x, IntArrayRef dims, bool keepdim = false,
           std::optional<DType> dtype = {});
Tensor mean(const Tensor& x, std::optional<DType> dtype = {});
Tensor mean(const Tensor& x, IntArrayRef dims, bool keepdim = false,
            std::optional<DType> dtype = {});
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor amax(const Tensor& x, IntArrayRef dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, IntArrayRef dims = {}, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
Tensor max(const Tensor& a, const Tensor& b);
Tensor min(const Tensor& a, const Tensor& b);
std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false);
std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor any(const Tensor& x);
Tensor all(const Tensor& x);
Tensor var(const Tensor& x, IntArrayRef dims = {}, bool unbiased = true, bool keepdim = false);
// A template, so that the list in var(x, {0}) is never taken for a flag.
template <std::same_as<bool> B>
Tensor var(const Tensor& x, B unbiased) {
  return var(x, IntArrayRef{}, unbiased);
}
Tensor std(const Tensor& x, IntArrayRef dims = {}, bool unbiased = true, bool keepdim = false);
// A template, so that the list in std(x, {0}) is never taken for a flag.
template <std::same_as<bool> B>
Tensor std(const Tensor& x, B unbiased) {
  return std(x, IntArrayRef{}, unbiased);
}
Tensor norm(const Tensor& x, const Scalar& p = 2);
Tensor norm(const Tensor& x, const Scalar& p, IntArrayRef dims, bool keepdim = false);
Tensor logsumexp(const Tensor& x, IntArrayRef dims, bool keepdim = false);
Tensor cumsum(const Tensor& x, int64_t dim);
Tensor cumprod(const Tensor& x, int64_t dim);
Tensor softmax(const Tensor& x, int64_t dim);
Tensor log_softmax(const Tensor& x, int64_t dim);

// --- products and convolutions ---
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor mm(const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);
Tensor mv(const Tensor& a, const Tensor& vector);
Tensor dot(const Tensor& a, const Tensor& b);
Tensor outer(const Tensor& a, const Tensor& b);
/// beta * x + alpha * (a @ b)
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta = 1,
             const Scalar& alpha = 1);
/// x @ weight^T + bias
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
Tensor einsum(std::string_view equation, TensorList operands);
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands);
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              IntArrayRef stride = {1}, IntArrayRef padding = {0}, IntArrayRef dilation = {1},
              int64_t groups = 1);
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              IntArrayRef stride = {1}, IntArrayRef padding = {0}, IntArrayRef dilation = {1},
              int64_t groups = 1);
Tensor max_pool2d(const Tensor& x, IntArrayRef kernel_size, IntArrayRef stride = {},
                  IntArrayRef padding = {0}, IntArrayRef dilation = {1}, bool ceil_mode = false);
Tensor avg_pool2d(const Tensor& x, IntArrayRef kernel_size, IntArrayRef stride = {},
                  IntArrayRef padding = {0}, bool ceil_mode = false, bool count_include_pad = true);

// --- indexing and sorting ---
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor masked_select(const Tensor& x, const Tensor& mask);
Tensor nonzero(const Tensor& x);
std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, bool descending = false);
std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true,
                                bool sorted = true);
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx = -1);
Tensor one_hot(const Tensor& indices, int64_t num_classes = -1);

// --- normalisation, losses, attention ---
enum class Reduce : uint8_t { none, mean, sum };

Tensor layer_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var, bool training,
                  double momentum = 0.1, double eps = 1e-5);
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const Tensor& weight = {},
                Reduce reduction = Reduce::mean, int64_t ignore_index = -100);
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& weight = {},
                     Reduce reduction = Reduce::mean, int64_t ignore_index = -100,
                     double label_smoothing = 0);
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduce reduction = Reduce::mean);
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduce reduction = Reduce::mean);
/// Targets and x are probabilities. Logarithms are not below -100, and the gradient stays finite
/// where x is 0 or 1.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                            Reduce reduction = Reduce::mean);
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const Tensor& weight = {}, const Tensor& pos_weight = {},
                                        Reduce reduction = Reduce::mean);
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0,
                                    bool is_causal = false, std::optional<double> scale = {});

// --- comparison of whole tensors ---
bool equal(const Tensor& a, const Tensor& b);
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);

}  // namespace grapnel
