/// Integers that make no sense as a size, a position, a count or a step: every function that takes
/// one gives a result or an Error, at once and without leaving memory.
#include <functional>
#include <limits>

#include "grapnel/grapnel.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kVast = int64_t{1} << 62;
/// Nothing between: sizes that some machine could hold would only take long.
constexpr int64_t kIntegers[] = {0, -1, 1, 3, kVast, -kVast, kMax, kMin, kMax - 1, kMin + 1};

void look_at(const Tensor& t) {
  if (t.defined() && t.numel() < 1000000) t.clone();
}
void look_at(const std::vector<Tensor>& list) {
  for (size_t i = 0; i < std::min<size_t>(list.size(), 20); ++i) look_at(list[i]);
}
void look_at(const TensorPair& pair) {
  look_at(std::get<0>(pair));
  look_at(std::get<1>(pair));
}

struct Call {
  const char* name;
  std::function<void(const Tensor& x, int64_t n)> fn;
};
#define CALL(...) {#__VA_ARGS__, [](const Tensor& x, int64_t n) { (void)x, (void)n; look_at(__VA_ARGS__); }}

Tensor at(int64_t n) { return full({2}, n, kInt64); }

const Call kOfTensors[] = {
    CALL(x.select(0, n)), CALL(x.narrow(0, n, 1)), CALL(x.narrow(0, 0, n)), CALL(x.narrow(0, n, n)),
    CALL(x.slice(0, 0, kMax, n)), CALL(x.slice(0, n)), CALL(x.slice(0, kMin, n, 2)),
    CALL(x.slice(0, {}, {}, n).slice(0, {}, {}, n)), CALL(x.slice(n)), CALL(x.diagonal(n)),
    CALL(x.diagonal(0, n, 1)), CALL(x.split(n)), CALL(x.split_with_sizes({n, 10 - (n & 7)})),
    CALL(x.split_with_sizes({n, n, 12})), CALL(x.unbind(n)), CALL(x.view({n, -1})),
    CALL(x.view({n, n, 0})), CALL(x.reshape({n, n, n, n})), CALL(x.expand({n, 3, 4})),
    CALL(x.expand({n, -1, n})), CALL(x.repeat({n, 2})), CALL(x.repeat({n, n, n})), CALL(x.roll(n, 0)),
    CALL(x.flip({n})), CALL(x.tril(n)), CALL(x.triu(n)), CALL(x.topk(n)), CALL(x.topk(1, n)),
    CALL(x.sort(n)), CALL(x.cumsum(n)), CALL(x.sum({n})), CALL(x.softmax(n)), CALL(x.argmax(n)),
    CALL(x.max(n)), CALL(x.squeeze(n)), CALL(x.unsqueeze(n)), CALL(x.transpose(n, 0)),
    CALL(x.flatten(n, 1)), CALL(x.unflatten(0, {n, -1})), CALL(x.movedim(n, 0)),
    CALL(x.permute({n, 0})), CALL(x.as_strided({n}, {1}, 0)), CALL(x.as_strided({3}, {n}, 0)),
    CALL(x.as_strided({1}, {1}, n)), CALL(x.as_strided({n, n}, {n, n}, n)),
    CALL(x.as_strided({0, n}, {n, n}, 0)), CALL(x.index_select(0, at(n))), CALL(x.gather(0, at(n))),
    CALL(x.gather(n, at(0))), CALL(x.scatter(0, at(n), 1)),
    CALL(x.index_add(0, full({1}, n, kInt64), ones({1}, x.dtype()))), CALL(x.index({at(n)})),
    CALL(x.index({at(n), at(n)})), CALL(x.pow(n)), CALL(remainder(x, n)), CALL(fmod(x, n)),
    CALL(floor_divide(x, n)), CALL(x * n), CALL(x + n), CALL(x.sum_to_size({n})),
    CALL(layer_norm(x, {n})), CALL(nn::functional::adaptive_avg_pool(x, {n})),
    CALL(cat({x, x}, n)), CALL(stack({x, x}, n)), CALL(embedding(x, at(n))),
    CALL(embedding(x, at(0), n)),
    // More than a few chunks of nothing are a long list, and long lists are not what this is about.
    CALL(n > 1000 && x.numel() == 0 ? std::vector<Tensor>() : x.chunk(n)),
};

const Call kFactories[] = {
    CALL(zeros({n})), CALL(zeros({n, n})), CALL(zeros({0, n, n})), CALL(empty_strided({3, 3}, {n, 1})),
    CALL(empty_strided({n, 3}, {1, 1})), CALL(empty_strided({n}, {0})), CALL(from_blob(nullptr, {n})),
    CALL(from_blob(nullptr, {0, n})), CALL(eye(n)), CALL(eye(n, 0)), CALL(arange(0, n, 1)),
    CALL(arange(n, 0, -1)), CALL(arange(0, 10, n)), CALL(arange(kMin, kMax, n)),
    CALL(linspace(0, 1, n)), CALL(randperm(n)), CALL(randint(n, {3})), CALL(randint(kMin, n, {3})),
    CALL(randint(n, kMax, {3})), CALL(one_hot(at(n), 4)), CALL(one_hot(at(n))), CALL(one_hot(at(0), n)),
    CALL(nll_loss(zeros({2, 4}), at(n))), CALL(cross_entropy(zeros({2, 4}), at(n))),
    CALL(full({2}, n, kInt32)), CALL(full({2}, n, kUInt8)), CALL(rand({n})), CALL(randn({n, 0})),
};

const Call kWindows[] = {
    CALL(conv2d(x, ones({2, 2, 3, 3}), {}, {n})), CALL(conv2d(x, ones({2, 2, 3, 3}), {}, {1}, {n})),
    CALL(conv2d(x, ones({2, 2, 3, 3}), {}, {1}, {0}, {n})),
    CALL(conv2d(x, ones({2, 2, 3, 3}), {}, {1}, {0}, {1}, n)),
    CALL(conv1d(x[0], ones({2, 2, 3}), {}, {n}, {n}, {n})), CALL(max_pool2d(x, {n})),
    CALL(max_pool2d(x, {2}, {n})), CALL(max_pool2d(x, {2}, {n}, {0}, {1}, true)),
    CALL(max_pool2d(x, {2}, {1}, {n})), CALL(max_pool2d(x, {3}, {1}, {0}, {n})),
    CALL(max_pool2d(x, {n}, {1}, {0}, {4})), CALL(max_pool2d(x, {n}, {1}, {n / 2})),
    CALL(avg_pool2d(x, {n})), CALL(avg_pool2d(x, {n}, {1}, {n / 2})),
    CALL(nn::functional::group_norm(x, n)),
};

const Call kLayers[] = {
    CALL(nn::Linear(n, n)->weight), CALL(nn::Embedding(n, n)->weight),
    CALL(nn::Conv2d(nn::Conv2dOptions(2, 2, n))(x)),
    CALL(nn::Conv2d(nn::Conv2dOptions(2, 2, 3).padding(n))(x)),
    CALL(nn::Conv2d(nn::Conv2dOptions(2, 2, 3).padding(n).padding_mode(nn::PaddingMode::replicate))(x)),
    CALL(nn::Conv2d(nn::Conv2dOptions(2, 2, 3).dilation(n).padding(0))(x)),
    CALL(nn::Conv2d(nn::Conv2dOptions(2, 2, 3).dilation(n).padding(nn::Padding::same))(x)),
    CALL(nn::Conv2d(nn::Conv2dOptions(2, 2, 3).groups(n))(x)),
    CALL(nn::MultiheadAttention(n, 2)->in_proj_weight), CALL(nn::MultiheadAttention(8, n)->in_proj_weight),
    CALL(nn::GroupNorm(n, 8)->weight), CALL(nn::LSTM(3, n)->parameters()),
    CALL(nn::LSTM(n, 4)->parameters()), CALL(nn::BatchNorm2d(n)->weight),
};

template <size_t Count>
void call_all(const Call (&calls)[Count], const Tensor& x) {
  for (const Call& call : calls)
    for (const int64_t n : kIntegers) {
      const std::string where = str(call.name, " with n = ", n, " on ", x.dtype(), x.shape());
      CAPTURE(where);
      const auto answer = [&] {
        try {
          call.fn(x, n);
        } catch (const Error&) {
        }
      };
      CHECK_NOTHROW(answer());
    }
}

}  // namespace

TEST_CASE("functions of tensors answer every integer with a result or an Error") {
  const Tensor matrix = arange(12.0).reshape({3, 4});
  for (const Tensor& x : {arange(10.0), matrix, matrix.t(), arange(10), zeros({0}), zeros({0, 3}),
                          zeros({2, 0, 3}), scalar_tensor(2.0), arange(5, kInt32)})
    call_all(kOfTensors, x);
}

TEST_CASE("factories, windows and layers answer every integer with a result or an Error") {
  call_all(kFactories, ones({1}));
  call_all(kWindows, arange(50.0).reshape({1, 2, 5, 5}));
  call_all(kLayers, arange(50.0).reshape({1, 2, 5, 5}));
}
