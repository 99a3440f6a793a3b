#include "grapnel/nn/summary.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace grapnel::nn {

ModuleSummary summary(Module& module) {
  ModuleSummary out;
  module.apply([&](const std::string& path, Module& m) {
    std::ostringstream layer;
    m.pretty_print(layer);
    int64_t own = 0;
    for (const Tensor& p : m.parameters(false)) own += p.numel();
    out.rows.push_back(
        {path, layer.str(), path.empty() ? 0 : 1 + std::ranges::count(path, '.'), own});
  });
  for (const Tensor& p : module.parameters()) {
    out.parameters += p.numel();
    out.trainable += p.requires_grad() ? p.numel() : 0;
    out.bytes += p.nbytes();
  }
  for (const Tensor& b : module.buffers()) {
    out.buffers += b.numel();
    out.bytes += b.nbytes();
  }
  return out;
}

namespace {
/// 1234567 as 1,234,567.
std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}
}  // namespace

std::ostream& operator<<(std::ostream& out, const ModuleSummary& s) {
  size_t width = 10;
  const auto label = [](const ModuleSummary::Row& r) {
    const size_t dot = r.path.rfind('.');
    const std::string own = dot == std::string::npos ? r.path : r.path.substr(dot + 1);
    return std::string(static_cast<size_t>(2 * r.depth), ' ') +
           (own.empty() ? r.layer : own + ": " + r.layer);
  };
  for (const auto& row : s.rows) width = std::max(width, label(row).size());
  for (const auto& row : s.rows) {
    out << label(row);
    if (row.parameters > 0)
      out << std::string(width + 2 - label(row).size(), ' ') << std::setw(14)
          << grouped(row.parameters);
    out << '\n';
  }
  out << "parameters " << grouped(s.parameters) << " (" << grouped(s.trainable)
      << " trainable), buffers " << grouped(s.buffers) << ", " << grouped((s.bytes + 1023) / 1024)
      << " KiB\n";
  return out;
}

}  // namespace grapnel::nn
