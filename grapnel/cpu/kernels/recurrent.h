/// One step of a recurrent layer for some rows of a batch: what is left when the product is done.
/// Each gives, bit for bit, what the ops in ops/recurrent.cpp give.
#pragma once

#include <cstdint>

namespace grapnel::kernels {

/// All arrays are dense and of the compute type, with rows of n values for each part they have.
struct RecurrentArgs {
  int64_t rows, n;
  const void *x, *p;  ///< a part for each gate
  const void* bias;   ///< one row, to be added to p; or null
  const void* h;      ///< before the step
  void* y;            ///< after it
  void* c;            ///< LSTM: before the step, and then after it
  void* kept;         ///< what the gradient needs, or null
};

struct RecurrentBackwardArgs {
  int64_t rows, n;
  const void *gy, *product;  ///< what reached the states: from above, and through p of the next step
  const void *y, *h, *kept;  ///< after the step, before it, and what it kept
  const void* c;             ///< LSTM: before the step, in rows of `c_row` values
  int64_t c_row;
  void* direct;  ///< GRU: what reaches h but through p; of the next step, and then of this one
  void* gc;      ///< LSTM: the same of c
  void *gx, *gp;
};

/// By RecurrentCell.
struct RecurrentKernels {
  void (*forward[4])(const RecurrentArgs&);
  void (*backward[4])(const RecurrentBackwardArgs&);
};

}  // namespace grapnel::kernels
