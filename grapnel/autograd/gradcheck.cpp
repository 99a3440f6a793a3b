#include "grapnel/autograd/gradcheck.h"

#include <cmath>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/ops/evaluator.h"

namespace grapnel::autograd {

namespace {

/// The elements of `t` in row-major order; zeros if it is undefined.
std::vector<double> values_of(const Tensor& t, int64_t count) {
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  if (t.defined()) copy_elements(from_blob(out.data(), t.sizes(), kFloat64), t);
  return out;
}

Shape index_of(const Shape& sizes, int64_t linear) {
  Shape at = sizes;
  for (int i = sizes.size() - 1; i >= 0; --i) {
    at[i] = linear % sizes[i];
    linear /= sizes[i];
  }
  return at;
}

/// Rows are elements of one input, columns elements of one output.
struct Jacobian {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
  Jacobian(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c), 0.0) {}
  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * columns + c)]; }
};

/// Puts a moved element back, also when the function throws.
struct Restore {
  double& element;
  double value;
  ~Restore() { element = value; }
};

class Check {
 public:
  Check(const CheckedFunction& fn, const variable_list& inputs, const GradcheckOptions& options)
      : fn_(fn), inputs_(inputs), options_(options) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].defined() && inputs[i].requires_grad()) {
        checked_.push_back(i);
        check_input(i);
      }
    check(!checked_.empty(), "gradcheck: none of the ", inputs.size(),
          " inputs requires grad.\nMark those to check: x.set_requires_grad(true).");
  }

  bool run() {
    const variable_list outputs = fn_(inputs_);
    std::vector<size_t> floating;
    for (size_t o = 0; o < outputs.size(); ++o)
      if (outputs[o].defined() && outputs[o].is_floating_point()) floating.push_back(o);
    for (size_t i : checked_) {
      std::vector<Jacobian> numerical;
      for (size_t o : floating) numerical.emplace_back(inputs_[i].numel(), outputs[o].numel());
      differences(i, floating, numerical);
      for (size_t k = 0; k < floating.size(); ++k) {
        const size_t o = floating[k];
        Jacobian analytical = backward(outputs[o], i);
        if (!compare(analytical, numerical[k], outputs[o], o, i)) return false;
      }
    }
    return true;
  }

 private:
  void check_input(size_t i) const {
    const Tensor& x = inputs_[i];
    check(x.dtype() == kFloat64, "gradcheck: input ", i, " is ", x.dtype(),
          ".\nFinite differences need f64: x.to(kFloat64).");
    for (int64_t d = 0; d < x.dim(); ++d)
      check(
          x.size(d) <= 1 || x.stride(d) != 0, "gradcheck: elements of input ", i,
          " share memory (shape ", x.shape(), ", strides ", x.strides(),
          "), so they cannot be moved one by one.\nPass a clone() and expand inside the function.");
  }

  /// Central differences of all outputs with respect to input i.
  void differences(size_t i, const std::vector<size_t>& floating,
                   std::vector<Jacobian>& out) const {
    const Tensor& x = inputs_[i];
    for (int64_t row = 0; row < x.numel(); ++row) {
      const Shape at = index_of(x.shape(), row);
      int64_t offset = 0;
      for (int d = 0; d < at.size(); ++d) offset += at[d] * x.strides()[static_cast<size_t>(d)];
      // Behind the back of the version counter: the function is to see another input, not a changed
      // one.
      double& element = reinterpret_cast<double*>(x.impl().host())[offset];
      const double before = element;
      const Restore restore{element, before};
      element = before + options_.eps;
      const double above = element;
      const std::vector<std::vector<double>> high = evaluate(floating);
      element = before - options_.eps;
      const double width = above - element;
      const std::vector<std::vector<double>> low = evaluate(floating);
      for (size_t k = 0; k < floating.size(); ++k)
        for (int64_t c = 0; c < out[k].columns; ++c)
          out[k].at(row, c) =
              (high[k][static_cast<size_t>(c)] - low[k][static_cast<size_t>(c)]) / width;
    }
  }
  std::vector<std::vector<double>> evaluate(const std::vector<size_t>& floating) const {
    const variable_list outputs = fn_(inputs_);
    std::vector<std::vector<double>> values;
    for (size_t o : floating) values.push_back(values_of(outputs[o], outputs[o].numel()));
    return values;
  }

  Jacobian backward(const Tensor& output, size_t i) const {
    Jacobian out(inputs_[i].numel(), output.numel());
    if (!output.requires_grad()) return out;
    for (int64_t c = 0; c < output.numel(); ++c) {
      const Tensor seed = zeros(output.sizes(), output.dtype());
      copy_elements(from_blob(seed.impl().host() + c * static_cast<int64_t>(seed.element_size()),
                              {}, seed.dtype()),
                    wrap_number(1.0));
      const Tensor g = grad({output}, {inputs_[i]}, {seed}, true, false, true)[0];
      const std::vector<double> column = values_of(g, inputs_[i].numel());
      for (int64_t r = 0; r < out.rows; ++r) out.at(r, c) = column[static_cast<size_t>(r)];
    }
    return out;
  }

  bool compare(Jacobian& analytical, Jacobian& numerical, const Tensor& output, size_t o,
               size_t i) const {
    int64_t wrong = 0, worst_row = 0, worst_column = 0;
    double worst = -1;
    for (int64_t r = 0; r < numerical.rows; ++r)
      for (int64_t c = 0; c < numerical.columns; ++c) {
        const double a = analytical.at(r, c), n = numerical.at(r, c);
        const double excess = std::fabs(a - n) - (options_.atol + options_.rtol * std::fabs(n));
        if (excess <= 0) continue;
        ++wrong;
        if (excess > worst || std::isnan(excess)) worst = excess, worst_row = r, worst_column = c;
      }
    if (wrong == 0) return true;
    check(!options_.raise_exception, "gradcheck: the gradient of output ", o,
          " with respect to input ", i, " is wrong in ", wrong, " of ",
          numerical.rows * numerical.columns, " elements.\nFor output",
          index_of(output.shape(), worst_column), " and input",
          index_of(inputs_[i].shape(), worst_row), ": backward gives ",
          analytical.at(worst_row, worst_column), ", finite differences give ",
          numerical.at(worst_row, worst_column), ".");
    return false;
  }

  const CheckedFunction& fn_;
  const variable_list& inputs_;
  const GradcheckOptions& options_;
  std::vector<size_t> checked_;
};

/// Deterministic values of either sign, none of them near zero.
Tensor made_up_gradient(const Tensor& output) {
  const Tensor t = empty(output.sizes(), kFloat64);
  double fraction = 0;
  for (int64_t i = 0; i < t.numel(); ++i) {
    fraction = std::fmod(fraction + 0.618033988749894848, 1.0);
    t.data_ptr<double>()[i] = (i % 2 ? -1 : 1) * (0.5 + fraction);
  }
  return t.set_requires_grad(true);
}

}  // namespace

bool gradcheck(const CheckedFunction& fn, const variable_list& inputs,
               const GradcheckOptions& options) {
  const EnableGradGuard recording;
  return Check(fn, inputs, options).run();
}

bool gradgradcheck(const CheckedFunction& fn, const variable_list& inputs,
                   const variable_list& grad_outputs, const GradcheckOptions& options) {
  const EnableGradGuard recording;
  auto differentiable = [](const variable_list& all) {
    variable_list kept;
    for (const Tensor& t : all)
      if (t.defined() && t.requires_grad()) kept.push_back(t);
    return kept;
  };
  variable_list extended = inputs;
  if (grad_outputs.empty()) {
    for (const Tensor& output : differentiable(fn(inputs)))
      extended.push_back(made_up_gradient(output));
  } else {
    extended.insert(extended.end(), grad_outputs.begin(), grad_outputs.end());
  }
  const size_t count = inputs.size();
  auto gradients = [&fn, &differentiable, count](const variable_list& all) {
    const auto split = all.begin() + static_cast<std::ptrdiff_t>(count);
    const variable_list own(all.begin(), split), seeds(split, all.end());
    const variable_list outputs = differentiable(fn(own));
    const variable_list wanted = differentiable(own);
    variable_list result = grad(outputs, wanted, seeds, true, true, true);
    for (size_t i = 0; i < result.size(); ++i)
      if (!result[i].defined()) result[i] = zeros_like(wanted[i]);
    return result;
  };
  return Check(gradients, extended, options).run();
}

}  // namespace grapnel::autograd
