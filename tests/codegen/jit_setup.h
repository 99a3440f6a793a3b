/// What tests of the jit share: a cache folder of their own, and every instruction set of the
/// machine.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>

#include "grapnel/base/cpu.h"
#include "grapnel/base/error.h"
#include "grapnel/codegen/jit.h"
#include "tests/codegen/programs.h"

namespace grapnel::codegen {

/// A fresh jit with an empty cache on disk, for one test.
class CleanJit {
 public:
  CleanJit() {
    char name[] = "/tmp/grapnel-test-XXXXXX";
    folder = mkdtemp(name);
    setenv("GRAPNEL_CACHE_DIR", folder.c_str(), 1);
    reset_jit_for_testing();
  }
  ~CleanJit() {
    set_jit_fault_for_testing(JitFault::none);
    base::set_isa_for_testing({});
    reset_jit_for_testing();
    unsetenv("GRAPNEL_CACHE_DIR");
    std::error_code ignored;
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(folder, ignored);
  }
  std::filesystem::path folder;
};

template <class Fn>
void for_each_isa(Fn&& fn) {
  const base::Isa best = base::cpu_isa();
  for (base::Isa isa : {base::Isa::baseline, base::Isa::avx2, base::Isa::avx512}) {
    if (isa > best) break;
    base::set_isa_for_testing(isa);
    const std::string instruction_set = base::name_of(isa);
    CAPTURE(instruction_set);
    fn();
  }
  base::set_isa_for_testing({});
}

/// Machine code and interpreter on the same random values; whether they agree.
inline bool agrees(const BlockProgram& p, int64_t n, uint64_t seed) {
  const auto kernel = kernel_for(p);
  if (!kernel->fn()) {
    MESSAGE(kernel->error());
    return false;
  }
  Arguments jit(p, n, seed), plain(p, n, seed);
  kernel->run(jit.in_pointers.data(), jit.out_pointers.data(), jit.scalars.data(), n);
  interpret(p, plain.in_pointers.data(), plain.out_pointers.data(), plain.scalars.data(), n);
  for (size_t o = 0; o < p.outputs.size(); ++o) {
    const int64_t at = first_difference(jit.out[o], plain.out[o], n);
    if (at < 0) continue;
    auto shown = [at](const Block& b) {
      return b.type == Compute::F32   ? str(b.get<float>(at))
             : b.type == Compute::F64 ? str(b.get<double>(at))
                                      : str(b.get<int64_t>(at));
    };
    std::string operands;
    for (const Block& b : jit.in) operands += " " + shown(b);
    MESSAGE("output ", o, " differs at ", at, ": generated ", shown(jit.out[o]), ", eager ",
            shown(plain.out[o]), " for inputs", operands);
    return false;
  }
  return true;
}

}  // namespace grapnel::codegen
