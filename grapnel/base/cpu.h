/// Which instruction set the kernels may use, found out once.
#pragma once

#include <atomic>
#include <optional>

namespace grapnel::base {

/// In ascending order. `avx2` stands for AVX2, FMA, F16C and BMI2; `avx512` for that and AVX-512 F,
/// CD, DQ, BW and VL.
enum class Isa { baseline, avx2, avx512 };

const char* name_of(Isa isa);

/// Finds out, and remembers.
Isa find_cpu_isa();
/// What was found; negative before.
extern std::atomic<int> found_cpu_isa;

/// The best set that this processor has. GRAPNEL_ISA=baseline|avx2|avx512 lowers it; it never
/// raises it.
inline Isa cpu_isa() {
  const int isa = found_cpu_isa.load(std::memory_order_relaxed);
  return isa >= 0 ? static_cast<Isa>(isa) : find_cpu_isa();
}

/// For tests: lowers the answer of cpu_isa until called with nothing.
void set_isa_for_testing(std::optional<Isa> isa);

}  // namespace grapnel::base
