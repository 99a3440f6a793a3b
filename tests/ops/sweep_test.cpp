/// What holds for every op, checked for every op in AllOps on its own samples.
#include "tests/ops/sweep.h"

#include <limits>
#include <set>

#include "grapnel/autograd/gradcheck.h"
#include "grapnel/ops/op_table.h"

using namespace grapnel;

namespace {

/// A sample as a differentiable function, and the inputs that want a gradient.
struct Differentiable {
  variable_list inputs;
  autograd::CheckedFunction fn;
  bool any = false;

  Differentiable(const Op& op, const Sample& sample) {
    for (const Tensor& t : sample.inputs) {
      if (!t.defined() || t.impl().wrapped_number || t.dtype() != kFloat64) {
        inputs.push_back(t);
        continue;
      }
      inputs.push_back(converted_to(t, kFloat64).set_requires_grad(true));
      any = true;
    }
    fn = [&op, attrs = sample.attrs](const variable_list& in) {
      const Outputs out = run_op(op, in, attrs.get());
      return variable_list(out.begin(), out.end());
    };
  }
};

}  // namespace

TEST_CASE("every op has a name of its own and samples to be tested with") {
  std::set<std::string_view> names;
  for (const Op* op : all_ops()) {
    CAPTURE(op->name);
    CHECK(names.insert(op->name).second);
    // What calls a function of the program has nothing of its own to test.
    CHECK(op->samples().empty() == op->opaque);
  }
  CHECK(names.size() == all_ops().size());
}

TEST_CASE("every op that undoes or repeats itself does so, bit for bit") {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = tensor({-inf, -2.5, -0.0, 0.0, 0.25, 3.0, inf, std::nan("")});
  int found = 0;
  for (const Op* op : all_ops()) {
    if (op->twice == Twice::counts) continue;
    CAPTURE(op->name);
    ++found;
    const auto f = [&](const Tensor& t) { return run_op(*op, {t}, nullptr)[0]; };
    const Tensor y = f(x);
    CHECK(same_bits(op->twice == Twice::undoes ? f(f(y)) : f(y), y));
  }
  CHECK(found >= 7);
}

namespace {

/// Attention multiplies matrices in blocks of its own, recurrent layers turn their weight round first.
bool promises_bits(const Op& op) {
  return !op.name.starts_with("attention") && !op.name.starts_with("recurrent");
}

void check_lowered(const Op& op, const std::vector<Tensor>& inputs, const void* attrs) {
  std::vector<const Tensor*> list;
  for (const Tensor& t : inputs) list.push_back(&t);
  const Outputs fast = apply_all(op, list, attrs), plain = op.lower(list, attrs);
  REQUIRE(plain.size() == fast.size());
  for (size_t i = 0; i < fast.size(); ++i) {
    CAPTURE(i);
    if (promises_bits(op)) {
      CHECK(same_bits(fast[i], plain[i]));
    } else {
      const double rounding = fast[i].element_size() < 4 ? 2e-2 : 1e-5;
      CHECK(fast[i].dtype() == plain[i].dtype());
      CHECK(fast[i].to(kFloat64).allclose(plain[i].to(kFloat64), rounding, rounding));
    }
  }
}

}  // namespace

TEST_CASE("every op that is stated in other ops: its kernel gives what they give") {
  int lowered = 0;
  for_each_sample([&](const Op& op, const Sample& sample) {
    if (!op.lower) return;
    ++lowered;
    for (const DType dtype : {kFloat64, kFloat32, kFloat16, kBFloat16}) {
      CAPTURE(dtype);
      const auto convert = [&](const Tensor& t) {
        return t.defined() && is_floating(t.dtype()) ? t.to(dtype) : t;
      };
      std::vector<Tensor> inputs;
      for (const Tensor& t : sample.inputs) inputs.push_back(convert(t));
      // Statistics of rows are kept in the type they are computed in.
      if (op.name == "layer_norm_backward")
        for (const size_t i : {2, 3}) inputs[i] = inputs[i].to(dtype_of(compute_type(dtype)));
      check_lowered(op, inputs, sample.attrs.get());
    }
  });
  CHECK(lowered >= 18);
}

TEST_CASE("rows of any length: softmax and layer norm give what the ops they stand for give") {
  for (const int64_t n : {1, 255, 256, 257, 4096, 9001}) {
    CAPTURE(n);
    const Tensor x = randn({3, n}), g = randn({3, n}), weight = randn({n}), bias = randn({n});
    const SoftmaxAttrs along{.dim = 1}, across{.dim = 0};
    const NormAttrs rows{.dims = 1, .eps = 1e-5};
    for (const SoftmaxAttrs& dim : {along, across}) {
      check_lowered(op_of<Softmax>, {x}, &dim);
      check_lowered(op_of<LogSoftmax>, {x}, &dim);
      check_lowered(op_of<SoftmaxBackward>, {g, x.softmax(dim.dim)}, &dim);
      check_lowered(op_of<LogSoftmaxBackward>, {g, x.log_softmax(dim.dim)}, &dim);
    }
    check_lowered(op_of<LayerNorm>, {x, weight, bias}, &rows);
    check_lowered(op_of<LayerNorm>, {x, Tensor(), bias}, &rows);
    const Outputs y = apply_all<LayerNorm>(rows, x, weight, bias);
    check_lowered(op_of<LayerNormBackward>, {g, x, y[1], y[2], weight}, &rows);
    check_lowered(op_of<LayerNormBackward>, {g, x, y[1], y[2], Tensor()}, &rows);
  }
}

TEST_CASE("every op: the gradient agrees with finite differences") {
  for_each_sample([](const Op& op, const Sample& sample) {
    const Differentiable f(op, sample);
    if (op.differentiable && f.any) CHECK(autograd::gradcheck(f.fn, f.inputs));
  });
}

TEST_CASE("every op: the gradient of the gradient agrees with finite differences") {
  for_each_sample([](const Op& op, const Sample& sample) {
    const Differentiable f(op, sample);
    if (!op.differentiable || !f.any) return;
    // Ops whose output does not follow any input have no second gradient either.
    for (const Tensor& out : f.fn(f.inputs))
      if (out.requires_grad()) {
        CHECK(autograd::gradgradcheck(f.fn, f.inputs));
        return;
      }
  });
}

TEST_CASE("every op: the layout of an input in memory changes no bit of the result") {
  for_each_sample([](const Op& op, const Sample& sample) {
    // These read the storage itself, so the layout is what they are about.
    if (op.name.starts_with("as_strided")) return;
    const Outputs expected = run_op(op, sample);
    for (const auto& layout : {column_major, spread_out}) {
      // A view of other sizes may not exist in another layout.
      if (op.name == "view" && layout == column_major) continue;
      const Outputs other = run_op(op, remade(sample.inputs, layout), sample.attrs.get());
      CHECK((is_product(op) ? close(expected, other) : same_bits(expected, other)));
    }
  });
}

TEST_CASE("every pointwise op: an expanded input acts like its copy") {
  for_each_sample([](const Op& op, const Sample& sample) {
    if (op.family != Family::pointwise) return;
    Specs specs;
    std::vector<const Tensor*> list;
    for (const Tensor& t : sample.inputs) list.push_back(&t);
    static constexpr char no_attributes = 0;
    op.infer(list, sample.attrs ? sample.attrs.get() : &no_attributes, specs);
    const Shape full = specs[0].sizes;
    auto expanded = [&](const Tensor& t) {
      Shape strides = Shape::filled(full.size(), 0);
      const int missing = full.size() - static_cast<int>(t.dim());
      for (int i = missing; i < full.size(); ++i)
        if (t.shape()[i - missing] != 1) strides[i] = t.strides()[static_cast<size_t>(i - missing)];
      return make_alias(t, {full, strides, t.storage_offset()});
    };
    auto copied = [&](const Tensor& t) { return converted_to(expanded(t), t.dtype()); };
    const Outputs expected = run_op(op, sample);
    CHECK(same_bits(expected, run_op(op, remade(sample.inputs, expanded), nullptr)));
    CHECK(same_bits(expected, run_op(op, remade(sample.inputs, copied), nullptr)));
  });
}

TEST_CASE("every pointwise op: each type computes in its compute type and rounds once") {
  for_each_sample([](const Op& op, const Sample& sample) {
    if (op.family != Family::pointwise) return;
    for (const DType dtype : kAllDTypes) {
      CAPTURE(dtype);
      auto convert = [](DType to) {
        return [to](const Tensor& t) { return t.dtype() == kBool ? t : converted_to(t, to); };
      };
      const std::vector<Tensor> narrow = remade(sample.inputs, convert(dtype));
      if (refuses_types(op, narrow, nullptr)) continue;
      const Tensor result = run_op(op, narrow, nullptr)[0];
      // The numbers that the narrow type holds, in the type that arithmetic is done in.
      DType wide = dtype_of(compute_type(dtype));
      if (op.type_rule == TypeRule::floating && !is_floating(dtype)) wide = get_default_dtype();
      const Tensor exact = run_op(op, remade(narrow, convert(wide)), nullptr)[0];
      CHECK(same_bits(result, converted_to(exact, result.dtype())));
    }
  });
}

TEST_CASE("every op: each type gives a result or a clear error") {
  for_each_sample([](const Op& op, const Sample& sample) {
    for (const DType dtype : kAllDTypes) {
      CAPTURE(dtype);
      const auto inputs = remade(sample.inputs, [&](const Tensor& t) {
        return t.dtype() == kFloat64 ? converted_to(t, dtype) : t;
      });
      try {
        for (const Tensor& out : run_op(op, inputs, sample.attrs.get())) CHECK(out.defined());
      } catch (const Error& e) {
        CHECK(std::string(e.what()).find(op.name) != std::string::npos);
      }
    }
  });
}

TEST_CASE(
    "every pointwise op: empty tensors give empty results, 0-dimensional ones 0-dimensional "
    "results") {
  for_each_sample([](const Op& op, const Sample& sample) {
    if (op.family != Family::pointwise) return;
    auto none = [](const Tensor& t) { return empty({2, 0, 3}, t.dtype()); };
    CHECK(run_op(op, remade(sample.inputs, none), nullptr)[0].shape() == Shape{2, 0, 3});
    auto first = [](const Tensor& t) { return make_alias(t, {{}, {}, t.storage_offset()}); };
    auto first_of_one = [](const Tensor& t) {
      return make_alias(t, {{1}, {1}, t.storage_offset()});
    };
    const Tensor zero_dim = run_op(op, remade(sample.inputs, first), nullptr)[0];
    const Tensor one_dim = run_op(op, remade(sample.inputs, first_of_one), nullptr)[0];
    CHECK(zero_dim.shape() == Shape{});
    CHECK(same_bits(make_alias(zero_dim, {{1}, {1}, 0}), one_dim));
  });
}

namespace {

/// Inputs large enough to be shared among threads; empty when an op's sample cannot simply be made
/// longer.
std::vector<Tensor> large_inputs(const Op& op, const Sample& sample) {
  if (op.family == Family::pointwise)
    return remade(sample.inputs, [](const Tensor& t) { return repeated(t, 150'001); });
  return {};
}

/// All ops that fn(op, inputs, attrs) can be run on at a size that matters.
template <class Fn>
void for_each_large(Fn&& fn) {
  for_each_sample([&](const Op& op, const Sample& sample) {
    for (const DType dtype : {kFloat32, kFloat64, kInt64, kBFloat16}) {
      CAPTURE(dtype);
      auto convert = [&](const Tensor& t) {
        return t.dtype() == kBool ? t : converted_to(t, dtype);
      };
      const std::vector<Tensor> inputs = remade(large_inputs(op, sample), convert);
      if (inputs.empty() || refuses_types(op, inputs, sample.attrs.get())) continue;
      fn(op, inputs, sample.attrs.get());
    }
  });
  for (const Op* op : all_ops()) {
    if (op->family != Family::reduction) continue;
    for (const DType dtype : {kFloat32, kFloat64, kInt64, kBFloat16}) {
      if (op->type_rule == TypeRule::floating && !is_floating(dtype)) continue;
      const std::string where = str(op->name, " of ", dtype);
      CAPTURE(where);
      const Tensor x = converted_to(sample_tensor({70, 50, 40}), dtype);
      for (const Shape& dims : {Shape{0}, Shape{1}, Shape{2}, Shape{0, 2}, Shape{0, 1, 2}}) {
        const ReduceAttrs attrs{.dims = dims, .keepdim = false};
        fn(*op, std::vector<Tensor>{x}, static_cast<const void*>(&attrs));
      }
    }
  }
}

}  // namespace

TEST_CASE("every pointwise op and reduction: the number of threads changes no bit") {
  for_each_large([](const Op& op, const std::vector<Tensor>& inputs, const void* attrs) {
    Outputs expected;
    {
      const ThreadsScope one(1);
      expected = run_op(op, inputs, attrs);
    }
    const ThreadsScope two(2);
    CHECK(same_bits(expected, run_op(op, inputs, attrs)));
  });
}

TEST_CASE("every pointwise op and reduction: the instruction set changes no bit") {
  for_each_large([](const Op& op, const std::vector<Tensor>& inputs, const void* attrs) {
    Outputs expected;
    {
      const IsaScope scope(base::Isa::baseline);
      expected = run_op(op, inputs, attrs);
    }
    for (const base::Isa isa : available_isas()) {
      const std::string set = base::name_of(isa);
      CAPTURE(set);
      const IsaScope scope(isa);
      CHECK(same_bits(expected, run_op(op, inputs, attrs)));
    }
  });
}

TEST_CASE("every op: the number of threads and the instruction set change no bit of its samples") {
  for_each_sample([](const Op& op, const Sample& sample) {
    const Outputs expected = run_op(op, sample);
    const base::Isa best = base::cpu_isa();
    for (const base::Isa isa : available_isas()) {
      const IsaScope scope(isa);
      for (const int threads : {1, 2}) {
        const ThreadsScope count(threads);
        const Outputs other = run_op(op, sample);
        CHECK(
            (is_product(op) && isa != best ? close(expected, other) : same_bits(expected, other)));
      }
    }
  });
}

TEST_CASE("every pointwise op: written in place it gives the bits it gives elsewhere") {
  for_each_sample([](const Op& op, const Sample& sample) {
    if (op.family != Family::pointwise) return;
    const Tensor expected = run_op(op, sample)[0];
    const Tensor& first = sample.inputs[0];
    if (expected.shape() != first.shape() || !can_cast(expected.dtype(), first.dtype()) ||
        first.impl().wrapped_number)
      return;
    std::vector<Tensor> inputs = sample.inputs;
    inputs[0] = converted_to(first, first.dtype());
    std::vector<const Tensor*> list;
    for (const Tensor& t : inputs) list.push_back(&t);
    const uint32_t version = inputs[0]._version();
    apply_inplace(op, list);
    CHECK(same_bits(inputs[0], converted_to(expected, first.dtype())));
    CHECK(inputs[0]._version() == version + 1);
  });
}
