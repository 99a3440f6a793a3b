/// libFuzzer's entry: bytes are programs of the machine. Build with the preset `fuzz`; then
///
///   build/fuzz/tests/engine_fuzz -max_len=400 -max_total_time=600 corpus/
#include <sanitizer/lsan_interface.h>

#include "tests/fuzz/random_program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace grapnel::fuzz;
  const std::span<const uint8_t> program(data, size);
  grapnel::set_num_threads(1);
  Outcome outcome;
  {
    __lsan::ScopedDisabler circles_are_not_reported;
    outcome = check_program(program);
  }
  if (!outcome.may_own_itself) (void)run_once(program);
  return 0;
}
