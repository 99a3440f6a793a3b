#include <set>

#include "grapnel/autograd/gradcheck.h"
#include "grapnel/autograd/node.h"
#include "grapnel/ops/define.h"
#include "tests/ops/sweep.h"
#include "tests/ops/values.h"

using namespace grapnel;

namespace {

/// a @ b by definition, in double, for matrices.
Values naive(const Tensor& a, const Tensor& b) {
  const Values x = values(a), y = values(b);
  const auto m = static_cast<size_t>(a.size(0)), k = static_cast<size_t>(a.size(1)),
             n = static_cast<size_t>(b.size(1));
  Values out(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j)
      for (size_t p = 0; p < k; ++p) out[i * n + j] += x[i * k + p] * y[p * n + j];
  return out;
}

void check_close(const Values& got, const Values& expected, double tolerance) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(tolerance).scale(1));
}

}  // namespace

TEST_CASE("matmul agrees with the definition for every type and layout") {
  for (const DType dtype : {kFloat64, kFloat32, kBFloat16, kFloat16, kInt64, kInt32, kUInt8}) {
    CAPTURE(dtype);
    const double tolerance = dtype == kFloat64    ? 1e-14
                             : dtype == kFloat32  ? 1e-5
                             : is_floating(dtype) ? 1e-2
                                                  : 1e-15;
    const Tensor a = (sample_tensor({37, 29}) * 1.5).to(kInt32).abs().to(dtype),
                 b = (sample_tensor({29, 41}) * 2).to(kInt32).abs().to(dtype);
    check_close(values(matmul(a, b)), naive(a, b), tolerance);
    check_close(values(matmul(a, column_major(b))), naive(a, b), tolerance);
    check_close(values(matmul(spread_out(a), b)), naive(a, b), tolerance);
    check_close(values(matmul(a.t().contiguous().t(), b)), naive(a, b), tolerance);
  }
}

TEST_CASE("narrow floating types are multiplied in f32 and rounded once") {
  const Tensor a = sample_tensor({5, 70}).to(kBFloat16), b = sample_tensor({70, 3}).to(kBFloat16);
  CHECK(same_bits(matmul(a, b), matmul(a.to(kFloat32), b.to(kFloat32)).to(kBFloat16)));
}

TEST_CASE("vectors are one row on the left and one column on the right") {
  const Tensor m = counting({2, 3}), v = tensor({1.0, 10.0, 100.0}, kFloat64),
               w = tensor({1.0, 2.0}, kFloat64);
  CHECK(values(matmul(m, v)) == Values{210, 543});
  CHECK(values(mv(m, v)) == Values{210, 543});
  CHECK(values(matmul(w, m)) == Values{6, 9, 12});
  CHECK(matmul(v, v).shape() == Shape{});
  CHECK(dot(v, v).item<double>() == 10101);
  CHECK(values(outer(w, v)) == Values{1, 10, 100, 2, 20, 200});
}

TEST_CASE("batches broadcast, and each item is the product of its matrices") {
  const Tensor a = sample_tensor({2, 1, 3, 4}), b = sample_tensor({5, 4, 2});
  const Tensor c = matmul(a, b);
  CHECK(c.shape() == Shape{2, 5, 3, 2});
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 5; ++j) check_close(values(c[i][j]), naive(a[i][0], b[j]), 1e-14);
  CHECK(matmul(sample_tensor({4}), b).shape() == Shape{5, 2});
  CHECK(matmul(a, sample_tensor({4})).shape() == Shape{2, 1, 3});
  CHECK(bmm(b, b.mT()).shape() == Shape{5, 4, 4});
  // Batches that do not lie evenly in memory, as heads of attention do not.
  const Tensor heads = sample_tensor({2, 3, 4, 5}).transpose(1, 2);
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 4; ++j)
      check_close(values(matmul(heads, heads.mT())[i][j]), naive(heads[i][j], heads[i][j].t()),
                  1e-14);
}

TEST_CASE("empty operands give empty products, and an empty inner dimension gives zeros") {
  CHECK(matmul(empty({0, 3}), empty({3, 2})).shape() == Shape{0, 2});
  CHECK(values(matmul(empty({2, 0}), empty({0, 2}))) == Values{0, 0, 0, 0});
  CHECK(matmul(empty({0, 2, 3}), empty({3, 4})).shape() == Shape{0, 2, 4});
  CHECK(linear(empty({0, 5, 3}), ones({4, 3}), ones({4})).shape() == Shape{0, 5, 4});
}

TEST_CASE("errors of products show the shapes and say what to do") {
  CHECK(base::without_places(error_of([] { matmul(ones({8, 64}), ones({10, 64})); })) ==
        "matmul: inner sizes differ: a is [8, 64], b is [10, 64] (64 against 10).\nIf b holds one "
        "row per output, pass transpose(b).");
  CHECK(base::without_places(error_of([] { matmul(ones({2, 3}), ones({4})); })) ==
        "matmul: inner sizes differ: a is [2, 3], b is [4] (3 against 4).");
  CHECK(contains(error_of([] { matmul(ones({2, 2}), ones({2, 2}, kFloat64)); }),
                 "operands must have one type, got f32 and f64"));
  CHECK(contains(error_of([] { matmul(ones({}), ones({2})); }), "To scale by a number use a * b"));
  CHECK(contains(error_of([] { matmul(ones({2, 2}, kBool), ones({2, 2}, kBool)); }),
                 "not defined for bool"));
  CHECK(contains(error_of([] { matmul(ones({2, 2, 3}), ones({3, 3, 2})); }), "do not broadcast"));
  CHECK(contains(error_of([] { mm(ones({2}), ones({2, 2})); }),
                 "For vectors and batches use matmul"));
  CHECK(contains(error_of([] { bmm(ones({2, 2, 2}), ones({3, 2, 2})); }), "equally many matrices"));
  CHECK(contains(error_of([] { linear(ones({2, 3}), ones({4, 5})); }),
                 "the last dimension of x must be 5"));
  CHECK(contains(error_of([] { addmm(ones({3}), ones({2, 2}), ones({2, 2})); }), "addmm"));
}

TEST_CASE("addmm has the bits of matmul followed by add") {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
    CAPTURE(dtype);
    const Tensor x = (sample_tensor({9}) * 4).to(dtype),
                 a = (sample_tensor({17, 33}) * 4).to(dtype),
                 b = (sample_tensor({33, 9}) * 4).to(dtype);
    CHECK(same_bits(addmm(x, a, b), x + matmul(a, b)));
    CHECK(same_bits(addmm(x, a, b, 1, 3), add(x, matmul(a, b), 3)));
    CHECK(same_bits(addmm(x, a, b, 2, 1), x * 2 + matmul(a, b)));
  }
  const Tensor nan = tensor({NAN, NAN});
  CHECK(values(addmm(nan, ones({2, 2}), ones({2, 2}), 0, 2)) == Values{4, 4, 4, 4});
  CHECK(contains(error_of([] {
                   addmm(ones({2}, kInt64), ones({2, 2}, kInt64), ones({2, 2}, kInt64), 1, 0.5);
                 }),
                 "whole numbers"));
}

TEST_CASE("linear is addmm of a transposed weight, and nothing else is recorded") {
  const Tensor x = ones({2, 3}, requires_grad()), w = ones({4, 3}, requires_grad()),
               b = ones({4}, requires_grad());
  const Tensor y = linear(x, w, b);
  CHECK(y.grad_fn()->name() == "addmm");
  std::multiset<std::string> below;
  for (const Edge& e : y.grad_fn()->next_edges()) below.insert(e.node->name());
  CHECK(below.count("transpose") == 1);
  CHECK(below.size() == 3);
  CHECK(linear(ones({3}), w, b).shape() == Shape{4});
  CHECK(linear(ones({5, 2, 3}), w, b).shape() == Shape{5, 2, 4});
  CHECK(linear(ones({5, 2, 3}), w).shape() == Shape{5, 2, 4});
}

TEST_CASE("the gradient of a weight is dense, although the product saw it transposed") {
  const Tensor x = sample_tensor({4, 3}), w = sample_tensor({5, 3}).set_requires_grad(true);
  const Tensor b = sample_tensor({5}).set_requires_grad(true);
  linear(x, w, b).sum().backward();
  CHECK(w.grad().is_contiguous());
  check_close(values(w.grad()), naive(ones({5, 4}, kFloat64), x), 1e-14);
  CHECK(values(b.grad()) == Values(5, 4.0));
}

TEST_CASE("einsum agrees with the ops it describes") {
  const Tensor a = sample_tensor({2, 3, 4}), b = sample_tensor({2, 4, 5}), v = sample_tensor({4}),
               m = sample_tensor({4, 4});
  CHECK(allclose(einsum("bij,bjk->bik", {a, b}), matmul(a, b)));
  CHECK(allclose(einsum("bij,bjk", {a, b}), matmul(a, b).sum(0)));
  CHECK(allclose(einsum("bij,bjk->kb", {a, b}), matmul(a, b).sum(1).t()));
  CHECK(allclose(einsum("...j,j->...", {a, v}), matmul(a, v)));
  CHECK(allclose(einsum("ii", {m}), m.diagonal().sum()));
  CHECK(same_bits(einsum("ii->i", {m}), m.diagonal().clone()));
  CHECK(same_bits(einsum("ij->ji", {m}), m.t().clone()));
  CHECK(allclose(einsum("i,j->ij", {v, v}), outer(v, v)));
  CHECK(allclose(einsum("i,i->", {v, v}), dot(v, v)));
  CHECK(allclose(einsum("ij,ij->ij", {m, m}), m * m));
  CHECK(allclose(
      einsum("bij,bjk,ii->bk", {a, b, sample_tensor({3, 3})}),
      matmul((a * sample_tensor({3, 3}).diagonal().view({1, 3, 1})).sum(1, true), b).squeeze(1)));
  CHECK(allclose(einsum("bi...,bi...->b...", {a, a}), (a * a).sum(1)));
  CHECK(allclose(einsum("i,i->i", {ones({1}, kFloat64), v}), v));
  CHECK(allclose(einsum(" a b , b c -> a c ", {m, m}), matmul(m, m)));
}

TEST_CASE("einsum says what is wrong with an equation") {
  const Tensor m = ones({2, 3});
  CHECK(contains(error_of([&] { einsum("ij,jk", {m}); }), "has 2 terms for 1 operands"));
  CHECK(contains(error_of([&] { einsum("ijk", {m}); }),
                 "names 3 dimensions but operand 0 has shape [2, 3]"));
  CHECK(contains(error_of([&] { einsum("ij,jk->ik", {m, m}); }),
                 "label 'j' of \"ij,jk->ik\" stands for sizes 3 and 2"));
  CHECK(contains(error_of([&] { einsum("ij->ijz", {m}); }), "output label 'z'"));
  CHECK(contains(error_of([&] { einsum("i1", {m}); }), "'1'"));
  CHECK(contains(error_of([&] { einsum("ij->ii", {m}); }), "appears twice"));
}

TEST_CASE("einsum can be differentiated twice") {
  const autograd::CheckedFunction f = [](const variable_list& in) {
    return variable_list{einsum("bij,bjk->ki", {in[0], in[1]})};
  };
  const variable_list in = {sample_tensor({2, 2, 3}).set_requires_grad(true),
                            sample_tensor({2, 3, 2}).set_requires_grad(true)};
  CHECK(autograd::gradcheck(f, in));
  CHECK(autograd::gradgradcheck(f, in));
}

TEST_CASE("the number of threads changes no bit of a product") {
  const Tensor a = sample_tensor({300, 200}).to(kFloat32),
               b = sample_tensor({200, 400}).to(kFloat32);
  const Tensor batch = sample_tensor({6, 70, 80}).to(kFloat32);
  auto run = [&] {
    return Outputs{matmul(a, b), matmul(a.t(), a), matmul(batch, batch.mT()),
                   matmul(a.to(kFloat64), b.to(kFloat64))};
  };
  Outputs one;
  {
    const ThreadsScope scope(1);
    one = run();
  }
  const ThreadsScope scope(2);
  CHECK(same_bits(one, run()));
}
