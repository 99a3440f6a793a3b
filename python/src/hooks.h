/// Python callables as hooks.
#pragma once

#include <Python.h>

#include "grapnel/tensor/tensor.h"

namespace grapnel::python {

/// For tp_traverse of a tensor that only its object owns: visits the callables of its hooks.
int visit_hooks_of(const Tensor& tensor, visitproc visit, void* arg);

}  // namespace grapnel::python
