#include "grapnel/tensor/hook_list.h"

#include "grapnel/base/place.h"
#include "grapnel/base/short_name.h"
#include "grapnel/base/spin_lock.h"

namespace grapnel {

void HookListLock::lock() noexcept { base::SpinGuard::lock(taken_); }
void HookListLock::unlock() noexcept { base::SpinGuard::unlock(taken_); }

void note_failure_of(const std::string& hook, const std::type_info* owner) noexcept {
  base::note(str("in the ", hook, owner ? ", of " : "",
                 owner ? base::short_type_name(*owner) : ""));
}

}  // namespace grapnel
