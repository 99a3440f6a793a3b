#include "grapnel/functions/recurrent.h"

#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/gradcheck.h"
#include "grapnel/compile/compile.h"
#include "grapnel/ops/defs/recurrent.h"
#include "grapnel/compile/trace.h"
#include "tests/ops/error_text.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

constexpr RecurrentCell kCells[] = {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh,
                                    RecurrentCell::relu};

/// Operands of five steps for 3 rows and 300 states, which is more than a kernel takes at once.
struct Operands {
  Tensor x, h, c, weight, bias;

  Operands(RecurrentCell cell, DType type, int64_t features = 300) {
    const int64_t columns = gates_of(cell) * features;
    const auto values = [&](IntArrayRef sizes, double bound) {
      return sample_tensor(sizes, -bound, bound).to(type).requires_grad_();
    };
    x = values({5, 3, columns}, 1.5);
    h = values({3, features}, 1);
    if (cell == RecurrentCell::lstm) c = values({3, features}, 0.8);
    weight = values({columns, features}, 0.05);
    bias = values({columns}, 0.3);
  }
  std::vector<Tensor> all() const {
    return c.defined() ? std::vector{x, h, c, weight, bias} : std::vector{x, h, weight, bias};
  }
  Tensor loss(RecurrentCell cell, bool reverse = false) const {
    const RecurrentStates out = recurrent(cell, x, h, c, weight, bias, reverse);
    const Tensor sum = (out.all * out.all).sum();
    return out.cell.defined() ? sum + (out.cell * 3.0).sum() : sum;
  }
};

}  // namespace

TEST_CASE("recurrent: a gradient that can be differentiated again has the same bits") {
  for (const RecurrentCell cell : kCells)
    for (const DType type : {kFloat32, kFloat64})
      for (const bool reverse : {false, true}) {
        CAPTURE(static_cast<int>(cell));
        CAPTURE(type);
        CAPTURE(reverse);
        const Operands in(cell, type);
        const auto once = autograd::grad({in.loss(cell, reverse)}, in.all());
        const auto again = autograd::grad({in.loss(cell, reverse)}, in.all(), {}, true, true);
        for (size_t i = 0; i < once.size(); ++i) {
          CAPTURE(i);
          CHECK(same_bits(once[i], again[i].detach()));
        }
      }
}

TEST_CASE("recurrent: compiled, eager and on any number of threads the bits are the same") {
  for (const RecurrentCell cell : kCells) {
    CAPTURE(static_cast<int>(cell));
    const Operands in(cell, kFloat32);
    const auto run = [&] { return autograd::grad({in.loss(cell)}, in.all()); };
    const ThreadsScope one(1);
    const auto eager = run();
    set_num_threads(4);
    const auto threads = run();
    auto step = compile([&] { return run(); }, {.fullgraph = true});
    const auto compiled = step();
    for (size_t i = 0; i < eager.size(); ++i) {
      CAPTURE(i);
      CHECK(same_bits(eager[i], threads[i]));
      CHECK(same_bits(eager[i], compiled[i]));
    }
  }
}

TEST_CASE("recurrent: narrow types are computed in f32 and rounded once") {
  for (const RecurrentCell cell : kCells) {
    const Operands in(cell, kBFloat16, 8);
    const NoGradGuard off;
    const auto wide = [](const Tensor& t) { return t.defined() ? t.to(kFloat32) : t; };
    const Tensor narrow = recurrent(cell, in.x, in.h, in.c, in.weight, in.bias).all;
    CHECK(narrow.dtype() == kBFloat16);
    CHECK(same_bits(narrow, recurrent(cell, wide(in.x), wide(in.h), wide(in.c), wide(in.weight),
                                      wide(in.bias))
                                .all.to(kBFloat16)));
  }
}

TEST_CASE("recurrent: nothing is kept for a gradient that nobody wants") {
  const Operands in(RecurrentCell::lstm, kFloat32, 4);
  const auto graph = [&] {
    return trace([&](const Tensor& x) {
             return recurrent(RecurrentCell::lstm, x, in.h, in.c, in.weight, in.bias).all.detach();
           },
                 {in.x.detach()})
        .str();
  };
  CHECK(graph().find("keep=true") != std::string::npos);
  const NoGradGuard off;
  CHECK(graph().find("keep=false") != std::string::npos);
}

TEST_CASE("recurrent: gradients of gradients are right in parts, too") {
  const Operands in(RecurrentCell::lstm, kFloat64, 2);
  // Only the last c: nothing reaches the other states.
  CHECK(autograd::gradgradcheck(
      [&](const variable_list& list) {
        return variable_list{
            recurrent(RecurrentCell::lstm, list[0], in.h, in.c, in.weight, Tensor()).cell};
      },
      {sample_tensor({2, 3, 8}, -1, 1).requires_grad_()}));
}

TEST_CASE("recurrent says what is wrong with its operands") {
  const Operands in(RecurrentCell::gru, kFloat32, 2);
  CHECK(error_text([&] {
          recurrent(RecurrentCell::gru, in.x, in.h.detach(), in.h.detach(), in.weight, in.bias);
        }) == "recurrent: only an LSTM has a second state.");
  CHECK(error_text([&] {
          recurrent(RecurrentCell::lstm, in.x, in.h, Tensor(), in.weight, in.bias);
        }) == "recurrent: x must have shape [5, 3, 8], got [5, 3, 6].");
  CHECK(error_text([&] {
          recurrent(RecurrentCell::gru, in.x, in.h, Tensor(), in.weight.to(kFloat64), in.bias);
        }) == "recurrent: operands must have one type, got f32 and f64.");
  CHECK(error_text([&] {
          recurrent(RecurrentCell::gru, in.x.slice(0, 0, 0), in.h, Tensor(), in.weight, in.bias);
        }) == "recurrent: the sequence is empty: x has shape [0, 3, 6].");
}
