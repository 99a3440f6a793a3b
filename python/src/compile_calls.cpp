// Functions that a graph calls: invoke, and the branches of cond.
#include "grapnel/compile/cond.h"
#include "python/src/callable.h"

namespace grapnel::python {

namespace {

constexpr const char* kReturns = "it returns a tensor, or a tuple of tensors.";

/// A function of several tensors that returns one, or a tuple.
invoke_detail::Body function_of(const nb::object& f, const char* kind) {
  return [f = Callable(f), kind](const variable_list& tensors) {
    return in_python([&]() -> variable_list {
      const nb::object list = nb::steal(as_tuple(tensors));
      const nb::object out =
          nb::steal(list.is_valid() ? PyObject_CallObject(f.function.get(), list.ptr()) : nullptr);
      if (!out.is_valid()) throw_python();
      return out.is_none() ? variable_list() : list_from(out.ptr(), kind, f.name, kReturns);
    });
  };
}

}  // namespace

void bind_calls(nb::module_& m) {
  m.def("_invoke", [](nb::object f, const Tensors& tensors, bool opaque) {
    const LetGo afterwards;
    check(!tensors.values.empty(),
          "invoke: give it at least one tensor; the result looks like it.");
    using invoke_detail::Kind;
    const Tensor out = [&] {
      const invoke_detail::Body body = function_of(f, "invoked function");
      const WithoutInterpreter others_run;
      return invoke_detail::call(opaque ? Kind::opaque : Kind::traced, body, tensors.values, 1)[0];
    }();
    // What returns nothing leaves its first argument as it is.
    return out.defined() ? out : tensors.values[0];
  });
  m.def("_cond", [](const Tensor& pred, nb::object first, nb::object second,
                    const Tensors& operands) {
    const LetGo afterwards;
    variable_list out;
    {
      compiler::Branch yes = function_of(first, "branch"), no = function_of(second, "branch");
      const WithoutInterpreter others_run;
      out = compiler::cond(pred, std::move(yes), std::move(no), operands.values);
    }
    return result(out);
  });
}

}  // namespace grapnel::python
