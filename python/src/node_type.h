/// The Python type of nodes of the backward graph.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include "grapnel/autograd/node.h"
#include "python/src/collector.h"

namespace grapnel::python {

struct PyNode {
  PyObject_HEAD PyObject* dict;
  PyObject* weak_references;
  Enlisted enlisted;
  NodePtr node;  ///< null for what the collector has cleared
};

/// A new reference to the object of a node, the same one as long as that lives: the node's `wrapper`, which is read and written with the
/// interpreter's lock only. None for a null node.
PyObject* wrap_node(const NodePtr& node);
/// The node behind an object, never null; a TypeError for anything else.
const NodePtr& node_of(nanobind::handle object);
PyTypeObject* node_type();

/// Adds a method to the type of nodes.
template <class F, class... Extra>
void on_node(const char* name, F&& f, const Extra&... extra) {
  nanobind::cpp_function_def(std::forward<F>(f),
                             nanobind::scope(reinterpret_cast<PyObject*>(node_type())),
                             nanobind::name(name), nanobind::is_method(), extra...);
}

}  // namespace grapnel::python
