/// L-BFGS: quasi-Newton steps from a short history of gradients. For problems that are not noisy.
///
///   optim::LBFGS opt(net->parameters(), optim::LBFGSOptions().line_search_fn("strong_wolfe"));
///   opt.step([&] { opt.zero_grad(); Tensor loss = ...; loss.backward(); return loss; });
///
/// One step evaluates the closure several times and decides by the values it sees, so it does not
/// become part of a compiled step.
#pragma once

#include <optional>
#include <string>

#include "grapnel/optim/optimizer_of.h"

namespace grapnel::optim {

/// Steps, history and line search.
class LBFGSOptions : public OptionsOf<LBFGSOptions> {
 public:
  LBFGSOptions(double lr = 1) : lr_(lr) {}
  static void visit(auto&& self, auto&& v) {
    v("lr", self.lr_);
    v("max_iter", self.max_iter_);
    v("max_eval", self.max_eval_);
    v("tolerance_grad", self.tolerance_grad_);
    v("tolerance_change", self.tolerance_change_);
    v("history_size", self.history_size_);
  }
  void validate() const override;
  GRAPNEL_ARG(double, lr);
  /// Per step.
  GRAPNEL_ARG(int64_t, max_iter) = 20;
  /// Evaluations of the closure per step; 0 stands for 5 / 4 of max_iter.
  GRAPNEL_ARG(int64_t, max_eval) = 0;
  GRAPNEL_ARG(double, tolerance_grad) = 1e-7;
  GRAPNEL_ARG(double, tolerance_change) = 1e-9;
  GRAPNEL_ARG(int64_t, history_size) = 100;
  /// "strong_wolfe", or nothing for steps of the length lr.
  GRAPNEL_ARG(std::optional<std::string>, line_search_fn);
};

/// Kept for the first parameter, about all of them. Directions and changes of the gradient are rows
/// [history, numbers].
struct LBFGSParamState : StateOf<LBFGSParamState> {
  int64_t func_evals = 0, n_iter = 0;
  double t = 0, h_diag = 1, prev_loss = 0;
  Tensor d, prev_flat_grad, old_dirs, old_stps, ro;
  static void visit(auto&& self, auto&& v) {
    v("func_evals", self.func_evals);
    v("n_iter", self.n_iter);
    v("t", self.t);
    v("h_diag", self.h_diag);
    v("prev_loss", self.prev_loss);
    v("d", self.d);
    v("prev_flat_grad", self.prev_flat_grad);
    v("old_dirs", self.old_dirs);
    v("old_stps", self.old_stps);
    v("ro", self.ro);
  }
};

/// All parameters are one group. step() needs a closure, and step_param() is refused: a step is
/// about all of them at once.
class LBFGS final : public OptimizerOf<LBFGSOptions, LBFGSParamState> {
 public:
  explicit LBFGS(std::vector<Tensor> params, const LBFGSOptions& defaults = {});

 protected:
  Tensor run(const LossClosure& closure) override;
  Update update(const Tensor&, const Tensor&, const LBFGSOptions&, LBFGSParamState&) override;
  bool fits(const std::string&, const Tensor&, const Tensor&) const override { return true; }

 private:
  struct Point;
  Tensor flat_grad() const;
  void move(const Tensor& direction, double length);
  Point evaluate(const LossClosure& closure, const std::vector<Tensor>& from, double t,
                 const Tensor& d);
  Point strong_wolfe(const LossClosure& closure, double t, const Tensor& d, Point start, double gtd,
                     int64_t& evaluations);
};

}  // namespace grapnel::optim
