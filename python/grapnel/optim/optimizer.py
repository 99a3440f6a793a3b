"""Optimizer: the C++ one, with groups of parameters that read like dicts."""
import collections
import copy
import functools
import weakref

from grapnel import _core
from grapnel._core import Tensor


class _Tokens:
    """Hooks that the library knows by a token. The callables are here, where the collector sees them, and go with their tokens."""

    class Token:
        __slots__ = ("__weakref__",)

    def __init__(self):
        self.hooks = weakref.WeakKeyDictionary()

    def add(self, hook):
        if not callable(hook):
            raise TypeError(f"a hook is a callable, got {type(hook).__name__}")
        token = self.Token()
        self.hooks[token] = hook
        return token


def _find_in(tokens):
    seen = weakref.ref(tokens)

    def find(token):
        alive = seen()
        return None if alive is None else alive.hooks.get(token)

    return find


class _Handle:
    """Names a hook in a list of Python's."""

    def __init__(self, hooks, key):
        self.hooks, self.key = weakref.ref(hooks), key

    def remove(self):
        hooks = self.hooks()
        if hooks is not None:
            hooks.pop(self.key, None)


class _Hooks(collections.OrderedDict):
    """Hooks on saving and loading, in order."""

    def add(self, hook, prepend):
        key = object()
        self[key] = hook
        if prepend:
            self.move_to_end(key, last=False)
        return _Handle(self, key)

    def __call__(self, *args):
        for hook in list(self.values()):
            changed = hook(*args)
            if changed is not None and len(args) > 1:
                args = args[:1] + (changed,)
        return args[-1]


class ParamGroup(collections.abc.MutableMapping):
    """The options of a group and its parameters, as C++ has them. Names that C++ does not know are kept beside them."""

    def __init__(self, optimizer, index):
        self._optimizer = weakref.ref(optimizer)
        self._index = index
        self._more = {}

    @property
    def _impl(self):
        return self._optimizer()._impl

    def _options(self):
        return _with_betas(self._impl.options(self._index))

    def __getitem__(self, key):
        if key == "params":
            return self._impl.params(self._index)
        options = self._options()
        return options[key] if key in options else self._more[key]

    def __setitem__(self, key, value):
        if key == "params":
            self._impl.set_params(self._index, list(value))
        elif key in self._options():
            self._impl.set_options(self._index, _without_betas({key: value}))
        else:
            self._more[key] = value

    def __delitem__(self, key):
        del self._more[key]

    def __iter__(self):
        yield "params"
        yield from self._options()
        yield from self._more

    def __len__(self):
        return 1 + len(self._options()) + len(self._more)

    def __repr__(self):
        return repr(dict(self))

    def copy(self):
        return dict(self)


def _with_betas(options):
    if "beta1" in options:
        out = {}
        for name, value in options.items():
            if name == "beta1":
                out["betas"] = (value, options["beta2"])
            elif name != "beta2":
                out[name] = value
        return out
    return options


def _without_betas(options):
    if "betas" in options:
        options = dict(options)
        options["beta1"], options["beta2"] = options.pop("betas")
    return {name: value.item() if isinstance(value, Tensor) else value for name, value in options.items() if value is not None}


def _groups_of(params):
    if isinstance(params, Tensor):
        raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor")
    groups = list(params)
    if not groups:
        raise ValueError("optimizer got an empty parameter list")
    if isinstance(groups[0], tuple):  # named_parameters()
        groups = [p for _, p in groups]
    return groups if isinstance(groups[0], dict) else [{"params": groups}]


class Optimizer:
    """Base of optimisers. One that is written in Python has a step(closure) of its own, and keeps what it remembers in self.state."""

    _kind = "python"

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("step")
        if own is not None and cls._kind == "python":

            @functools.wraps(own)
            def step(self, closure=None):
                if self._inside:
                    return own(self, closure)
                self._step_of_class = own
                return self._impl.step(closure)

            cls.step = step

    def __init__(self, params, defaults):
        self.defaults = dict(defaults)
        self._inside = False
        self._tokens = _Tokens()
        self._save_pre, self._save_post, self._load_pre, self._load_post = _Hooks(), _Hooks(), _Hooks(), _Hooks()
        self.param_groups = []
        self._make()
        for group in _groups_of(params):
            self.add_param_group(group)

    def _make(self):
        self.state = collections.defaultdict(dict)
        weak = weakref.ref(self)
        self._find_group = lambda number: weak().defaults if number < 0 else weak().param_groups[number]
        self._impl = _core._Optimizer("python", self._find_group, weakref.WeakMethod(self._run), weak)

    def _run(self, closure):
        self._inside = True
        try:
            return self._step_of_class(self, closure)
        finally:
            self._inside = False

    def add_param_group(self, param_group):
        """Adds parameters, with options of their own where they are given."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections")
        params = [params] if isinstance(params, Tensor) else list(params)
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
        group["params"] = params
        self._add(group)

    def _add(self, group):
        for name, value in self.defaults.items():
            group.setdefault(name, value)
        self.param_groups.append(group)
        try:
            self._impl.add_group(group["params"], self._find_group, True)
        except BaseException:
            self.param_groups.pop()
            raise

    def step(self, closure=None):
        """Updates every parameter that has a gradient, between the step hooks."""
        raise NotImplementedError("step: an optimiser that is written in Python defines it")

    def zero_grad(self, set_to_none=True):
        self._impl.zero_grad(set_to_none)

    # --- saving ---

    def _numbers(self):
        """Parameters by number, counted through the groups."""
        return {p: i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}

    def state_dict(self):
        """{"state": what is remembered by number of the parameter, "param_groups": options and numbers}, PyTorch's layout."""
        self._save_pre(self)
        out = self._state_dict()
        return self._save_post(self, out)

    def _state_dict(self):
        numbers = self._numbers()
        groups = [{**{k: v for k, v in group.items() if k != "params"}, "params": [numbers[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": {numbers.get(p, p): s for p, s in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Checks everything first; if something does not fit, nothing is changed."""
        state_dict = self._load_pre(self, dict(state_dict))
        self._load_state_dict(state_dict)
        self._load_post(self)

    def _load_state_dict(self, state_dict):
        groups = copy.deepcopy(state_dict["param_groups"])
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError("load_state_dict: the groups have other numbers of parameters")
        params = [p for group in self.param_groups for p in group["params"]]
        numbers = [n for group in groups for n in group["params"]]
        state = collections.defaultdict(dict)
        for number, p in zip(numbers, params):
            if number in state_dict["state"]:
                state[p] = {k: v.to(p.dtype) if isinstance(v, Tensor) and v.is_floating_point() and k != "step" else copy.copy(v)
                            for k, v in state_dict["state"][number].items()}
        for mine, theirs in zip(self.param_groups, groups):
            mine.update({k: v for k, v in theirs.items() if k != "params"})
        self.state = state

    # --- hooks ---

    def _add_step_hook(self, add, hook, prepend=False):
        return add(self, _find_in(self._tokens), self._tokens.add(hook), getattr(hook, "__qualname__", ""), prepend)

    def register_step_pre_hook(self, hook):
        """hook(optimizer, args, kwargs) before a step; may return other (args, kwargs)."""
        return self._add_step_hook(_core._add_step_pre_hook, hook)

    def register_step_post_hook(self, hook):
        """hook(optimizer, args, kwargs) after a step."""
        return self._add_step_hook(_core._add_step_post_hook, hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        return self._save_pre.add(hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """hook(optimizer, state_dict) after saving; may return another."""
        return self._save_post.add(hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """hook(optimizer, state_dict) before loading; may return another."""
        return self._load_pre.add(hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        return self._load_post.add(hook, prepend)

    def __repr__(self):
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += [f"Parameter Group {i}"] + [f"    {name}: {value}" for name, value in sorted(group.items()) if name != "params"]
        return "\n".join(lines + [")"])

    # --- copies ---

    def __getstate__(self):
        # Hooks are not copied.
        return {"defaults": self.defaults, "groups": [dict(group) for group in self.param_groups], "state": self._state_dict()}

    def __setstate__(self, state):
        Optimizer.__init__(self, state["groups"], state["defaults"])
        self._load_state_dict(state["state"])

    def __deepcopy__(self, memo):
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return new


class _State(collections.abc.Mapping):
    """What C++ remembers of each parameter. The tensors are its own."""

    def __init__(self, optimizer):
        self._optimizer = optimizer

    def _all(self):
        state, _ = self._optimizer._impl.state_dict()
        return {p: state[i] for p, i in self._optimizer._numbers().items() if i in state}

    def __getitem__(self, param):
        return self._all().get(param, {})

    def __iter__(self):
        return iter(self._all())

    def __len__(self):
        return len(self._all())

    def __repr__(self):
        return repr(self._all())


class Native(Optimizer):
    """An optimiser of the C++ library."""

    _kind = "native"
    _text = None  # an option that is no number

    def _make(self):
        name = next(c.__name__ for c in type(self).__mro__ if c.__module__ == "grapnel.optim")
        text = self.defaults.get("line_search_fn")
        numbers = _without_betas({k: v for k, v in self.defaults.items() if k != "line_search_fn"})
        self._impl = _core._Optimizer(name, numbers, text, weakref.ref(self))
        if "params" in self.defaults:
            raise KeyError("params")

    @property
    def state(self):
        return _State(self)

    def _add(self, group):
        known = _with_betas(self._impl.defaults())
        for name, value in self.defaults.items():
            group.setdefault(name, value)
        self._impl.add_group(group["params"], _without_betas({k: v for k, v in group.items() if k in known}), False)
        view = ParamGroup(self, len(self.param_groups))
        view._more = {k: v for k, v in group.items() if k not in known and k != "params"}
        self.param_groups.append(view)

    def step(self, closure=None):
        return self._impl.step(closure)

    def step_param(self, param, grad=None):
        """Updates one parameter, without step hooks; for optimisers inside of backward."""
        self._impl.step_param(param, grad)

    def _state_dict(self):
        state, groups = self._impl.state_dict()
        return {"state": state, "param_groups": [{**_with_betas(options), **view._more, "params": params}
                                                 for (options, params), view in zip(groups, self.param_groups)]}

    def _load_state_dict(self, state_dict):
        groups = []
        for group, view in zip(state_dict["param_groups"], self.param_groups):
            known = view._options()
            groups.append((_without_betas({k: v for k, v in group.items() if k in known}), list(group["params"])))
        groups += [({}, list(group["params"])) for group in state_dict["param_groups"][len(groups):]]
        state = {n: {k: v.item() if isinstance(v, Tensor) and k == "step" else v for k, v in one.items()} for n, one in state_dict["state"].items()}
        self._impl.load_state_dict(state, groups)
        for group, view in zip(state_dict["param_groups"], self.param_groups):
            known = view._options()
            view._more.update({k: v for k, v in group.items() if k not in known and k != "params"})


_tokens_of_all = _Tokens()


def register_optimizer_step_pre_hook(hook):
    """A step pre-hook of all optimisers."""
    return _core._add_step_pre_hook(None, _find_in(_tokens_of_all), _tokens_of_all.add(hook), getattr(hook, "__qualname__", ""), False)


def register_optimizer_step_post_hook(hook):
    """A step post-hook of all optimisers."""
    return _core._add_step_post_hook(None, _find_in(_tokens_of_all), _tokens_of_all.add(hook), getattr(hook, "__qualname__", ""), False)
