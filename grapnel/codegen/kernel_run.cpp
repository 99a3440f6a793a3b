/// Running a kernel on any number of values.
#include <cstring>

#include "grapnel/base/small_vector.h"
#include "grapnel/codegen/jit.h"

namespace grapnel::codegen {
namespace {

using Lane64 = std::array<uint64_t, kLanes>;

/// The values behind the last whole block, staged in blocks of their own.
void run_rest(const BlockProgram& p, BlockFn fn, const void* const* in, const Walk* walks,
              void* const* out, const void* scalars, int64_t begin, int64_t n) {
  auto width = [](Compute c) { return element_size(dtype_of(c)); };
  auto at = [&](const void* block, Compute c) {
    return static_cast<char*>(const_cast<void*>(block)) + static_cast<size_t>(begin) * width(c);
  };
  const size_t ins = p.inputs.size(), outs = p.outputs.size(),
               rest = static_cast<size_t>(n - begin);
  SmallVector<Lane64, 8> blocks(ins + outs);
  SmallVector<const void*, 8> from(ins);
  SmallVector<void*, 8> to(outs);
  for (size_t i = 0; i < ins; ++i) {
    std::memcpy(blocks[i].data(), at(in[i], p.inputs[i]), rest * width(p.inputs[i]));
    from[i] = blocks[i].data();
  }
  for (size_t o = 0; o < outs; ++o) to[o] = blocks[ins + o].data();
  fn(from.data(), walks, to.data(), scalars, kLanes);
  for (size_t o = 0; o < outs; ++o) {
    const Compute c = p.type_of(p.outputs[o]);
    std::memcpy(at(out[o], c), to[o], rest * width(c));
  }
}

}  // namespace

void Kernel::run(const void* const* in, void* const* out, const void* scalars, int64_t n) const {
  const BlockFn code = fn();
  if (!code) return interpret(program_, in, out, scalars, n);
  const SmallVector<Walk, 8> walks(program_.inputs.size(), Walk::along);
  const int64_t whole = n / kLanes * kLanes;
  if (whole > 0) code(in, walks.data(), out, scalars, whole);
  if (whole < n) run_rest(program_, code, in, walks.data(), out, scalars, whole, n);
}

}  // namespace grapnel::codegen
