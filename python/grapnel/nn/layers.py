"""The layers of the C++ library as classes, made from its table."""
import inspect

from grapnel import _core
from grapnel.nn.module import Module

_EMPTY = inspect.Parameter.empty


def _signature(text):
    return inspect.signature(eval(f"lambda {text}: None", {}))  # the table's own text


class Layer(Module):
    """A layer that C++ runs. A subclass may have a forward of its own."""

    _layer = None  # its name in the table
    _signature = _signature("")

    def __init__(self, *args, device=None, dtype=None, **kwargs):
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._layer}: {error}; its arguments are ({str(self._signature)[1:-1]})") from None
        bound.apply_defaults()
        arguments = bound.arguments
        if "reduction" in arguments and arguments["reduction"] not in ("none", "mean", "sum", "batchmean"):
            raise ValueError(f"{self._layer}: reduction is 'none', 'mean' or 'sum', got {arguments['reduction']!r}")
        _core._init_layer(self, self._layer, arguments)
        self._made_with(arguments)
        if dtype is not None:
            self.to(dtype)

    def _made_with(self, arguments):
        """What a layer was made with can be read, but belongs to C++: changing it changes nothing."""
        self.__dict__["_arguments"] = arguments
        for name, value in arguments.items():
            if name not in ("args", "kwargs") and not isinstance(value, _core.Tensor) and name != "bias":
                self.__dict__.setdefault(name, _SHAPED[name](self, value) if name in _SHAPED else value)

    def forward(self, *args, **kwargs):
        return _core._call_layer(self, *args, **kwargs)

    def reset_parameters(self):
        """Draws the parameters anew."""
        _core._reset_parameters(self)

    def extra_repr(self):
        return _text(self)

    def _empty_like(self):
        new = type(self).__new__(type(self))
        _core._copy_layer(self, new)
        return new

    def __setstate__(self, state):
        if not hasattr(self, "training"):
            _core._init_layer(self, self._layer, state["_arguments"])
        super().__setstate__(state)


def _sizes(count):
    def each(layer, value):
        count_here = count or (2 if layer._layer.endswith("2d") else 1)
        return tuple(value) if isinstance(value, (tuple, list)) else (value,) * count_here

    return each


def _conv_only(layer, value):
    return value if isinstance(value, str) or not layer._layer.startswith("Conv") else _sizes(None)(layer, value)


def _stride(layer, value):
    return layer.kernel_size if value is None else _conv_only(layer, value)


_SHAPED = {
    "kernel_size": _conv_only, "stride": _stride, "padding": _conv_only, "dilation": _conv_only,
    "normalized_shape": lambda layer, value: tuple(value) if isinstance(value, (tuple, list)) else (value,),
}


def _has(layer, name):
    return getattr(layer, name, None) is not None


def _conv_text(layer):
    text = f"{layer.in_channels}, {layer.out_channels}, kernel_size={layer.kernel_size}, stride={layer.stride}"
    if layer.padding != (0,) * len(layer.kernel_size):
        text += f", padding={layer.padding}"
    if layer.dilation != (1,) * len(layer.kernel_size):
        text += f", dilation={layer.dilation}"
    text += f", groups={layer.groups}" if layer.groups != 1 else ""
    text += ", bias=False" if not _has(layer, "bias") else ""
    return text + (f", padding_mode={layer.padding_mode}" if layer.padding_mode != "zeros" else "")


def _optional(*names):
    """Arguments that are written only when they are not the default."""

    def text(layer):
        signature, parts = layer._signature.parameters, []
        for name, parameter in signature.items():
            value = layer.__dict__.get(name, layer._arguments.get(name))
            if parameter.default is _EMPTY:
                parts.append(str(value))
            elif name in names and value != parameter.default:
                parts.append(f"{name}={value}")
        return ", ".join(parts)

    return text


def _named(*names):
    return lambda layer: ", ".join(f"{name}={getattr(layer, name)!r}" for name in names)


def _nothing(layer):
    return ""


def _inplace(*names):
    def text(layer):
        parts = [f"{name}={getattr(layer, name)}" for name in names]
        return ", ".join(parts + (["inplace=True"] if layer.inplace else []))

    return text


# How each layer is written in repr, in PyTorch's form; those that are missing show all their arguments.
_TEXTS = {
    "Linear": lambda layer: f"in_features={layer.in_features}, out_features={layer.out_features}, bias={_has(layer, 'bias')}",
    "Identity": _nothing, "Conv1d": _conv_text, "Conv2d": _conv_text,
    "Embedding": _optional("padding_idx", "max_norm", "norm_type"),
    "LayerNorm": lambda layer: f"{layer.normalized_shape}, eps={layer.eps}, elementwise_affine={layer.elementwise_affine}",
    "RMSNorm": lambda layer: f"{layer.normalized_shape}, eps={layer.eps}, elementwise_affine={layer.elementwise_affine}",
    "LSTM": _optional("num_layers", "batch_first", "dropout", "bidirectional", "proj_size"),
    "GRU": _optional("num_layers", "batch_first", "dropout", "bidirectional"),
    "RNN": _optional("num_layers", "nonlinearity", "batch_first", "dropout", "bidirectional"),
    "LSTMCell": _optional("bias"), "GRUCell": _optional("bias"), "RNNCell": _optional("bias", "nonlinearity"),
    "MultiheadAttention": _nothing, "TransformerEncoderLayer": _nothing, "TransformerDecoderLayer": _nothing,
    "Tanh": _nothing, "Sigmoid": _nothing, "LogSigmoid": _nothing, "Softsign": _nothing,
    "ReLU": _inplace(), "SiLU": _inplace(), "Mish": _inplace(), "ReLU6": _inplace(), "SELU": _inplace(),
    "LeakyReLU": _inplace("negative_slope"), "ELU": _inplace("alpha"), "Hardtanh": _inplace("min_val", "max_val"),
    "GELU": _named("approximate"), "PReLU": _named("num_parameters"),
    "MaxPool1d": _named("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "MaxPool2d": _named("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "AvgPool1d": _named("kernel_size", "stride", "padding"), "AvgPool2d": _named("kernel_size", "stride", "padding"),
}


def _text(layer):
    name = layer._layer
    if name in _TEXTS:
        return _TEXTS[name](layer)
    if name.endswith("Loss"):
        return ""
    parts = []
    for argument, parameter in layer._signature.parameters.items():
        value = layer._arguments[argument]
        parts.append(str(value) if parameter.default is _EMPTY and name in ("BatchNorm1d", "BatchNorm2d", "GroupNorm") else f"{argument}={value}")
    return ", ".join(parts)


_INPUTS = {}


def _bind_inputs(name, inputs, args, kwargs):
    """Arguments by name in their places."""
    if name not in _INPUTS:
        _INPUTS[name] = _signature(inputs)
    bound = _INPUTS[name].bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args


def _classes():
    out = {"Module": Module}
    for name, arguments, inputs in _core._layers():
        out[name] = type(name, (Layer,), {"_layer": name, "_signature": _signature(arguments), "__module__": "grapnel.nn", "__qualname__": name,
                                          "__doc__": f"{name}({arguments}): the C++ layer; forward({inputs})."})
    return out


CLASSES = _classes()
_core._set_layer_tools(Layer.forward, _bind_inputs, CLASSES)


def _from_pretrained(cls, embeddings, freeze=True, padding_idx=None, max_norm=None, norm_type=2.0):
    """An embedding with a table that exists already."""
    rows, columns = embeddings.shape
    out = cls(rows, columns, padding_idx=padding_idx, max_norm=max_norm, norm_type=norm_type)
    from grapnel.nn.parameter import Parameter

    out.weight = Parameter(embeddings, requires_grad=not freeze)
    return out


CLASSES["Embedding"].from_pretrained = classmethod(_from_pretrained)
