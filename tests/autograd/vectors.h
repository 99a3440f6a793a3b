/// The notation of the hook specification as C++: leaves, constants and small hooks.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "grapnel/grapnel.h"

namespace grapnel::test {

inline Tensor leaf(double v) { return tensor({v}, dtype(kFloat64).requires_grad(true)); }
inline Tensor leaf(std::vector<double> v) { return tensor(v, dtype(kFloat64).requires_grad(true)); }
inline Tensor constant(double v) { return tensor({v}, kFloat64); }
inline Tensor constant(std::vector<double> v) { return tensor(v, kFloat64); }

/// All elements, for comparison with the numbers of a table.
inline std::vector<double> values(const Tensor& t) {
  if (!t.defined()) return {};
  const Tensor flat = t.detach().cpu().contiguous().to(kFloat64).view({-1});
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}
inline double value(const Tensor& t) { return t.item<double>(); }
using Values = std::vector<double>;

/// Hooks that return k * g and g + k.
inline auto times(double k) {
  return [k](const Tensor& g) { return g * k; };
}
inline auto plus(double k) {
  return [k](const Tensor& g) { return g + k; };
}
inline Tensor identity(const Tensor& g) { return g; }
/// A node pre-hook that scales every defined gradient.
inline auto times_all(double k) {
  return [k](const variable_list& grads) {
    variable_list out;
    for (const Tensor& g : grads) out.push_back(g.defined() ? g * k : g);
    return out;
  };
}

/// Records first elements of what it sees; NaN stands for undefined.
struct Recorder {
  std::shared_ptr<std::vector<double>> seen = std::make_shared<std::vector<double>>();
  void operator()(const Tensor& g) const {
    seen->push_back(g.defined() ? g.detach().flatten()[0].item<double>() : NAN);
  }
};

/// The message of the Error that `fn` throws; empty if it throws none.
template <class F>
std::string error_of(F&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define CHECK_ERROR(statement, part)                                                    \
  do {                                                                                  \
    const std::string message_ = ::grapnel::test::error_of([&] { (void)(statement); }); \
    INFO("message: ", message_);                                                        \
    CHECK(::grapnel::test::contains(message_, part));                                   \
  } while (false)

}  // namespace grapnel::test
