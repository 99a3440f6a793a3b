/// Seams like those in record.h, for graphs that fail. See Note [Failing graphs] in
/// capture/run_log.h.
#pragma once

#include <functional>

#include "grapnel/ops/record.h"

namespace grapnel::record {

void add_undo_of(const Tensor& value, std::function<void(Tensor)> restore);
/// on_undo for something that held `value`, which may be pending: what `make()` returns gets it back,
/// or an undefined tensor if it was never computed, and must not hold on to it itself.
template <class Make>
void on_undo_of(const Tensor& value, Make&& make) {
  if (active()) add_undo_of(value, make());
}
/// on_undo that counts only until the graph runs. It may hold on to anything.
void on_give_up(std::function<void()> undo);

/// Whether a tensor will never be computed: what was recorded failed, or was given up.
bool is_lost(const Tensor& t);

}  // namespace grapnel::record
