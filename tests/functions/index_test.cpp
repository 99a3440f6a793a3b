/// Indexing: gather and scatter, rows at positions, masks, x.index({...}).
#include "grapnel/base/thread_pool.h"
#include "grapnel/tensor/tensor_index.h"
#include "tests/ops/values.h"

using namespace grapnel;
using namespace grapnel::indexing;

TEST_CASE("gather picks one element per index along a dimension") {
  const Tensor x = counting({2, 3});
  CHECK(values(gather(x, 1, tensor({{2, 0}, {1, 1}}))) == Values{2, 0, 4, 4});
  CHECK(values(x.gather(0, tensor({{1, 0, 1}}))) == Values{3, 1, 5});
  CHECK(values(x.t().gather(-1, tensor({{1}, {0}, {1}}))) == Values{3, 1, 5});
  CHECK(values(x.gather(1, tensor({{2}}, kInt32))) == Values{2});
  CHECK(x.gather(0, zeros({0, 3}, kInt64)).shape() == Shape{0, 3});
  CHECK(scalar_tensor(7.0).gather(0, tensor({0, 0})).shape() == Shape{2});
  CHECK(scalar_tensor(7.0).gather(0, scalar_tensor(0, kInt64)).item<double>() == 7);
  CHECK(gradient(x, [](const Tensor& t) { return t.gather(1, tensor({{2, 2}, {0, 1}})); }) ==
        Values{0, 0, 3, 3, 4, 0});
}

TEST_CASE("an index out of range is named with its place and the size") {
  const Tensor x = counting({2, 3});
  const std::string message = error_of([&] { x.gather(1, tensor({{0, 1}, {2, 3}})); });
  CHECK(contains(message,
                 "gather: index 3 at position [1, 1] of the index is out of range for dimension 1 "
                 "with size 3."));
  CHECK(contains(message, "Indices run from 0 to 2 here."));
  CHECK(contains(error_of([&] { x.gather(0, tensor({{-1}})); }),
                 "gather: index -1 at position [0, 0]"));
  CHECK(contains(error_of([&] { x.index_select(0, tensor({0, 2})); }),
                 "index_select: index 2 at position [1]"));
  CHECK(
      contains(error_of([&] { embedding(x, tensor({5})); }), "embedding: index 5 at position [0]"));
  CHECK(contains(
      error_of([&] { x.index({tensor({0, -3})}); }),
      "index: index -3 at position [1] of the index is out of range for dimension 0 with size 2."));
  CHECK(contains(error_of([&] { zeros({0, 2}).index_select(0, tensor({0})); }),
                 "but dimension 0 has size 0"));
  // Nothing is written before the indices are known to be good.
  CHECK(contains(error_of([&] { x.scatter_(1, tensor({{0, 9}}), 100); }), "scatter: index 9"));
  CHECK(values(x) == Values{0, 1, 2, 3, 4, 5});
}

TEST_CASE("an index holds integers") {
  const Tensor x = counting({2, 3});
  CHECK(contains(error_of([&] { x.gather(1, tensor({{0.5}})); }),
                 "gather: the index must hold i64 or i32, got f32."));
  CHECK(contains(error_of([&] { x.index_select(0, tensor({true, false})); }),
                 "index_select: the index is a mask (bool)"));
  CHECK(contains(error_of([&] { x.index({tensor({1.0})}); }),
                 "index: the index must hold i64 or i32, got f32."));
  CHECK(contains(error_of([&] { embedding(x, tensor({1.0})); }), "embedding: the index must hold"));
}

TEST_CASE("scatter writes one element per index; of equal ones the last wins") {
  const Tensor x = zeros({2, 3}, kFloat64);
  const Tensor index = tensor({{0, 0}, {2, 1}}),
               source = tensor({{1.0, 2.0}, {3.0, 4.0}}, kFloat64);
  CHECK(values(x.scatter(1, index, source)) == Values{2, 0, 0, 0, 4, 3});
  CHECK(values(x.scatter(1, index, 9)) == Values{9, 0, 0, 0, 9, 9});
  CHECK(values(x) == Values{0, 0, 0, 0, 0, 0});
  x.scatter_(0, tensor({{1, 0, 1}}),
             counting({2, 3}) + 1.0);  // a source may be larger than its index
  CHECK(values(x) == Values{0, 2, 0, 1, 0, 3});
  CHECK(values(x.scatter_add(1, index, source)) == Values{3, 2, 0, 1, 4, 6});
  CHECK(values(x.scatter_(1, zeros({0, 0}, kInt64), 5)) == Values{0, 2, 0, 1, 0, 3});
  CHECK(contains(error_of([&] { x.scatter(1, index, zeros({2, 1}, kFloat64)); }),
                 "the index of shape [2, 2] is larger than the source of shape [2, 1]"));
  CHECK(contains(error_of([&] { x.scatter(1, index, zeros({2, 2}, kInt64)); }),
                 "scatter: the source is i64 but the tensor is f64."));
  CHECK(contains(error_of([&] { x.scatter(1, tensor({{0}, {0}, {0}}), 1); }),
                 "is larger than the tensor of shape [2, 3] in dimension 0"));
  CHECK(contains(error_of([&] { x.gather(1, tensor({0})); }),
                 "the index has 1 dimensions and the tensor 2"));
}

TEST_CASE("scatter and scatter_add send gradients to the tensor and to the source") {
  const Tensor index = tensor({{0, 2}});
  const Tensor source = tensor({{5.0, 6.0}}, kFloat64), x = counting({1, 3});
  CHECK(gradient(x, [&](const Tensor& t) { return t.scatter(1, index, source); }) ==
        Values{0, 2, 0});
  CHECK(gradient(source, [&](const Tensor& t) { return x.scatter(1, index, t); }) == Values{1, 3});
  CHECK(gradient(x, [&](const Tensor& t) { return t.scatter_add(1, index, source); }) ==
        Values{1, 2, 3});
  CHECK(gradient(source, [&](const Tensor& t) { return x.scatter_add(1, index, t); }) ==
        Values{1, 3});
  CHECK(gradient(counting({2, 3}), [&](const Tensor& t) { return x.scatter(1, index, t); }) ==
        Values{1, 0 + 3, 0, 0, 0, 0});
}

TEST_CASE("index_select and index_add work on whole rows of any dimension") {
  const Tensor x = counting({2, 3});
  CHECK(values(index_select(x, 1, tensor({2, 0, 2}))) == Values{2, 0, 2, 5, 3, 5});
  CHECK(values(x.index_select(-2, tensor({1}))) == Values{3, 4, 5});
  CHECK(x.index_select(0, scalar_tensor(1, kInt64)).shape() == Shape{1, 3});
  CHECK(scalar_tensor(3.0).index_select(0, tensor({0})).shape() == Shape{});
  CHECK(x.index_select(0, zeros({0}, kInt64)).shape() == Shape{0, 3});
  CHECK(values(x.index_add(0, tensor({1, 1}), ones({2, 3}, kFloat64))) == Values{0, 1, 2, 5, 6, 7});
  const Tensor y = x.clone();
  y.t().index_add_(0, tensor({0}), tensor({{10.0, 20.0}}, kFloat64));
  CHECK(values(y) == Values{10, 1, 2, 23, 4, 5});
  CHECK(gradient(x, [](const Tensor& t) { return t.index_select(0, tensor({1, 1})); }) ==
        Values{0, 0, 0, 5, 7, 9});
  CHECK(contains(error_of([&] { x.index_add(0, tensor({0}), ones({2, 3}, kFloat64)); }),
                 "index_add: the source must have shape [1, 3]"));
  CHECK(contains(error_of([&] { x.index_select(0, tensor({{0}})); }),
                 "index_select: the index must be a vector, got shape [1, 1]."));
}

TEST_CASE("sums of integers at positions wrap round") {
  const int64_t least = std::numeric_limits<int64_t>::min();
  const Tensor x = full({2}, least), index = tensor({0, 0, 1}),
               source = tensor({least, int64_t{3}, int64_t{-1}});
  const Tensor want = tensor({int64_t{3}, std::numeric_limits<int64_t>::max()});
  CHECK(equal(x.scatter_add(0, index, source), want));
  CHECK(equal(x.index_add(0, index, source), want));
}

TEST_CASE("sums of narrow types are rounded once") {
  const Tensor x = ones({1}, kBFloat16);
  // 256 + 1 is 256 in bf16, so rounding at every step would lose all but the first few.
  const Tensor index = zeros({1000}, kInt64), source = ones({1000}, kBFloat16);
  CHECK(x.index_add(0, index, source).item<float>() == static_cast<float>(BFloat16(1001.0f)));
  CHECK(x.scatter_add(0, index, source).item<float>() == static_cast<float>(BFloat16(1001.0f)));
}

TEST_CASE("embedding looks rows up, and padding gets no gradient") {
  const Tensor weight = counting({4, 2}), indices = tensor({{3, 0}, {1, 3}});
  CHECK(values(embedding(weight, indices)) == Values{6, 7, 0, 1, 2, 3, 6, 7});
  CHECK(embedding(weight, indices).shape() == Shape{2, 2, 2});
  CHECK(embedding(weight, zeros({0, 3}, kInt64)).shape() == Shape{0, 3, 2});
  CHECK(gradient(weight, [&](const Tensor& w) { return embedding(w, indices); }) ==
        Values{3, 4, 5, 6, 0, 0, 1 + 7, 2 + 8});
  CHECK(gradient(weight, [&](const Tensor& w) { return embedding(w, indices, 3); }) ==
        Values{3, 4, 5, 6, 0, 0, 0, 0});
  CHECK(values(embedding(weight, indices, 3)) == values(embedding(weight, indices)));
  CHECK(contains(error_of([&] { embedding(weight, indices, 4); }),
                 "padding_idx 4 is out of range for 4 rows"));
  CHECK(contains(error_of([&] { embedding(weight[0], indices); }),
                 "the weight must have 2 dimensions"));
}

TEST_CASE("numbers, slices, None and ... in index are views") {
  const Tensor x = counting({2, 3, 4});
  const Tensor y = x.index({1, Slice(None, None, 2), Slice(1, 3)});
  CHECK(y.is_alias_of(x));
  CHECK(values(y) == Values{13, 14, 21, 22});
  CHECK(x.index({"...", -1}).shape() == Shape{2, 3});
  CHECK(x.index({Ellipsis, None, 0}).shape() == Shape{2, 3, 1});
  CHECK(x.index({None, 0, "...", Slice(2)}).shape() == Shape{1, 3, 2});
  CHECK(x.index({Slice(-1, None)}).shape() == Shape{1, 3, 4});
  CHECK(x.index({}).is_alias_of(x));
  CHECK(contains(error_of([&] { x.index({0, 0, 0, 0}); }),
                 "index: 4 dimensions are indexed, but the tensor has 3 (shape [2, 3, 4])."));
  CHECK(contains(error_of([&] { x.index({"...", "..."}); }),
                 "\"...\" may stand only once, got it 2 times."));
  CHECK(contains(error_of([&] { x.index({"a"}); }), "the text \"a\" is no index"));
  CHECK(contains(error_of([&] { x.index({Tensor()}); }), "an index tensor is undefined"));
  CHECK(contains(error_of([&] { x.index({Slice(0, 1, -1)}); }), "the step must be positive"));
}

TEST_CASE("index tensors broadcast, and negative ones count from the end") {
  const Tensor x = counting({2, 3, 4});
  CHECK(values(x.index({tensor({0, -1}), tensor({1, 2}), tensor({-1})})) == Values{7, 23});
  CHECK(x.index({tensor({{0}, {1}}), tensor({0, 1, 2})}).shape() == Shape{2, 3, 4});
  // Neighbours: the index dimensions take their place. Apart: they come first.
  CHECK(x.index({Slice(), tensor({0, 1}), tensor({2, 3})}).shape() == Shape{2, 2});
  CHECK(values(x.index({Slice(), tensor({0, 1}), tensor({2, 3})})) == Values{2, 7, 14, 19});
  CHECK(x.index({tensor({0, 1, 1, 0, 1}), Slice(), tensor({0})}).shape() == Shape{5, 3});
  CHECK(values(x.index({tensor({0, 1}), Slice(), tensor({0})})) == Values{0, 4, 8, 12, 16, 20});
  CHECK(x.index({scalar_tensor(1, kInt64)}).shape() == Shape{3, 4});
  CHECK(x[tensor({1, 1})].shape() == Shape{2, 3, 4});
  CHECK(x.index({zeros({0}, kInt64)}).shape() == Shape{0, 3, 4});
  CHECK(!x.index({tensor({0})}).is_alias_of(x));
  CHECK(gradient(counting({2, 2}), [](const Tensor& t) {
          return t.index({tensor({0, 1, 0}), tensor({1, 1, 1})});
        }) == Values{0, 4, 0, 2});
  CHECK(contains(error_of([&] { x.index({tensor({0, 1}), tensor({0, 1, 2})}); }),
                 "index: shapes [2] and [3] do not broadcast"));
}

TEST_CASE("masks select where they are true") {
  const Tensor x = counting({2, 3});
  const Tensor mask = tensor({{true, false, true}, {false, true, false}});
  CHECK(values(x.index({mask})) == Values{0, 2, 4});
  CHECK(values(masked_select(x, mask)) == Values{0, 2, 4});
  CHECK(values(x.masked_select(tensor({true, false, false}))) == Values{0, 3});
  CHECK(values(x.index({tensor({false, true})})) == Values{3, 4, 5});
  CHECK(values(x.index({Slice(), tensor({true, false, true})})) == Values{0, 2, 3, 5});
  CHECK(values(x.index({tensor({true, true}), tensor({2, 0})})) == Values{2, 3});
  CHECK(x.index({mask & !mask}).shape() == Shape{0});
  CHECK(x.index({true}).shape() == Shape{1, 2, 3});
  CHECK(x.index({false}).shape() == Shape{0, 2, 3});
  CHECK(x.index({scalar_tensor(true, kBool)}).shape() == Shape{1, 2, 3});
  CHECK(scalar_tensor(4.0).masked_select(scalar_tensor(true, kBool)).shape() == Shape{1});
  CHECK(gradient(x, [&](const Tensor& t) { return t.masked_select(mask); }) ==
        Values{1, 0, 2, 0, 3, 0});
  CHECK(gradient(counting({3}), [&](const Tensor& t) { return t.masked_select(mask); }) ==
        Values{1, 3, 2});
  CHECK(contains(error_of([&] { x.index({tensor({true, false, true})}); }),
                 "index: a mask of shape [3] does not fit the dimensions from 0 on of a tensor of "
                 "shape [2, 3]: sizes 3 and 2 differ."));
  CHECK(contains(error_of([&] { x.masked_select(tensor({1, 0, 0})); }),
                 "masked_select: the mask must be bool, got i64."));
}

TEST_CASE("index_put_ writes where index reads") {
  const Tensor x = counting({2, 3});
  x.index_put_({0, Slice(1)}, 9);
  CHECK(values(x) == Values{0, 9, 9, 3, 4, 5});
  x.index_put_({x > 4}, -1);
  CHECK(values(x) == Values{0, -1, -1, 3, 4, -1});
  x.index_put_({tensor({1, 0}), tensor({0, -1})}, tensor({10.0, 20.0}, kFloat64));
  CHECK(values(x) == Values{0, -1, 20, 10, 4, -1});
  x.index_put_({Slice(), tensor({1})}, tensor({{7.0}, {8.0}}, kFloat64));
  CHECK(values(x) == Values{0, 7, 20, 10, 8, -1});
  x.index_put_({"..."}, tensor({1, 2, 3}));  // whole views convert, as copy_ does
  CHECK(values(x) == Values{1, 2, 3, 1, 2, 3});
  x.index_put_({tensor({0, 0}), tensor({0, 0})}, tensor({5.0, 6.0}, kFloat64));
  CHECK(values(x)[0] == 6);
  x.index_put_({x > 100}, zeros({0}, kFloat64));
  CHECK(contains(error_of([&] { x.index_put_({tensor({0, 1})}, zeros({2}, kFloat64)); }),
                 "index_put_: values of shape [2] do not broadcast to the indexed shape [2, 3]."));
  CHECK(contains(error_of([&] { x.index_put_({tensor({0, 1})}, zeros({3}, kInt64)); }),
                 "index_put: the values are i64 but the tensor is f64."));
}

TEST_CASE("index_put_ sends gradients to the rest of the tensor and to the values") {
  const Tensor x = counting({2, 2}).set_requires_grad(true),
               v = tensor({1.0, 2.0}, kFloat64).set_requires_grad(true);
  const Tensor weights = counting({2, 2}) + 1.0;
  const Tensor y = x * 1.0;
  y.index_put_({tensor({1, 0}), tensor({1, 0})}, v);
  (y * weights).sum().backward();
  CHECK(values(x.grad()) == Values{0, 2, 3, 0});
  CHECK(values(v.grad()) == Values{4, 1});
  // Through a view: the first index is a number.
  const Tensor z = x * 1.0;
  z.index_put_({0, tensor({1})}, 5);
  x.zero_grad();
  (z * weights).sum().backward();
  CHECK(values(x.grad()) == Values{1, 0, 3, 4});
}

TEST_CASE("nonzero lists positions row by row") {
  CHECK(values(nonzero(tensor({{0, 3}, {5, 0}}))) == Values{0, 1, 1, 0});
  CHECK(tensor({{0, 3}, {5, 0}}).nonzero().shape() == Shape{2, 2});
  CHECK(scalar_tensor(3.0).nonzero().shape() == Shape{1, 0});
  CHECK(scalar_tensor(0.0).nonzero().shape() == Shape{0, 0});
  CHECK(zeros({0, 3}).nonzero().shape() == Shape{0, 2});
  CHECK(values(tensor({0.0, -0.0, std::numeric_limits<double>::quiet_NaN()}).nonzero()) ==
        Values{2});
}

TEST_CASE("one_hot marks the class") {
  CHECK(values(one_hot(tensor({2, 0}))) == Values{0, 0, 1, 1, 0, 0});
  CHECK(one_hot(tensor({{1}, {0}}), 4).shape() == Shape{2, 1, 4});
  CHECK(one_hot(tensor({1})).dtype() == kInt64);
  CHECK(one_hot(zeros({0}, kInt64), 3).shape() == Shape{0, 3});
  CHECK(contains(error_of([&] { one_hot(tensor({3}), 3); }), "one_hot: index 3 at position [0]"));
  CHECK(contains(error_of([&] { one_hot(tensor({-1})); }), "one_hot: index -1"));
  CHECK(
      contains(error_of([&] { one_hot(zeros({0}, kInt64)); }), "cannot be found from no indices"));
  CHECK(contains(error_of([&] { one_hot(tensor({1.0})); }),
                 "one_hot: the index must hold i64 or i32, got f32."));
}

TEST_CASE("tril and triu keep one side of a diagonal") {
  const Tensor x = counting({3, 3}) + 1.0;
  CHECK(values(tril(x)) == Values{1, 0, 0, 4, 5, 0, 7, 8, 9});
  CHECK(values(triu(x, 1)) == Values{0, 2, 3, 0, 0, 6, 0, 0, 0});
  CHECK(values(x.t().tril(-1)) == Values{0, 0, 0, 2, 0, 0, 3, 6, 0});
  CHECK(values(x.tril(5)) == values(x));
  CHECK(values(x.triu(-5)) == values(x));
  CHECK(zeros({2, 0, 3}).tril().shape() == Shape{2, 0, 3});
  CHECK(values((counting({2, 2, 2}) + 1.0).triu()) == Values{1, 2, 0, 4, 5, 6, 0, 8});
  CHECK(gradient(x, [](const Tensor& t) { return t.tril(); }) == Values{1, 0, 0, 4, 5, 0, 7, 8, 9});
  CHECK(contains(error_of([&] { x[0].tril(); }),
                 "tril: at least 2 dimensions are expected, got shape [3]."));
}

TEST_CASE("large gathers and sums do not depend on the number of threads") {
  const Tensor x = randn({300, 257}), index = randint(300, {5000}), rows = randn({5000, 257});
  const Tensor wide = randint(257, {300, 400}), source = randn({300, 400});
  auto all = [&] {
    return std::vector{x.index_select(0, index),
                       x.index_add(0, index, rows),
                       x.t().index_select(1, index),
                       x.gather(1, wide),
                       x.scatter_add(1, wide, source),
                       x.t().scatter_add(0, wide.t(), source.t()),
                       x.t().gather(0, wide.t().contiguous())};
  };
  const int threads = get_num_threads();
  set_num_threads(1);
  const auto one = all();
  set_num_threads(2);
  const auto two = all();
  set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) CHECK(equal(one[i], two[i]));
  CHECK(equal(one[3], two[6].t()));
  // Against the plain loop.
  Tensor expected = x.clone();
  for (int64_t i = 0; i < 5000; ++i) expected[index.accessor<int64_t, 1>()[i]].add_(rows[i]);
  CHECK(equal(one[1], expected));
}
