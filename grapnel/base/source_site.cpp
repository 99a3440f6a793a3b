#include "grapnel/base/source_site.h"

#include "grapnel/base/error.h"
#include "grapnel/base/foreign.h"
#include "grapnel/base/symbolizer.h"

namespace grapnel::base {

std::string describe(SourceSite site) {
  if (site.address == nullptr) return "an unknown place";
  return site.is_foreign() ? describe_foreign(site) : describe_address(site.address);
}

std::string SourceLine::str() const {
  if (foreign_.address != nullptr) return describe(foreign_);
  return line_.line() == 0 ? "" : grapnel::str(line_.file_name(), ":", line_.line());
}

}  // namespace grapnel::base
