#include "command/watch.h"

#include <charconv>
#include <cmath>

namespace command {

using namespace grapnel;

HookSpec HookSpec::parse(const std::string& text) {
  const size_t equals = text.find('=');
  HookSpec hook{text.substr(0, equals)};
  const bool takes_value = hook.kind != "histogram";
  const bool known = hook.kind == "histogram" || hook.kind == "clip" || hook.kind == "clip-value" ||
                     hook.kind == "noise" || hook.kind == "scale";
  check(known, "there is no hook '", text,
        "'; there are histogram, clip=LIMIT, clip-value=LIMIT, noise=DEVIATION, scale=FACTOR.");
  if (!takes_value) {
    check(equals == std::string::npos, "the hook histogram takes no number, got '", text, "'.");
    return hook;
  }
  hook.value = hook.kind == "clip" ? 1.0 : 0.0;
  if (equals == std::string::npos) {
    check(hook.kind == "clip", "the hook ", hook.kind, " needs a number, as in ", hook.kind,
          "=0.1.");
    return hook;
  }
  const char *begin = text.data() + equals + 1, *end = text.data() + text.size();
  const auto read = std::from_chars(begin, end, hook.value);
  check(read.ec == std::errc() && read.ptr == end && std::isfinite(hook.value), "the hook '", text,
        "' has no number behind the '='.");
  check(hook.kind == "scale" || hook.value > 0, "the number of the hook '", text,
        "' must be above 0.");
  return hook;
}

std::string HookSpec::name() const { return kind == "histogram" ? kind : str(kind, " ", value); }

size_t Histograms::add_series(const std::string& name) {
  series_.push_back({name, {}, {}});
  return series_.size() - 1;
}

void Histograms::gather(size_t number, const Tensor& grad) {
  const NoGradGuard no_grad;
  Series& series = series_[number];
  const Tensor g = grad.detach().to(kFloat32);
  constexpr double scale = static_cast<double>(bins) / (high - low);
  // Zero has no logarithm and falls below the first bin, as does NaN, which compares with nothing.
  const Tensor place =
      ((g.abs().log10() - low) * scale).floor().clamp(-1.0, static_cast<double>(bins)) + 1.0;
  const Tensor slot = where(g.isnan(), zeros({}), place).to(kInt64).reshape({-1});
  series.counts = zeros({bins + 2}, kInt64).scatter_add(0, slot, ones(slot.shape(), kInt64));
  series.norm = g.square().sum().sqrt();
}

std::vector<Json> Histograms::take(int64_t step) {
  std::vector<Json> out;
  for (Series& s : series_) {
    if (!s.counts.defined()) continue;
    const int64_t* counts = s.counts.data_ptr<int64_t>();
    const double norm = s.norm.item<double>();
    out.push_back({{"step", step},
                   {"name", s.name},
                   {"norm", std::isfinite(norm) ? Json(norm) : Json(nullptr)},
                   {"low", low},
                   {"high", high},
                   {"counts", std::vector<int64_t>(counts, counts + bins + 2)}});
    s.counts = s.norm = Tensor();
  }
  return out;
}

Watch::Change Watch::make(const HookSpec& hook, const std::string& parameter) {
  if (hook.kind == "histogram") {
    const size_t series = histograms_.add_series(parameter);
    return [this, series](const Tensor& g) {
      if (gathering_) histograms_.gather(series, g);
      return g;
    };
  }
  if (hook.kind == "clip") return hooks::ClipNorm{hook.value};
  if (hook.kind == "clip-value") return hooks::ClipValue{hook.value};
  if (hook.kind == "noise") return hooks::Noise{hook.value};
  return hooks::Scale{hook.value};
}

Watch::Watch(nn::Module& module, const std::vector<HookSpec>& specs, Probe& probe) : probe_(probe) {
  for (const HookSpec& spec : specs)
    for (const auto& parameter : module.named_parameters())
      handles_.push_back(parameter.value().register_hook(
          [this, name = spec.name(), tensor = parameter.key(),
           change = make(spec, parameter.key())](const Tensor& g) {
            const Probe::HookScope scope(probe_, name, tensor, g);
            return change(g);
          },
          spec.name() + " of " + parameter.key()));
}

Watch::~Watch() {
  for (HookHandle& handle : handles_) handle.remove();
}

}  // namespace command
