#include "grapnel/base/source_site.h"

#include "grapnel/base/symbolizer.h"

namespace grapnel::base {

constinit thread_local const void* call_site [[gnu::tls_model("initial-exec")]] = nullptr;

std::string describe(SourceSite site) {
  return site.address != nullptr ? describe_address(site.address) : "an unknown place";
}

}  // namespace grapnel::base
