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
  auto at = [&](const void* block, DType type) {
    return static_cast<char*>(const_cast<void*>(block)) +
           static_cast<size_t>(begin) * element_size(type);
  };
  const size_t ins = p.inputs.size(), outs = p.outputs.size(),
               rest = static_cast<size_t>(n - begin);
  SmallVector<Lane64, 8> blocks(ins + outs);
  SmallVector<const void*, 8> from(ins);
  SmallVector<void*, 8> to(outs);
  for (size_t i = 0; i < ins; ++i) {
    const DType type = p.stored_as(i);
    std::memcpy(blocks[i].data(), at(in[i], type), rest * element_size(type));
    from[i] = blocks[i].data();
  }
  for (size_t o = 0; o < outs; ++o) to[o] = blocks[ins + o].data();
  fn(from.data(), walks, to.data(), scalars, kLanes);
  for (size_t o = 0; o < outs; ++o) {
    const DType type = dtype_of(p.type_of(p.outputs[o]));
    std::memcpy(at(out[o], type), to[o], rest * element_size(type));
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
