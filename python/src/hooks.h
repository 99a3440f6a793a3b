/// Python callables as hooks.
#pragma once

#include <Python.h>

#include "grapnel/autograd/node.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::python {

/// For tp_traverse of a tensor that only its object owns: visits the callables of its hooks, and of
/// those of the node that made it where nothing else leads there.
int visit_hooks_of(const Tensor& tensor, visitproc visit, void* arg);
/// For tp_traverse and tp_clear of a node: the callables of its hooks, while it has only one owner.
int visit_hooks_of(const Node& node, visitproc visit, void* arg);
void clear_hooks_of(Node& node);

}  // namespace grapnel::python
