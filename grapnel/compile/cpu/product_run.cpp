#include "grapnel/compile/cpu/product_run.h"

#include <algorithm>
#include <optional>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/cpu/tiled.h"

namespace grapnel::compiler {

using namespace capture;
using kernels::Tile;
using kernels::TileFn;

namespace {

/// Runs a group on a tile. On several threads, where the product had no use for them.
void run_on(const GroupRun& run, const Tile& tile, int64_t grain) {
  const size_t scratch = run.scratch_bytes();
  if (tile.cols == tile.pitch || tile.rows == 1) {
    base::parallel_for(tile.rows * tile.cols, grain, [&](int64_t begin, int64_t end) {
      run.run(tile.begin + begin, tile.begin + end, {thread_scratch(scratch), 0, 0});
    });
    return;
  }
  base::parallel_for(
      tile.rows, std::max<int64_t>(1, grain / tile.cols), [&](int64_t first, int64_t last) {
        run.run(Tile{tile.begin + first * tile.pitch, last - first, tile.cols, tile.pitch},
                {thread_scratch(scratch), 0, 0});
      });
}

/// A product as it stands in the trace.
struct Product {
  Product(const Trace& trace, uint32_t number)
      : t(trace),
        call(trace.calls[number]),
        out(trace.outputs_of(call)[0]),
        form(call.op->product_form(trace.attrs_of(call))),
        tiles(cpu::tiles_of(*call.op)) {}

  const Value& value() const { return t.values[out]; }

  Tensor result(const StoragePtr& memory) const {
    return Tensor(TensorImpl::create(memory, value().dtype, Shape(t.sizes_of(value())),
                                     Shape(t.strides_of(value()))));
  }

  /// Whether the operand that a prologue makes is needed piece by piece.
  bool takes_pieces(const Operands& in) const {
    return tiles.in_pieces({in.pointers.data(), in.pointers.size()}, t.attrs_of(call),
                           result(Storage::create_lazy(0, kCPU)));
  }

  /// Computes it in the memory of a slot.
  void run(const Operands& in, SlotId slot, Memory& memory, TileFn done, TileFn fill = {}) const {
    try {
      tiles.product({in.pointers.data(), in.pointers.size()}, t.attrs_of(call),
                    result(memory.storage(slot)), done, fill);
    } catch (...) {
      rethrow_from(t, call);
    }
  }

  /// Whether operands are copied before it begins.
  bool copies(const Operands& in) const {
    for (size_t k = 0; k < in.tensors.size(); ++k) {
      const Tensor& x = in.tensors[k];
      if (static_cast<int>(k) == form.addend || !x.defined()) continue;
      if (dtype_of(compute_type(value().dtype)) != x.dtype() ||
          (tiles.copies_strided && !x.is_contiguous()))
        return true;
    }
    return false;
  }

  const Trace& t;
  const Instruction& call;
  const ValueId out;
  const ProductForm form;
  const cpu::Tiles tiles;
};

/// The group behind a product. The product lies in the memory of a result, everything else where it
/// always does.
class Epilogue {
 public:
  Epilogue(const GroupCode& group, const Product& product, Trace& trace, Memory& memory,
           RunCounts& counts)
      : memory_(memory),
        product_(product.value().slot),
        lies_in_(group.group->product.memory),
        cut_(cut_of(*group.group, trace)),
        run_(group, trace, cut_, 0, &Epilogue::place, this, counts) {}
  Epilogue(const Epilogue&) = delete;
  Epilogue& operator=(const Epilogue&) = delete;

  void operator()(const Tile& tile) const { run_on(run_, tile, cut_.span); }
  void on_everything() const { run_on(run_, {0, 1, cut_.elements, cut_.elements}, cut_.span); }

 private:
  static Place place(void* self, SlotId slot) {
    const Epilogue& e = *static_cast<Epilogue*>(self);
    return {static_cast<char*>(e.memory_.storage(slot == e.product_ ? e.lies_in_ : slot)->host()),
            0, false};
  }

  Memory& memory_;
  const SlotId product_, lies_in_;
  const Cut cut_;
  const GroupRun run_;
};

/// The group before a product: computes pieces of the operand that it makes.
class Prologue {
 public:
  Prologue(const GroupCode& group, Trace& trace, Memory& memory, RunCounts& counts)
      : memory_(memory),
        made_(trace.values[group.group->outputs[0].value]),
        run_(group, trace, cut_of(*group.group, trace), 0, &Prologue::place, this, counts) {}
  Prologue(const Prologue&) = delete;
  Prologue& operator=(const Prologue&) = delete;

  void operator()(const Tile& tile) const {
    const Compute compute = compute_type(made_.dtype);
    const int64_t n = tile.rows * tile.cols;
    const bool narrow = dtype_of(compute) != made_.dtype;
    const size_t scratch = (run_.scratch_bytes() + 63) & ~size_t{63};
    char* const memory = thread_scratch(
        scratch +
        (narrow ? static_cast<size_t>(n + kernels::kTileMargin) * element_size(made_.dtype) : 0));
    char* const values = narrow ? memory + scratch : static_cast<char*>(tile.local);
    run_.run(tile.begin, tile.begin + n, {memory, tile.begin, 0, values});
    if (narrow)
      kernels::table().load[static_cast<int>(made_.dtype)][static_cast<int>(compute)](
          values, 1, tile.local, n);
  }

 private:
  static Place place(void* self, SlotId slot) {
    const Prologue& p = *static_cast<Prologue*>(self);
    if (slot == p.made_.slot) return {nullptr, 0, false};
    return {static_cast<char*>(p.memory_.storage(slot)->host()), 0, false};
  }

  Memory& memory_;
  const Value& made_;
  const GroupRun run_;
};

/// What the group reads for the last time, and could be let go of if it ran by itself.
size_t bytes_kept(const Item& item, const Group& group, const Trace& trace) {
  size_t bytes = 0;
  for (const SlotId slot : item.last_uses) {
    const bool is_read =
        std::any_of(group.inputs.begin(), group.inputs.end(),
                    [&](const Group::Input& in) { return trace.values[in.value].slot == slot; });
    if (is_read && !trace.slots[slot].live && !trace.slots[slot].outside)
      bytes += trace.slots[slot].bytes;
  }
  return bytes;
}

}  // namespace

void run_epilogue(const GroupCode& code, Trace& trace, Memory& memory, RunCounts& counts) {
  const Group& group = *code.group;
  const Product product(trace, group.product.call);
  if (trace.numel_of(product.value()) == 0) {
    for (const uint32_t c : group.calls) run_call(trace, trace.calls[c], memory);
    return;
  }
  const Operands in(trace, product.call, memory);
  // Interpreting costs too much per call to be done for short rows. And copies of operands beside
  // several results could need more memory than eager mode, which is rid of the copies when it
  // makes the results.
  if (!code.code.kernel || (group.outputs.size() > 1 && product.copies(in))) {
    product.run(in, group.product.memory, memory, {});
    Epilogue(code, product, trace, memory, counts).on_everything();
  } else {
    product.run(in, group.product.memory, memory, Epilogue(code, product, trace, memory, counts));
  }
}

bool run_prologue(const Item& item, const GroupCode& before, uint32_t number,
                  const GroupCode& behind, Trace& trace, Memory& memory, RunCounts& counts) {
  const Product product(trace, number);
  const SlotId made = trace.values[before.group->outputs[0].value].slot;
  const size_t elements = static_cast<size_t>(trace.numel_of(product.value()));
  if (elements == 0 || trace.slots[made].bytes == 0 || !before.code.kernel ||
      (behind.group && !behind.code.kernel))
    return false;
  if (bytes_kept(item, *before.group, trace) >
      std::min(trace.slots[made].bytes, trace.slots[product.value().slot].bytes))
    return false;
  const Operands in(trace, product.call, memory, product.form.operand);
  if (!product.takes_pieces(in) ||
      (behind.group && behind.group->outputs.size() > 1 && product.copies(in)))
    return false;
  const Prologue fill(before, trace, memory, counts);
  const SlotId slot = behind.group ? behind.group->product.memory : product.value().slot;
  std::optional<Epilogue> done;
  if (behind.group) done.emplace(behind, product, trace, memory, counts);
  product.run(in, slot, memory, done ? TileFn(*done) : TileFn(), fill);
  return true;
}

}  // namespace grapnel::compiler
