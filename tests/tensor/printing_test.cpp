#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "grapnel/functions/factories.h"

using namespace grapnel;

TEST_CASE("a tensor prints its values in columns, then its type and shape") {
  CHECK(tensor({{1.5, -2.0}, {3.0, 0.25}}).str() == "[[ 1.50, -2.00],\n [ 3.00,  0.25]] f32[2, 2]");
  CHECK(tensor({1, -20, 300}).str() == "[  1, -20, 300] i64[3]");
  CHECK(tensor({true, false}).str() == "[ true, false] bool[2]");
  CHECK(tensor({1.0, 2.0}, kFloat16).str() == "[1., 2.] f16[2]");
  CHECK(tensor({0.5}, kBFloat16).str() == "[0.5] bf16[1]");
  CHECK(tensor({1, 2}, kUInt8).str() == "[1, 2] u8[2]");
}

TEST_CASE("tensors without dimensions or without elements print too") {
  CHECK(tensor(3.14159).str() == "3.1416 f32[]");
  CHECK(tensor(7).str() == "7 i64[]");
  CHECK(zeros({0}).str() == "[] f32[0]");
  CHECK(zeros({2, 0, 3}, kInt32).str() == "[] i32[2, 0, 3]");
  CHECK(Tensor().str() == "undefined tensor");
}

TEST_CASE("numbers that are not finite print as words") {
  CHECK(tensor({1.5, INFINITY, -INFINITY, NAN}).str() == "[ 1.5,  inf, -inf,  nan] f32[4]");
}

TEST_CASE("very large, very small and very unlike numbers print with powers of ten") {
  CHECK(tensor({1e10, 2.5e10}).str() == "[1.0e+10, 2.5e+10] f32[2]");
  CHECK(tensor({1e-7}, kFloat64).str() == "[1e-07] f64[1]");
  CHECK(tensor({1e-3, 1e4}, kFloat64).str() == "[1e-03, 1e+04] f64[2]");
  CHECK(tensor({0.0, 100.0}).str() == "[  0., 100.] f32[2]");
}

TEST_CASE("blocks of a tensor with three dimensions are set apart") {
  CHECK(arange(8).view({2, 2, 2}).str() ==
        "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]] i64[2, 2, 2]");
}

TEST_CASE("long tensors show their edges") {
  CHECK(arange(1001).str() == "[   0,    1,    2, ...,  998,  999, 1000] i64[1001]");
  CHECK(zeros({40, 30}, kInt64).str() ==
        "[[0, 0, 0, ..., 0, 0, 0],\n [0, 0, 0, ..., 0, 0, 0],\n [0, 0, 0, ..., 0, 0, 0],\n ...,\n"
        " [0, 0, 0, ..., 0, 0, 0],\n [0, 0, 0, ..., 0, 0, 0],\n [0, 0, 0, ..., 0, 0, 0]] i64[40, "
        "30]");
}

TEST_CASE("long rows are broken before 80 columns") {
  std::istringstream lines(arange(100).str());
  for (std::string line; std::getline(lines, line);)
    CHECK(line.size() <= 80 + std::string(" i64[100]").size());
}

TEST_CASE("printing follows strides and works on streams") {
  std::ostringstream out;
  out << arange(4).view({2, 2}).t();
  CHECK(out.str() == "[[0, 2],\n [1, 3]] i64[2, 2]");
}
