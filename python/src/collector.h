/// What Python's collector of cycles sees of the library.
///
/// Note [Cycles through the graph]
/// A hook on y, or on the node of y, may capture y: the object of y owns the tensor, that its node, that the hook, and that the object
/// of y again. Python sees the first and the last of these steps. What lies between is C++, where one thing may have many owners, of
/// which Python knows some: the objects of tensors and nodes.
///
/// In a full collection this file looks at everything that can be reached from those objects, and counts for each thing how many of its
/// owners it has met. A thing with more owners is used by somebody else, a running pass or a vector of the program's, and so is all that
/// it leads to: nothing of that is shown to the collector, which then takes it for used. What remains belongs to objects of Python's alone.
/// Of such things, those that hang together are one island. The collector first subtracts the references that it finds from the
/// counts of their targets: the references out of an island are shown once, when it has come to the last of the objects that own the
/// island. Later it follows references from what is in use: then every object shows all that lies behind it, and what is in use by one
/// of several owners stays.
///
/// Smaller collections look at leaves' own hooks only, and none looks further while a thread is inside of the library without the
/// interpreter's lock, as in a backward pass: what it does there changes the things that are counted.
#pragma once

#include <Python.h>

namespace grapnel::python {

struct PyTensor;
struct PyNode;

/// An object's place in the list of its kind. Lists are changed with the interpreter's lock only.
struct Enlisted {
  Enlisted *before, *after;  ///< null for an object that is in no list
};
void enlist_tensor(PyTensor* object);
void enlist_node(PyNode* object);
inline void strike_off(Enlisted& link) {
  if (!link.after) return;
  link.before->after = link.after;
  link.after->before = link.before;
  link = {};
}

/// For tp_traverse: what the tensor or node of an object keeps alive.
int visit_behind(const PyTensor* object, visitproc visit, void* arg);
int visit_behind(const PyNode* object, visitproc visit, void* arg);

}  // namespace grapnel::python
