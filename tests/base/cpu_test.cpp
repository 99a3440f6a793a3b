#include "grapnel/base/cpu.h"

#include <doctest/doctest.h>

#include <string_view>

using grapnel::base::cpu_isa;
using grapnel::base::Isa;
using grapnel::base::set_isa_for_testing;

TEST_CASE("the instruction set can be lowered and never raised") {
  const Isa found = cpu_isa();
  set_isa_for_testing(Isa::baseline);
  CHECK(cpu_isa() == Isa::baseline);
  set_isa_for_testing(Isa::avx512);
  CHECK(cpu_isa() == found);
  set_isa_for_testing({});
  CHECK(cpu_isa() == found);
}

TEST_CASE("instruction sets are named as GRAPNEL_ISA names them") {
  CHECK(std::string_view(name_of(Isa::baseline)) == "baseline");
  CHECK(std::string_view(name_of(Isa::avx2)) == "avx2");
  CHECK(std::string_view(name_of(Isa::avx512)) == "avx512");
}
