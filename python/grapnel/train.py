"""What a training program needs around its steps: checkpoints, mixed precision, and logs."""
import json
import os
import random
import weakref

from grapnel import _core
from grapnel._core import Tensor
from grapnel._core._train import default_generator  # noqa: F401
from grapnel._modes import _Mode
from grapnel.hooks import JsonLinesWriter, TensorBoardWriter  # noqa: F401
from grapnel.nn.module import Module
from grapnel.nn.utils import clip_grad_norm_, clip_grad_value_  # noqa: F401
from grapnel.optim.optimizer import Optimizer

# --- checkpoints ---


class Checkpoint:
    """Everything a run needs to go on as if it had never stopped, in one file that is always whole.

    Parts are modules, optimisers, schedules, generators, tensors, dicts, and whatever has state_dict() and load_state_dict(). Saving is atomic, and
    loading is all or nothing. The file is safetensors; C++'s Checkpoint reads modules, optimisers, schedules and generators from it.
    """

    def __init__(self):
        self._impl = _core._train._Checkpoint()
        self._parts, self._names = [], []

    def __repr__(self):
        return f"Checkpoint({', '.join(self._names)})"

    def add(self, name, part):
        """Names a part; returns the checkpoint."""
        if isinstance(part, Module):
            self._impl.add_module(name, part)
            more = {path: m for path, m in part.named_modules() if type(m).get_extra_state is not Module.get_extra_state}
            if more:
                self._add(f"{name}_extra_state", _State(lambda: {path: m.get_extra_state() for path, m in more.items()},
                                                        lambda state: [more[path].set_extra_state(value) for path, value in state.items()]))
        elif isinstance(part, Optimizer) and part._kind == "native":
            self._impl.add_optimizer(name, part)
        else:
            self._add(name, _state_of(part))
        self._parts.append(part)
        self._names.append(name)
        return self

    def _add(self, name, state):
        self._impl.add_part(name, weakref.ref(state))
        self._parts.append(state)

    def save(self, path):
        self._impl.save(os.fspath(path))

    def load(self, path):
        """If a part does not fit, none is changed."""
        self._impl.load(os.fspath(path))

    def resume(self, path):
        """Loads if the file exists; otherwise does nothing and returns False."""
        return self._impl.resume(os.fspath(path))


class _State:
    """What C++ asks for the state of a part of Python's, and gives it back to."""

    def __init__(self, get, put):
        self._get, self._put = get, put

    def save(self):
        return _flat(self._get())

    def load(self, flat):
        self._put(_nested(flat))


def _state_of(part):
    if isinstance(part, Tensor):
        return _State(lambda: {"value": part.detach()}, lambda state: _copy_into(part, state["value"]))
    if isinstance(part, _core.Generator):
        return _State(lambda: {"state": part.get_state()}, lambda state: part.set_state(state["state"]))
    if isinstance(part, random.Random):
        return _State(lambda: {"state": part.getstate()}, lambda state: part.setstate(state["state"]))
    if isinstance(part, GradScaler):
        return _State(part._impl.save, part._impl.load)
    if hasattr(part, "state_dict") and hasattr(part, "load_state_dict"):
        return _State(part.state_dict, part.load_state_dict)
    if isinstance(part, dict):
        return _State(lambda: part, lambda state: (part.clear(), part.update(state)))
    raise TypeError(f"Checkpoint: an object of type '{type(part).__name__}' has no state_dict() and load_state_dict(); numbers go into a dict: "
                    "progress = {'step': 0}")


def _copy_into(tensor, saved):
    if saved.shape != tensor.shape or saved.dtype != tensor.dtype:
        raise ValueError(f"the saved tensor is {saved.dtype} {tuple(saved.shape)}, this one is {tensor.dtype} {tuple(tensor.shape)}.")
    tensor.detach().copy_(saved)


_STRUCTURE = "__structure__"


def _flat(state):
    """Tensors, numbers and texts by name. What is nested deeper, or holds other things, has its structure beside its tensors as JSON."""
    if all(isinstance(k, str) and isinstance(v, (Tensor, bool, int, float, str)) for k, v in state.items()):
        return dict(state)
    tensors = {}

    def written(value):
        if isinstance(value, Tensor):
            name = f"tensor{len(tensors)}"
            tensors[name] = value.detach()
            return {"t": name}
        if isinstance(value, dict) or hasattr(value, "items"):
            return {"d": [[written(k), written(v)] for k, v in value.items()]}
        if isinstance(value, (list, tuple)):
            return {"l" if isinstance(value, list) else "u": [written(v) for v in value]}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(f"Checkpoint: an object of type '{type(value).__name__}' cannot be saved; tensors, numbers, strings, lists, tuples and dicts can.")

    text = json.dumps(written(state))
    return {**tensors, _STRUCTURE: text}


def _nested(flat):
    if _STRUCTURE not in flat:
        return flat

    def read(value):
        if not isinstance(value, dict):
            return value
        (kind, inside), = value.items()
        if kind == "t":
            return flat[inside]
        if kind == "d":
            return {read(k): read(v) for k, v in inside}
        return [read(v) for v in inside] if kind == "l" else tuple(read(v) for v in inside)

    return read(json.loads(flat[_STRUCTURE]))


# --- mixed precision ---


class autocast(_Mode):
    """Inside, products and convolutions of float32 tensors compute in a narrower type. Also a decorator."""

    def __init__(self, device_type="cpu", dtype=None, enabled=True, cache_enabled=None):
        _core.device(device_type)  # one that is not there is an error
        self.dtype = _core.dtype.float32 if not enabled else _core.dtype.bfloat16 if dtype is None else dtype
        self._before = []

    def _again(self):
        return autocast(dtype=self.dtype)

    def __enter__(self):
        before = _core._train._autocast()
        _core._train._set_autocast(self.dtype)
        self._before.append(before)
        return self

    def __exit__(self, *error):
        _core._train._set_autocast(self._before.pop())


class GradScaler:
    """Keeps small gradients of float16 from vanishing by scaling the loss, and takes no step when they overflow."""

    def __init__(self, device="cpu", init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        _core.device(device)
        self._options = dict(growth_factor=growth_factor, backoff_factor=backoff_factor, growth_interval=growth_interval)
        self._impl = _core._train._GradScaler(init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._enabled = enabled

    def scale(self, outputs):
        """The loss, or losses, times the scale."""
        if isinstance(outputs, Tensor):
            return self._impl.scale(outputs)
        return type(outputs)(self.scale(x) for x in outputs)

    def unscale_(self, optimizer):
        """Divides the gradients by the scale, in place; before they are clipped or looked at."""
        self._impl.unscale_(optimizer)

    def step(self, optimizer):
        """Steps unless a gradient was infinite or NaN. The result is true if the step was taken."""
        return self._impl.step(optimizer)

    def update(self):
        """Adapts the scale; once per iteration, after the last step."""
        self._impl.update()

    def get_scale(self):
        return self._impl.get_scale()

    def is_enabled(self):
        return self._enabled

    def __repr__(self):
        return f"GradScaler(scale={self.get_scale()}, enabled={self._enabled})"

    def state_dict(self):
        """In PyTorch's layout."""
        if not self._enabled:
            return {}
        state = self._impl.save()
        return {"scale": state["scale"], **self._options, "_growth_tracker": state["good_steps"]}

    def load_state_dict(self, state_dict):
        if self._enabled:
            self._impl.load({"scale": float(state_dict["scale"]), "good_steps": int(state_dict["_growth_tracker"])})


# --- logs ---


class SummaryWriter:
    """TensorBoard's event file under PyTorch's names. GradientLogger takes one, too."""

    def __init__(self, log_dir):
        self._writer = TensorBoardWriter(log_dir)

    log_dir = property(lambda self: os.path.dirname(self._writer.path))

    def add_scalar(self, tag, scalar_value, global_step=0):
        value = scalar_value.item() if hasattr(scalar_value, "item") else scalar_value
        self._writer.scalar(tag, int(global_step), float(value))

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=0):
        for tag, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{tag}", value, global_step)

    def add_histogram(self, tag, values, global_step=0, bins=30):
        """The distribution of a tensor's elements, in `bins` intervals of equal length."""
        self._writer.histogram(tag, int(global_step), histogram_of(values, bins))

    def scalar(self, tag, step, value):
        self._writer.scalar(tag, step, value)

    def histogram(self, tag, step, values):
        self._writer.histogram(tag, step, values)

    def flush(self):
        self._writer.flush()

    close = flush

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.flush()


def histogram_of(values, bins=30):
    """What the writers take: counts of the finite elements in intervals of equal length."""
    values = values.detach().to(_core.dtype.float64).flatten()
    values = values[values.isfinite()]
    if values.numel() == 0:
        return _core._hooks.LoggedHistogram(0, 0, 0, 0, 0, [0.0], [0.0])
    low, high = values.min().item(), values.max().item()
    width = (high - low) / bins or 1.0
    slots = ((values - low) / width).to(_core.dtype.int64).clamp(0, bins - 1)
    counts = _core.zeros(bins, dtype=_core.dtype.float64).index_add(0, slots, _core.ones_like(values))
    limits = [low + width * (i + 1) for i in range(bins)]
    return _core._hooks.LoggedHistogram(low, high, values.numel(), values.sum().item(), (values * values).sum().item(), limits, counts.tolist())
