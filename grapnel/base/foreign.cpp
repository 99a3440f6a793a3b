#include "grapnel/base/foreign.h"

#include <atomic>

#include "grapnel/base/error.h"

namespace grapnel::base {

namespace {
/// One word each, so that nobody has to lock to ask.
constinit std::atomic<decltype(ForeignLanguage::describe)> describes{nullptr};
constinit std::atomic<decltype(ForeignLanguage::now)> knows_now{nullptr};
constinit std::atomic<decltype(ForeignLanguage::let_go)> lets_go{nullptr};
}  // namespace

void set_foreign_language(const ForeignLanguage& language) {
  describes.store(language.describe, std::memory_order_release);
  knows_now.store(language.now, std::memory_order_release);
  lets_go.store(language.let_go, std::memory_order_release);
}

std::string describe_foreign(SourceSite site) {
  const auto describe = describes.load(std::memory_order_acquire);
  return describe != nullptr ? describe(site.foreign_number())
                             : str("line number ", site.foreign_number(), " of another language");
}

SourceSite foreign_site_now() {
  const auto now = knows_now.load(std::memory_order_acquire);
  return now != nullptr ? now() : SourceSite{};
}

void let_go_of_wrapper(void* wrapper) noexcept {
  if (const auto let_go = lets_go.load(std::memory_order_acquire)) let_go(wrapper);
}

}  // namespace grapnel::base
