#include "grapnel/optim/lbfgs.h"

#include <algorithm>
#include <cmath>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/record.h"

namespace grapnel::optim {

void LBFGSOptions::validate() const {
  check_as<ValueError>(lr() >= 0, "LBFGS: the learning rate must not be negative, got ", lr(), ".");
  check(max_iter() > 0 && history_size() > 0 && max_eval() >= 0,
        "LBFGS: max_iter and history_size must be positive, got ", max_iter(), " and ",
        history_size(), ".");
  check(!line_search_fn() || *line_search_fn() == "strong_wolfe",
        "LBFGS: the only line search is \"strong_wolfe\", got \"", line_search_fn().value_or(""),
        "\".");
}

/// The loss somewhere along the direction: t times it from the start.
struct LBFGS::Point {
  double t = 0, loss = 0;
  Tensor grad = {};
  double slope = 0;  ///< of the loss along the direction
};

LBFGS::LBFGS(std::vector<Tensor> params, const LBFGSOptions& defaults)
    : OptimizerOf(std::move(params), defaults) {
  check(size() > 0, "LBFGS: there are no parameters.");
}

Update LBFGS::update(const Tensor&, const Tensor&, const LBFGSOptions&, LBFGSParamState&) {
  fail("LBFGS: a single parameter cannot be stepped; call step(closure).");
}

Tensor LBFGS::flat_grad() const {
  std::vector<Tensor> rows;
  for (const Tensor& p : param_groups()[0].params())
    rows.push_back(p.grad().defined() ? p.grad().detach().reshape({-1})
                                      : zeros({p.numel()}, p.options()));
  return cat(rows);
}

void LBFGS::move(const Tensor& direction, double length) {
  int64_t at = 0;
  for (const Tensor& p : param_groups()[0].params()) {
    p.add_(direction.narrow(0, at, p.numel()).view_as(p), length);
    at += p.numel();
  }
}

LBFGS::Point LBFGS::evaluate(const LossClosure& closure, const std::vector<Tensor>& from, double t,
                             const Tensor& d) {
  move(d, t);
  Point out;
  out.t = t;
  {
    EnableGradGuard grad;
    out.loss = closure().item<double>();
  }
  out.grad = flat_grad();
  out.slope = out.grad.dot(d).item<double>();
  const auto& params = param_groups()[0].params();
  for (size_t i = 0; i < params.size(); ++i) params[i].copy_(from[i]);
  return out;
}

namespace {

/// The minimum of the cubic through two points with their slopes, kept inside [low, high].
double cubic_minimum(const auto& a, const auto& b,
                     std::optional<std::pair<double, double>> bounds = {}) {
  const auto [low, high] = bounds.value_or(std::minmax(a.t, b.t));
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t),
               square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double at = a.t <= b.t
                        ? b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
                        : a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2));
  return std::min(std::max(at, low), high);
}

constexpr double c1 = 1e-4, c2 = 0.9;
constexpr int most_searches = 25;

}  // namespace

/// Finds a length at which the loss has fallen and its slope is flat enough (Nocedal and Wright,
/// algorithms 3.5 and 3.6).
LBFGS::Point LBFGS::strong_wolfe(const LossClosure& closure, double t, const Tensor& d, Point start,
                                 double gtd, int64_t& evaluations) {
  const auto& options = static_cast<const LBFGSOptions&>(param_groups()[0].options());
  const double d_norm = d.abs().max().item<double>();
  std::vector<Tensor> from;
  for (const Tensor& p : param_groups()[0].params()) from.push_back(p.detach().clone());
  const auto fell = [&](const Point& p) { return p.loss <= start.loss + c1 * p.t * gtd; };

  // First outwards, until a minimum must lie between two points.
  Point now = evaluate(closure, from, t, d), before = start;
  before.slope = gtd;
  ++evaluations;
  std::vector<Point> bracket;
  bool done = false;
  int searches = 0;
  for (; searches < most_searches; ++searches) {
    const bool rose = !fell(now) || (searches > 1 && now.loss >= before.loss);
    done = !rose && std::abs(now.slope) <= -c2 * gtd;
    if (done) bracket = {now};
    else if (rose || now.slope >= 0) bracket = {before, now};
    if (!bracket.empty()) break;
    const double low = now.t + 0.01 * (now.t - before.t), high = now.t * 10;
    const double next = cubic_minimum(before, now, std::pair(low, high));
    before = std::move(now);
    now = evaluate(closure, from, next, d);
    ++evaluations;
  }
  if (bracket.empty()) bracket = {start, now};

  // Then inwards.
  bool stuck = false;
  size_t low = bracket.size() < 2 || bracket[0].loss <= bracket[1].loss ? 0 : 1, high = 1 - low;
  while (!done && searches < most_searches) {
    if (std::abs(bracket[1].t - bracket[0].t) * d_norm < options.tolerance_change()) break;
    double next = cubic_minimum(bracket[0], bracket[1]);
    // A minimum next to an end makes little progress twice in a row: step away from it.
    const auto [least, most] = std::minmax(bracket[0].t, bracket[1].t);
    const double margin = 0.1 * (most - least);
    if (std::min(most - next, next - least) < margin) {
      if (stuck || next >= most || next <= least) {
        next = std::abs(next - most) < std::abs(next - least) ? most - margin : least + margin;
        stuck = false;
      } else {
        stuck = true;
      }
    } else {
      stuck = false;
    }
    now = evaluate(closure, from, next, d);
    ++evaluations;
    ++searches;
    if (!fell(now) || now.loss >= bracket[low].loss) {
      bracket[high] = std::move(now);
      if (bracket[0].loss <= bracket[1].loss) low = 0, high = 1;
      else low = 1, high = 0;
    } else {
      if (std::abs(now.slope) <= -c2 * gtd) done = true;
      else if (now.slope * (bracket[high].t - bracket[low].t) >= 0) bracket[high] = bracket[low];
      bracket[low] = std::move(now);
    }
  }
  return bracket[bracket.size() == 1 ? 0 : low];
}

Tensor LBFGS::run(const LossClosure& closure) {
  check(param_groups().size() == 1, "LBFGS: all parameters have to be in one group, there are ",
        param_groups().size(), ".");
  check(size() > 0, "LBFGS: there are no parameters.");
  check(static_cast<bool>(closure),
        "LBFGS: step needs a closure that computes the loss anew: opt.step([&] { opt.zero_grad(); "
        "...; "
        "return loss; }).");
  const auto& o = static_cast<const LBFGSOptions&>(param_groups()[0].options());
  LBFGSParamState& s = state(param_groups()[0].params()[0]);
  const int64_t max_eval = o.max_eval() > 0 ? o.max_eval() : o.max_iter() * 5 / 4;
  NoGradGuard no_grad;
  const auto evaluate_here = [&] {
    EnableGradGuard grad;
    return closure();
  };

  const Tensor original = evaluate_here();
  double loss = original.item<double>();
  int64_t evaluations = 1;
  ++s.func_evals;
  Tensor grad = flat_grad();
  // What was learned about other parameters says nothing about these.
  if (s.d.defined() && s.d.numel() != grad.numel()) s = LBFGSParamState();
  if (grad.abs().max().item<double>() <= o.tolerance_grad()) return original;

  for (int64_t n = 1; n <= o.max_iter(); ++n) {
    ++s.n_iter;
    if (s.n_iter == 1) {
      s.d = -grad;
      s.h_diag = 1;
    } else {
      const Tensor y = grad - s.prev_flat_grad, step = s.d * s.t;
      const double ys = y.dot(step).item<double>();
      if (ys > 1e-10) {
        const auto append = [&](Tensor& list, const Tensor& row) {
          if (!list.defined()) list = row.unsqueeze(0).clone();
          else
            list =
                cat({list.size(0) == o.history_size() ? list.narrow(0, 1, list.size(0) - 1) : list,
                     row.unsqueeze(0)});
        };
        append(s.old_dirs, y);
        append(s.old_stps, step);
        append(s.ro, full({}, 1 / ys, grad.options()));
        s.h_diag = ys / y.dot(y).item<double>();
      }
      // The two loops over the history: the direction is minus the inverse Hessian times the
      // gradient.
      const int64_t count = s.old_dirs.defined() ? s.old_dirs.size(0) : 0;
      std::vector<Tensor> alpha(static_cast<size_t>(count));
      Tensor q = -grad;
      for (int64_t i = count - 1; i >= 0; --i) {
        alpha[static_cast<size_t>(i)] = s.old_stps[i].dot(q) * s.ro[i];
        q = q - alpha[static_cast<size_t>(i)] * s.old_dirs[i];
      }
      q = q * s.h_diag;
      for (int64_t i = 0; i < count; ++i)
        q = q + s.old_stps[i] * (alpha[static_cast<size_t>(i)] - s.old_dirs[i].dot(q) * s.ro[i]);
      s.d = q;
    }
    s.prev_flat_grad = grad;
    s.prev_loss = loss;

    s.t = s.n_iter == 1 ? std::min(1.0, 1 / grad.abs().sum().item<double>()) * o.lr() : o.lr();
    const double gtd = grad.dot(s.d).item<double>();
    if (gtd > -o.tolerance_change()) break;
    int64_t new_evaluations = 0;
    if (o.line_search_fn()) {
      const Point best =
          strong_wolfe(closure, s.t, s.d, {.t = 0, .loss = loss, .grad = grad, .slope = gtd}, gtd,
                       new_evaluations);
      s.t = best.t, loss = best.loss, grad = best.grad;
      move(s.d, s.t);
    } else {
      move(s.d, s.t);
      if (n != o.max_iter()) {
        loss = evaluate_here().item<double>();
        grad = flat_grad();
        new_evaluations = 1;
      }
    }
    evaluations += new_evaluations;
    s.func_evals += new_evaluations;

    if (n == o.max_iter() || evaluations >= max_eval) break;
    if (grad.abs().max().item<double>() <= o.tolerance_grad()) break;
    if ((s.d * s.t).abs().max().item<double>() <= o.tolerance_change() ||
        std::abs(loss - s.prev_loss) < o.tolerance_change())
      break;
  }
  // The history has the last move in it, so it must not be undone.
  record::flush("LBFGS");
  return original;
}

}  // namespace grapnel::optim
