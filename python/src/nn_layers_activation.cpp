// Activations, Softmax and Dropout: one entry each.
#include "grapnel/nn/activation.h"
#include "python/src/nn_layers.h"

namespace grapnel::python {

void add_activations(std::vector<Layer>& out) {
  using namespace nn;
  using A = const Arguments&;
  using Made = std::unique_ptr<Module>;
#define GRAPNEL_LAYER(Name, arguments, ...) \
  out.push_back(layer<Name##Impl>(          \
      #Name, arguments, [](A a) -> Made { return std::make_unique<Name##Impl>(__VA_ARGS__); }))
#define GRAPNEL_PLAIN(Name, arguments) \
  out.push_back(layer<Name##Impl>(     \
      #Name, arguments, [](A) -> Made { return std::make_unique<Name##Impl>(); }))
  GRAPNEL_PLAIN(Tanh, "");
  GRAPNEL_PLAIN(Sigmoid, "");
  GRAPNEL_PLAIN(SiLU, "inplace=False");
  GRAPNEL_PLAIN(Mish, "inplace=False");
  GRAPNEL_PLAIN(LogSigmoid, "");
  GRAPNEL_PLAIN(Softsign, "");
  GRAPNEL_PLAIN(ReLU6, "inplace=False");
  GRAPNEL_PLAIN(SELU, "inplace=False");
  GRAPNEL_LAYER(ReLU, "inplace=False", ReLUOptions(a.flag("inplace")));
  GRAPNEL_LAYER(LeakyReLU, "negative_slope=0.01, inplace=False",
                LeakyReLUOptions().negative_slope(a.number("negative_slope")));
  GRAPNEL_LAYER(ELU, "alpha=1.0, inplace=False", ELUOptions().alpha(a.number("alpha")));
  GRAPNEL_LAYER(Softplus, "beta=1.0, threshold=20.0",
                SoftplusOptions().beta(a.number("beta")).threshold(a.number("threshold")));
  GRAPNEL_LAYER(Hardtanh, "min_val=-1.0, max_val=1.0, inplace=False",
                HardtanhOptions().min_val(a.number("min_val")).max_val(a.number("max_val")));
  GRAPNEL_LAYER(GELU, "approximate='none'", GELUOptions().approximate(a.text("approximate")));
  GRAPNEL_LAYER(PReLU, "num_parameters=1, init=0.25",
                PReLUOptions().num_parameters(a.integer("num_parameters")).init(a.number("init")));
  out.back().tensors = {tensor_in<PReLUImpl, &PReLUImpl::weight>("weight")};
  GRAPNEL_LAYER(GLU, "dim=-1", GLUOptions(a.integer("dim")));
  GRAPNEL_LAYER(Softmax, "dim", SoftmaxOptions(a.integer("dim")));
  GRAPNEL_LAYER(LogSoftmax, "dim", SoftmaxOptions(a.integer("dim")));
  GRAPNEL_LAYER(Dropout, "p=0.5, inplace=False", DropoutOptions(a.number("p")));
  out.back().describe = [](const Module& m, nb::dict& d) {
    d["p"] = static_cast<const DropoutImpl&>(m).options.p();
    d["inplace"] = false;
  };
#undef GRAPNEL_LAYER
#undef GRAPNEL_PLAIN
}

}  // namespace grapnel::python
