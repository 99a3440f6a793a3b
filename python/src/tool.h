/// What is on for as long as it lives, such as a guard: Python removes it when it wants to.
#pragma once

#include <memory>

#include "python/src/bind.h"

namespace grapnel::python {

template <class T>
class Tool {
 public:
  template <class... Args>
  explicit Tool(const char* name, Args&&... args)
      : name_(name), tool_(std::make_unique<T>(std::forward<Args>(args)...)) {}
  T* operator->() const {
    check(tool_ != nullptr, name_, ": it was removed.");
    return tool_.get();
  }
  void remove() {
    const LetGo afterwards;
    tool_.reset();
  }

 private:
  const char* name_;
  std::unique_ptr<T> tool_;
};

template <class Class>
void bind_removal(Class& type) {
  using T = typename Class::Type;
  type.def("remove", &T::remove, "Ends it, with its hooks; twice is silent.")
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](T& self, const nb::args&) { self.remove(); });
}

}  // namespace grapnel::python
