/// libFuzzer's entry: bytes are programs of the machine. Build with the preset `fuzz`; then
///
///   build/fuzz/tests/engine_fuzz -max_len=400 -max_total_time=600 corpus/
#include "tests/fuzz/random_program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  grapnel::set_num_threads(1);
  grapnel::fuzz::check_program({data, size});
  return 0;
}
