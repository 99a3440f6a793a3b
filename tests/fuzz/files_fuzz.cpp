/// libFuzzer's entry for the readers of files: any bytes give a tensor or an Error, and memory
/// stays in bounds. Build with the preset `fuzz`; then
///
///   build/fuzz/tests/files_fuzz -rss_limit_mb=1024 -max_total_time=600 corpus/ tests/io/
#include <cstdint>
#include <span>

#include "grapnel/base/error.h"
#include "grapnel/io/npy.h"
#include "grapnel/io/safetensors.h"

namespace {
template <class Read>
void survives(Read read) {
  try {
    read();
  } catch (const grapnel::Error&) {
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  survives([&] { grapnel::io::parse_safetensors(bytes); });
  survives([&] { grapnel::io::parse_npy(bytes, "fuzz"); });
  survives([&] { grapnel::io::parse_npz(bytes, "fuzz"); });
  return 0;
}
