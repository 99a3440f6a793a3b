/// What torch::nn declares of Grapnel's modules: names one by one, so that a program which says
/// `using namespace torch::nn;` finds torch::nn::functional and no other beside it.
#pragma once

#include "grapnel/compat/at.h"

// clang-format off
// X(Name): the holder, NameImpl and NameOptions.
#define GRAPNEL_COMPAT_MODULES_WITH_OPTIONS(X)                                                      \
  X(Linear) X(Flatten) X(Embedding) X(Conv1d) X(Conv2d) X(ConvTranspose1d) X(ConvTranspose2d)       \
  X(BatchNorm1d) X(BatchNorm2d) X(BatchNorm3d) X(InstanceNorm1d) X(InstanceNorm2d)                  \
  X(InstanceNorm3d) X(LayerNorm) X(GroupNorm) X(RMSNorm) X(MaxPool1d) X(MaxPool2d) X(AvgPool1d)     \
  X(AvgPool2d) X(AdaptiveAvgPool1d) X(AdaptiveAvgPool2d) X(AdaptiveMaxPool1d) X(AdaptiveMaxPool2d)  \
  X(ReLU) X(ReLU6) X(SELU) X(LeakyReLU) X(ELU) X(CELU) X(RReLU) X(Threshold) X(Hardshrink)          \
  X(Softshrink) X(Softplus) X(Hardtanh) X(GELU) X(PReLU) X(GLU) X(Softmax) X(LogSoftmax)            \
  X(Dropout) X(Dropout2d) X(Dropout3d) X(AlphaDropout) X(FeatureAlphaDropout) X(MSELoss) X(L1Loss)  \
  X(NLLLoss) X(CrossEntropyLoss) X(BCELoss) X(BCEWithLogitsLoss) X(SmoothL1Loss) X(HuberLoss)       \
  X(KLDivLoss) X(LSTM) X(GRU) X(RNN) X(LSTMCell) X(GRUCell) X(RNNCell) X(MultiheadAttention)        \
  X(TransformerEncoderLayer)                                                                        \
  X(TransformerDecoderLayer) X(ReflectionPad1d) X(ReflectionPad2d) X(ReflectionPad3d)               \
  X(ReplicationPad1d) X(ReplicationPad2d) X(ReplicationPad3d) X(ZeroPad1d) X(ZeroPad2d)             \
  X(ZeroPad3d) X(ConstantPad1d) X(ConstantPad2d) X(ConstantPad3d) X(Upsample) X(PixelShuffle)       \
  X(PixelUnshuffle) X(CosineSimilarity) X(PairwiseDistance)
// X(Name): the holder and NameImpl.
#define GRAPNEL_COMPAT_MODULES(X)                                                                \
  X(Identity) X(Tanh) X(Sigmoid) X(SiLU) X(Mish) X(LogSigmoid) X(Softsign) X(Tanhshrink)         \
  X(Softmin) X(Softmax2d) X(Functional) X(Sequential) X(ModuleList) X(ModuleDict)                \
  X(ParameterList) X(ParameterDict)
// X(name): what modules are made of, and their hooks.
#define GRAPNEL_COMPAT_NN_NAMES(X)                                                               \
  X(Module) X(ModuleHolder) X(Cloneable) X(AnyModule) X(NamedAnyModule) X(call)                  \
  X(EmbeddingFromPretrainedOptions) X(Args) X(Kwargs) X(Value) X(StateDict) X(hooks_of)          \
  X(register_module_parameter_registration_hook) X(register_module_buffer_registration_hook)     \
  X(register_module_module_registration_hook)
// clang-format on

namespace torch::nn {

using grapnel::Reduce;
using grapnel::Tensor;

#define GRAPNEL_COMPAT_USING_NN(name) using ::grapnel::nn::name;
#define GRAPNEL_COMPAT_USING_MODULE(Name) \
  using ::grapnel::nn::Name;              \
  using ::grapnel::nn::Name##Impl;
#define GRAPNEL_COMPAT_USING_OPTIONS(Name) \
  GRAPNEL_COMPAT_USING_MODULE(Name)        \
  using ::grapnel::nn::Name##Options;
GRAPNEL_COMPAT_MODULES_WITH_OPTIONS(GRAPNEL_COMPAT_USING_OPTIONS)
GRAPNEL_COMPAT_MODULES(GRAPNEL_COMPAT_USING_MODULE)
GRAPNEL_COMPAT_NN_NAMES(GRAPNEL_COMPAT_USING_NN)
#undef GRAPNEL_COMPAT_USING_OPTIONS
#undef GRAPNEL_COMPAT_USING_MODULE
#undef GRAPNEL_COMPAT_USING_NN
using SoftminOptions = SoftmaxOptions;

namespace init = ::grapnel::nn::init;

}  // namespace torch::nn
