"""Layers as functions, under PyTorch's names."""
from grapnel import _core
from grapnel._core import (  # noqa: F401
    avg_pool2d, binary_cross_entropy_with_logits, conv1d, conv2d, cross_entropy, elu, gelu, l1_loss, layer_norm, linear, log_sigmoid, max_pool2d, mse_loss, nll_loss,
    one_hot, scaled_dot_product_attention, sigmoid, silu, softplus, tanh)
from grapnel.nn.layers import CLASSES as _CLASSES


def _of(name, *args, **kwargs):
    """What a layer without parameters computes; no module is called, so no hook of all modules sees it."""
    return _CLASSES[name](*args, **kwargs).forward


def relu(input, inplace=False):
    """max(x, 0)"""
    return input.relu_() if inplace else _core.relu(input)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    """x where it is positive, negative_slope * x elsewhere."""
    return _core.leaky_relu(input, negative_slope)


def dropout(input, p=0.5, training=True, inplace=False):
    """Zeroes each element with probability p and scales the others up."""
    return _core.dropout(input, p, training)


def softmax(input, dim, dtype=None):
    """exp(x) divided by its sum along `dim`."""
    return _core.softmax(input if dtype is None else input.to(dtype), dim)


def log_softmax(input, dim, dtype=None):
    """The logarithm of softmax."""
    return _core.log_softmax(input if dtype is None else input.to(dtype), dim)


logsigmoid = log_sigmoid


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """x limited to [min_val, max_val]; its gradient is 0 at the bounds, too."""
    return _core.where((input <= min_val) | (input >= max_val), input.detach().clamp(min_val, max_val), input)


def relu6(input, inplace=False):
    """x limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0)


def mish(input, inplace=False):
    """x * tanh(softplus(x))"""
    return input * _core.softplus(input).tanh()


def softsign(input):
    """x / (1 + |x|)"""
    return input / (1 + input.abs())


def glu(input, dim=-1):
    """The first half along a dimension times the sigmoid of the second."""
    a, b = input.chunk(2, dim)
    return a * b.sigmoid()


def embedding(input, weight, padding_idx=None):
    """Row i of `weight` for every number i of the input."""
    return _core.embedding(weight, input, -1 if padding_idx is None else padding_idx % weight.shape[0])


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    """The largest element of each window."""
    return _of("MaxPool1d", kernel_size, stride, padding, dilation, ceil_mode=ceil_mode)(input)


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The mean of each window."""
    return _of("AvgPool1d", kernel_size, stride, padding, ceil_mode, count_include_pad)(input)


def adaptive_avg_pool2d(input, output_size):
    """Means of as many windows as the output has elements; None keeps a size."""
    return _of("AdaptiveAvgPool2d", output_size)(input)


def adaptive_max_pool2d(input, output_size):
    """The largest elements of as many windows as the output has elements."""
    return _of("AdaptiveMaxPool2d", output_size)(input)


def smooth_l1_loss(input, target, reduction="mean", beta=1.0):
    """Squared below beta, linear above."""
    return _of("SmoothL1Loss", reduction=reduction, beta=beta)(input, target)


def huber_loss(input, target, reduction="mean", delta=1.0):
    """smooth_l1_loss times delta."""
    return _of("HuberLoss", reduction=reduction, delta=delta)(input, target)


def kl_div(input, target, reduction="mean", log_target=False):
    """target * (log(target) - input), where the input is a logarithm."""
    return _of("KLDivLoss", reduction=reduction, log_target=log_target)(input, target)


def normalize(input, p=2.0, dim=1, eps=1e-12):
    """x divided by its norm along `dim`."""
    return input / input.norm(p, dim, True).clamp(min=eps)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between x1 and x2 along `dim`."""
    return (x1 * x2).sum(dim) / (x1.norm(2, dim) * x2.norm(2, dim)).clamp(min=eps)
