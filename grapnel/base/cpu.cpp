#include "grapnel/base/cpu.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "grapnel/base/error.h"

namespace grapnel::base {
namespace {

Isa detected() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  if (avx2 && avx512) return Isa::avx512;
  if (avx2) return Isa::avx2;
#endif
  return Isa::baseline;
}

Isa detected_or_lowered() {
  const char* wish = std::getenv("GRAPNEL_ISA");
  if (!wish) return detected();
  for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (std::string_view(wish) == name_of(isa)) return std::min(isa, detected());
  }
  fail("GRAPNEL_ISA is \"", wish,
       "\".\nSet it to baseline, avx2 or avx512, or unset it to use all this processor has.");
}

}  // namespace

constinit std::atomic<int> found_cpu_isa{-1};

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::baseline: return "baseline";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
  }
  return "unknown";
}

Isa find_cpu_isa() {
  set_isa_for_testing({});
  return cpu_isa();
}

void set_isa_for_testing(std::optional<Isa> isa) {
  static const Isa found = detected_or_lowered();
  found_cpu_isa.store(static_cast<int>(std::min(found, isa.value_or(found))),
                      std::memory_order_relaxed);
}

}  // namespace grapnel::base
