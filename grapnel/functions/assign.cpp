/// Note [Assignment to a temporary]: a tensor with a name is a handle, and `a = b` makes it another
/// one. A temporary has no name that could mean something else afterwards, so an assignment to it
/// can only be meant for its elements, as in LibTorch: `x[0] = y`, `x.select(1, 2) += 1` and
/// `x.index({Slice(), 0}) = 0` write to x, with broadcasting, version and gradient, since the
/// temporary is a view of x.
///
/// `x.index({mask})` and `x[positions]` are copies. Their argument is a temporary, too, and lives
/// to the end of the expression (IndexArgument): until then it is in a list of this thread, with
/// the place the rows came from, and an assignment to the copy writes the rows back. Once the copy
/// has a name, the expression is over and it is a tensor like any other.
#include "grapnel/functions/assign.h"

#include <atomic>
#include <utility>

#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/op_site.h"

namespace grapnel {

struct CopiedRows {
  Tensor copy;  ///< kept, so that no other tensor of the expression can have its place in memory
  Tensor view;
  Shape dims;
  Tensor positions;
  CopiedRows* outer;
  CopiedRows** list;  ///< of the thread that made the copy
  std::atomic<bool> ended = false;
};

namespace {

constinit thread_local CopiedRows* innermost = nullptr;

const CopiedRows* origin_of(const Tensor& t) {
  for (const CopiedRows* rows = innermost; rows != nullptr; rows = rows->outer)
    if (rows->copy.is_same(t)) return rows;
  return nullptr;
}

/// Expressions that ended on another thread, as those of coroutines may.
void drop_ended() {
  for (CopiedRows** at = &innermost; *at != nullptr;) {
    CopiedRows* const rows = *at;
    if (!rows->ended.load(std::memory_order_acquire)) {
      at = &rows->outer;
      continue;
    }
    *at = rows->outer;
    delete rows;
  }
}

}  // namespace

void IndexArgument::remember(const Tensor& copy, Tensor view, const Shape& dims,
                             Tensor positions) const {
  if (copied_ != nullptr) return;  // a list with a name, used again: only its first copy is known
  drop_ended();
  copied_ =
      new CopiedRows{copy, std::move(view), dims, std::move(positions), innermost, &innermost};
  innermost = copied_;
}

void IndexArgument::forget() noexcept {
  CopiedRows* const rows = std::exchange(copied_, nullptr);
  if (rows->list != &innermost) {
    rows->ended.store(true, std::memory_order_release);
    return;
  }
  for (CopiedRows** at = &innermost; *at != nullptr; at = &(*at)->outer)
    if (*at == rows) {
      *at = rows->outer;
      break;
    }
  delete rows;
}

void check_assignable(const Tensor& temporary, const char* symbol) {
  check(temporary.defined(), symbol,
        ": the temporary on the left is undefined, so there is nothing to write to.\nAssigning to "
        "a temporary writes to its elements; only a tensor with a name can become another one.");
  check(!temporary.impl().picked_copy, symbol,
        ": the left side is a copy that gather, index_select or masked_select made, so what is "
        "written to it would be lost.\nWrite to the tensor itself: x.index({mask}) = values, "
        "x.index_put_({positions}, values) or x.scatter_(dim, index, values); or give the copy a "
        "name first.");
}

namespace {

void put(const CopiedRows& rows, const Tensor& values) {
  apply_inplace<IndexPut>({rows.dims, false}, rows.view, rows.positions, values);
}

/// `write(target)`, and the rows back to where they belong.
template <class Write>
void assign(Tensor& target, Write write) {
  check_assignable(target, "=");
  const CopiedRows* const rows = origin_of(target);
  if (rows == nullptr) return write(target);
  target = target.detach();  // what was read counts no more, for gradients either
  write(target);
  put(*rows, target);
}

}  // namespace

void put_back(const Tensor& temporary) {
  if (const CopiedRows* const rows = origin_of(temporary)) put(*rows, temporary);
}

Tensor& Tensor::operator=(const Tensor& values) && {
  GRAPNEL_CALL_SITE;
  assign(*this, [&](const Tensor& target) { target.copy_(values); });
  return *this;
}
Tensor& Tensor::operator=(const Scalar& value) && {
  GRAPNEL_CALL_SITE;
  assign(*this, [&](const Tensor& target) { target.fill_(value); });
  return *this;
}

}  // namespace grapnel
