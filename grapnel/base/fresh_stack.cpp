#include "grapnel/base/fresh_stack.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <new>

#include "grapnel/base/place.h"

#if defined(__SANITIZE_ADDRESS__)
#define GRAPNEL_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GRAPNEL_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef GRAPNEL_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace grapnel::base {

namespace {

constexpr size_t kBytes = size_t{8} << 20;

class Stack {
 public:
  Stack() : guard_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* memory = mmap(nullptr, guard_ + kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
    mprotect(memory_, guard_, PROT_NONE);  // stacks grow down
  }
  ~Stack() { munmap(memory_, guard_ + kBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  char* bottom() const { return memory_ + guard_; }

 private:
  const size_t guard_;
  char* memory_;
};

/// One call that goes to the other stack and comes back.
struct Call {
  const std::function<void()>& fn;
  std::exception_ptr error = nullptr;
  ucontext_t caller = {}, callee = {};
};

/// Tells the address sanitizer, which knows where stacks lie, that another one is used.
void leave_for([[maybe_unused]] void** fake, [[maybe_unused]] const void* bottom,
               [[maybe_unused]] size_t bytes) {
#ifdef GRAPNEL_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(fake, bottom, bytes);
#endif
}
void arrive_from([[maybe_unused]] void* fake, [[maybe_unused]] const void** bottom,
                 [[maybe_unused]] size_t* bytes) {
#ifdef GRAPNEL_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake, bottom, bytes);
#endif
}

/// makecontext hands over ints only, so a pointer comes in two halves.
void enter(unsigned high, unsigned low) {
  const void* bottom = nullptr;
  size_t bytes = 0;
  arrive_from(nullptr, &bottom, &bytes);
  auto& call = *reinterpret_cast<Call*>(static_cast<uintptr_t>((uint64_t{high} << 32) | low));
  try {
    call.fn();
  } catch (...) {
    call.error = std::current_exception();  // frames of the other stack cannot be unwound from here
  }
  leave_for(nullptr, bottom, bytes);
}  // and on to `caller`

}  // namespace

void run_on_fresh_stack(const std::function<void()>& fn) {
  const Stack stack;
  Call call{fn};
  getcontext(&call.callee);
  call.callee.uc_stack.ss_sp = stack.bottom();
  call.callee.uc_stack.ss_size = kBytes;
  call.callee.uc_link = &call.caller;
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&call));
  makecontext(&call.callee, reinterpret_cast<void (*)()>(&enter), 2,
              static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  void* fake = nullptr;
  leave_for(&fake, stack.bottom(), kBytes);
  swapcontext(&call.caller, &call.callee);
  arrive_from(fake, nullptr, nullptr);
  if (call.error) rethrow_here(call.error);
}

}  // namespace grapnel::base
