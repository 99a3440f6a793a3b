/// Optimisers as Python has them. Start at grapnel/optim/__init__.py, whose objects own these.
#pragma once

#include <memory>
#include <vector>

#include "grapnel/optim/optimizer.h"
#include "python/src/bind.h"

namespace grapnel::python {

/// A C++ optimiser, and the objects of its parameters: see Note [Who holds tensors and modules].
struct PyOptimizer {
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<PyObject*> kept;
  bool waits = false;         ///< LBFGS, until it gets its parameters
  PyObject* owner = nullptr;  ///< a weak reference to the object of grapnel.optim

  PyOptimizer() = default;
  PyOptimizer(const PyOptimizer&) = delete;
  PyOptimizer& operator=(const PyOptimizer&) = delete;
  ~PyOptimizer();
  /// Keeps the objects of the parameters that there are now.
  void keep();
  void let_go();
};

/// The object of grapnel.optim that owns an optimiser; None for one of C++ code.
nb::object wrap_optimizer(optim::Optimizer& optimizer);
/// The optimiser behind an object of grapnel.optim.
PyOptimizer& optimizer_of(nb::handle object);

}  // namespace grapnel::python
