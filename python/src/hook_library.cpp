// grapnel._core._hooks: the hooks of grapnel/hooks that change gradients, and those around saved
// tensors. The others are in hook_tools.cpp.
#include "grapnel/autograd/saved_variable.h"
#include "grapnel/hooks/gradient.h"
#include "grapnel/hooks/saved.h"
#include "python/src/callable.h"

namespace grapnel::python {

namespace {

/// Any of them, and what they are chained to.
struct GradientHook {
  std::function<Tensor(const Tensor&)> change;
  std::string text;
  Tensor operator()(const Tensor& grad) const { return change(grad); }
  std::string name() const { return text; }
};

template <class H>
struct Of : GradientHook {
  explicit Of(H hook) : GradientHook{hook, hook.name()} {}
};

template <class H, class... Args, class... Extra>
void add(nb::module_& m, const char* name, const char* says, const Extra&... extra) {
  nb::class_<Of<H>, GradientHook>(m, name, says)
      .def(
          "__init__", [](Of<H>* self, Args... args) { new (self) Of<H>(H{std::move(args)...}); },
          extra...);
}

void bind_gradient_hooks(nb::module_& m) {
  nb::class_<GradientHook>(m, "GradientHook", "A hook that changes a gradient, and knows its name.")
      .def(
          "__call__",
          [](const GradientHook& hook, const Tensor& grad) {
            return run(work(grad), [&] { return hook(grad); });
          },
          "grad"_a)
      .def_prop_ro("name", &GradientHook::name)
      .def("__repr__", [](const GradientHook& hook) { return "<hook '" + hook.text + "'>"; })
      .def("_then", [](const GradientHook& first, const GradientHook& second) {
        using hooks::operator|;
        const auto both = first | second;
        return GradientHook{both, both.name()};
      });
  add<hooks::ClipValue, double>(m, "ClipValue", "Clamps every element to [-limit, limit].",
                                "limit"_a);
  add<hooks::ClipNorm, double, double>(m, "ClipNorm",
                                       "Scales the gradient so that its norm is at most max_norm.",
                                       "max_norm"_a, "norm_type"_a = 2.0);
  add<hooks::Scale, double>(m, "Scale", "Multiplies gradients by a factor.", "factor"_a);
  add<hooks::Noise, double, std::optional<Generator>>(
      m, "Noise",
      "Adds normal noise of the given deviation, from the default generator unless told otherwise.",
      "std"_a, "generator"_a = nb::none());
  add<hooks::Mask, Tensor>(
      m, "Mask",
      "Lets a gradient through where `mask` is true, or weighs it, if the mask holds numbers.",
      "mask"_a);
  add<hooks::Freeze>(m, "Freeze",
                     "No gradient at all: the parameter stays, though optimisers still see it.");
  add<hooks::Reverse, double>(m, "Reverse", "Turns the gradient round.", "factor"_a = 1.0);
  m.def("_attach", [](const Tensor& t, nb::handle hook) {
    const HookOptions options = options_for(hook, "");
    return hooks::attach(t, nb::cast<GradientHook>(hook), options.site);
  });
}

struct SavedScope {
  SavedTensorHooks scope;
  explicit SavedScope(const hooks::SavedHook& hook) : scope(hook.pack, hook.unpack) {}
};

void bind_saved_hooks(nb::module_& m) {
  nb::class_<hooks::SavedHook>(m, "_SavedHook");
  nb::class_<SavedScope>(m, "_SavedScope").def(nb::init<const hooks::SavedHook&>());
  m.def(
      "_compress",
      [](DTypeArg dtype, const hooks::SavedHook* next, int64_t min_bytes) {
        return hooks::compress(dtype.value, next ? *next : hooks::SavedHook(), {min_bytes});
      },
      "dtype"_a, "next"_a.none(), "min_bytes"_a);
  m.def("_deflate", [](int64_t min_bytes) { return hooks::deflate({min_bytes}); });
  m.def("_save_to_disk", [](const std::string& folder, int64_t min_bytes) {
    return hooks::save_to_disk(folder, {min_bytes});
  });
}

}  // namespace

void bind_hook_library(nb::module_& m) {
  nb::module_ hooks = m.def_submodule("_hooks");
  bind_gradient_hooks(hooks);
  bind_saved_hooks(hooks);
  bind_hook_tools(hooks);
}

}  // namespace grapnel::python
