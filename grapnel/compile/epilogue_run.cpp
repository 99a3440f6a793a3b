#include "grapnel/compile/epilogue_run.h"

#include <algorithm>

#include "grapnel/base/thread_pool.h"
#include "grapnel/compile/group_run.h"
#include "grapnel/ops/tiled.h"

namespace grapnel::compile_detail {

using namespace capture;
using kernels::Tile;

namespace {

/// The product lies in the memory of a result, everything else where it always does.
struct Places {
  Memory& memory;
  SlotId product, lies_in;
  static Place place(void* self, SlotId slot) {
    const Places& p = *static_cast<Places*>(self);
    return {static_cast<char*>(p.memory.storage(slot == p.product ? p.lies_in : slot)->data()), 0, false};
  }
};

/// Runs the group on a tile. On several threads, where the product had no use for them.
void run_on(const GroupRun& run, const Tile& tile, int64_t grain) {
  const size_t scratch = run.scratch_bytes();
  if (tile.cols == tile.pitch || tile.rows == 1) {
    base::parallel_for(tile.rows * tile.cols, grain, [&](int64_t begin, int64_t end) {
      run.run(tile.begin + begin, tile.begin + end, {thread_scratch(scratch), 0, 0});
    });
    return;
  }
  base::parallel_for(tile.rows, std::max<int64_t>(1, grain / tile.cols), [&](int64_t first, int64_t last) {
    run.run(Tile{tile.begin + first * tile.pitch, last - first, tile.cols, tile.pitch},
            {thread_scratch(scratch), 0, 0});
  });
}

/// Whether the product copies an operand before it begins.
bool copies(const Tiled& tiled, const Operands& in, DType out) {
  for (size_t k = 0; k < in.tensors.size(); ++k) {
    const Tensor& t = in.tensors[k];
    if (static_cast<int>(k) == tiled.addend || !t.defined()) continue;
    if (dtype_of(compute_type(out)) != t.dtype() || (tiled.copies_strided && !t.is_contiguous())) return true;
  }
  return false;
}

}  // namespace

void run_epilogue(const Group& group, codegen::BlockFn kernel, Trace& trace, Memory& memory,
                  RunCounts& counts) {
  const Instruction& call = trace.calls[group.product.call];
  const Value& value = trace.values[trace.outputs_of(call)[0]];
  Cut cut;
  cut.elements = cut.rows = trace.numel_of(value);
  if (cut.elements == 0) {
    for (const uint32_t c : group.calls) run_call(trace, trace.calls[c], memory);
    return;
  }
  cut.span = grain_for(static_cast<int64_t>(group.program.steps.size()));
  const Operands in(trace, call, memory);
  const Inputs operands{in.pointers.data(), in.pointers.size()};
  const Tiled form = tiled(*call.op, trace.attrs_of(call));
  Tensor out(TensorImpl::create(memory.storage(group.product.memory), value.dtype,
                                Shape(trace.sizes_of(value)), Shape(trace.strides_of(value))));
  Places places{memory, value.slot, group.product.memory};
  auto bind = [&] { return GroupRun(group, kernel, trace, cut, 0, &Places::place, &places, counts); };
  try {
    // Interpreting costs too much per call to be done for short rows. And copies of operands beside several results could need more memory
    // than eager mode, which is rid of the copies when it makes the results.
    if (!kernel || (group.outputs.size() > 1 && copies(form, in, value.dtype))) {
      form.run(operands, trace.attrs_of(call), out, {});
      run_on(bind(), {0, 1, cut.elements, cut.elements}, cut.span);
    } else {
      const GroupRun run = bind();
      form.run(operands, trace.attrs_of(call), out, [&](const Tile& tile) { run_on(run, tile, cut.span); });
    }
  } catch (const Error& e) {
    rethrow_from(call, e);
  }
}

}  // namespace grapnel::compile_detail
