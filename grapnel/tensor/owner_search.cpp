#include "grapnel/tensor/owner_search.h"

#include <cstring>

#include "grapnel/base/warn.h"
#include "grapnel/tensor/hook.h"

namespace grapnel {

namespace {
const void* word(const void* memory, size_t number) {
  const void* value;
  std::memcpy(&value, static_cast<const std::byte*>(memory) + number * sizeof(value),
              sizeof(value));
  return value;
}
}  // namespace

OwnerSearch::OwnerSearch(const Tensor& tensor, size_t size, size_t alignment)
    : tensor_(tensor),
      words_(size / sizeof(void*)),
      alignment_{alignment},
      memory_(::operator new(size, alignment_)) {
  std::memset(memory_, 0, size);
}

OwnerSearch::~OwnerSearch() { ::operator delete(memory_, alignment_); }

void OwnerSearch::before_move() {
  if (!tensor_.defined()) return;
  for (size_t i = 0; i < words_; ++i)
    if (word(memory_, i) == tensor_.impl_ptr()) found_.push_back(i);
  handles_ = tensor_.use_count();
}

bool OwnerSearch::owned_after_move() const {
  for (const size_t i : found_)
    if (word(memory_, i) == nullptr || tensor_.use_count() > handles_) return true;
  return false;
}

void warn_of_owner(HookKind kind, const HookOptions& options) {
  if (!base::first_at(options.site, "owner")) return;
  const std::string named = options.name.empty() ? "" : " '" + options.name + "'";
  base::warn(str("the ", name(kind), named, " registered at ", options.site.str(),
                 " holds the tensor that it is registered on; neither is freed as long as the hook "
                 "is registered.\nCapture t.detach() or what is needed of the tensor",
                 kind == HookKind::post_accumulate
                     ? ", or use the leaf that the hook is given."
                     : "; a post-accumulate hook is given the leaf."));
}

}  // namespace grapnel
