#include "grapnel/hooks/statistics.h"

#include <cmath>
#include <limits>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::hooks {

/// Counts are plain numbers, since hooks run in every mode; what depends on values stays in
/// tensors.
struct Statistics::Series {
  std::string name;
  int64_t calls = 0, elements = 0;
  Tensor sum, squares, min, max, histogram;

  explicit Series(std::string n, int64_t bins) : name(std::move(n)) {
    sum = zeros({}, kFloat64);
    squares = zeros({}, kFloat64);
    min = full({}, std::numeric_limits<double>::infinity(), kFloat64);
    max = full({}, -std::numeric_limits<double>::infinity(), kFloat64);
    if (bins > 0) histogram = zeros({bins + 3}, kInt64);
  }
};

Statistics::Statistics(const StatisticsOptions& options) : options_(options) {
  check(options.bins >= 0 && (options.bins == 0 || options.low < options.high),
        "Statistics: a histogram needs low below high, got ", options.low, " and ", options.high,
        ".");
}

Statistics::~Statistics() {
  for (HookHandle& h : handles_) h.remove();
}

HookHandle Statistics::attach(const std::string& name, const Tensor& tensor) {
  const size_t number = series_.size();
  series_.push_back(std::make_unique<Series>(name, options_.bins));
  handles_.push_back(tensor.register_hook([this, number](const Tensor& g) { add(number, g); },
                                          {"statistics of " + name, base::SourceLine()}));
  return handles_.back();
}

void Statistics::attach(nn::Module& module) {
  const auto parameters = module.named_parameters();
  for (const auto& p : parameters)
    if (p->requires_grad()) attach(p.key(), p.value());
}

void Statistics::add(size_t number, const Tensor& grad) {
  if (!active_ || !grad.defined() || grad.numel() == 0) return;
  NoGradGuard no_grad;
  Series& s = *series_[number];
  const Tensor g = grad.detach();
  ++s.calls;
  s.elements += g.numel();
  s.sum.add_(g.sum(kFloat64));
  s.squares.add_(g.to(kFloat64).square().sum());
  s.min.minimum_(g.min().to(kFloat64));
  s.max.maximum_(g.max().to(kFloat64));
  if (options_.bins == 0) return;
  const double scale = static_cast<double>(options_.bins) / (options_.high - options_.low);
  const auto bins = static_cast<double>(options_.bins);
  // Slot 0 is below, 1 to bins are the bins, then above, then NaN.
  const Tensor place = ((g.to(kFloat64) - options_.low) * scale).floor().clamp(-1.0, bins) + 1.0;
  const Tensor slot = where(g.isnan(), bins + 2, place).to(kInt64).reshape({-1});
  s.histogram.scatter_add_(0, slot, ones(slot.shape(), kInt64));
}

std::vector<Statistics::Row> Statistics::report() const {
  std::vector<Row> out;
  for (const auto& s : series_) {
    Row row{.name = s->name, .calls = s->calls, .elements = s->elements, .histogram = {}};
    if (s->elements > 0) {
      const auto n = static_cast<double>(s->elements);
      const double squares = s->squares.item<double>();
      row.mean = s->sum.item<double>() / n;
      row.deviation = std::sqrt(std::max(0.0, squares / n - row.mean * row.mean));
      row.min = s->min.item<double>(), row.max = s->max.item<double>();
      row.norm = std::sqrt(squares / static_cast<double>(s->calls));
    }
    if (s->histogram.defined()) {
      row.histogram = to_vector<int64_t>(s->histogram);
    }
    out.push_back(std::move(row));
  }
  return out;
}

void Statistics::reset() {
  for (auto& s : series_) *s = Series(s->name, options_.bins);
}

void Statistics::save(io::Archive& out) const {
  for (const auto& s : series_) {
    out.write(s->name + ".calls", Scalar(s->calls));
    out.write(s->name + ".elements", Scalar(s->elements));
    out.write(s->name + ".sums", stack({s->sum, s->squares, s->min, s->max}));
    if (s->histogram.defined()) out.write(s->name + ".histogram", s->histogram);
  }
}

void Statistics::load(const io::Archive& in) {
  std::vector<Series> loaded;
  for (const auto& s : series_) {
    Series next(s->name, options_.bins);
    next.calls = in.number(s->name + ".calls").to_int();
    next.elements = in.number(s->name + ".elements").to_int();
    const Tensor sums = in.tensor(s->name + ".sums");
    check(sums.shape() == Shape{4} && sums.dtype() == kFloat64, "Statistics: the saved sums of ",
          s->name, " have another form.");
    next.sum.copy_(sums[0]), next.squares.copy_(sums[1]), next.min.copy_(sums[2]),
        next.max.copy_(sums[3]);
    if (next.histogram.defined()) {
      const Tensor counts = in.tensor(s->name + ".histogram");
      check(counts.shape() == next.histogram.shape(), "Statistics: the saved histogram of ",
            s->name, " has ", counts.numel(), " slots, this one has ", next.histogram.numel(), ".");
      next.histogram.copy_(counts);
    }
    loaded.push_back(std::move(next));
  }
  for (size_t i = 0; i < loaded.size(); ++i) *series_[i] = std::move(loaded[i]);
}

}  // namespace grapnel::hooks
