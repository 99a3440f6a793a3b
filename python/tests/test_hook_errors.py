"""An exception arrives as it was raised, with its type, its text and the frame that raised it, whatever kind of hook or function raises it."""
import pytest

import grapnel as g
from grapnel import nn, optim
from grapnel.autograd import Function, graph
from hook_tools import leaf, raising


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 1)

    def forward(self, x):
        return self.fc(x)


def loss_of(net):
    return net(g.ones(3, 2, requires_grad=True)).sum()


def backward_of(register):
    def run():
        x = leaf(2.0)
        y = x * x
        register(x, y)
        y.backward()

    return run


def module_hook(name, backward=False):
    def run():
        net = Net()
        getattr(net, name)(raising)
        loss = loss_of(net)
        if backward:
            loss.backward()

    return run


def module_hook_of_all(name, backward=False):
    def run():
        with getattr(nn.modules.module, name)(raising):
            loss = loss_of(Net())
            if backward:
                loss.backward()

    return run


def optimizer_hook(name):
    def run():
        net = Net()
        opt = optim.SGD(net.parameters(), lr=0.1)
        getattr(opt, name)(raising)
        loss_of(net).backward()
        opt.step()

    return run


def state_hook(name, load=False):
    def run():
        net = Net()
        getattr(net, name)(raising)
        state = Net().state_dict()
        net.load_state_dict(state) if load else net.state_dict()

    return run


def optimizer_state_hook(name, load=False):
    def run():
        net = Net()
        opt = optim.SGD(net.parameters(), lr=0.1)
        state = opt.state_dict()
        getattr(opt, name)(raising)
        opt.load_state_dict(state) if load else opt.state_dict()

    return run


def pack():
    with graph.saved_tensors_hooks(raising, lambda t: t):
        leaf(2.0).sin()


def unpack():
    with graph.saved_tensors_hooks(lambda t: t, raising):
        y = leaf(2.0).sin()
    y.backward()


def function(**methods):
    def run():
        methods.setdefault("forward", lambda ctx, x: x * 2)
        kind = type("F", (Function,), {name: staticmethod(f) for name, f in methods.items()})
        kind.apply(leaf(2.0)).backward()

    return run


def end_of_pass():
    x = leaf(2.0)
    x.register_hook(lambda grad: g.autograd.queue_callback(raising))
    (x * 2).backward()


def checkpointed():
    g.utils.checkpoint.checkpoint(raising, leaf(2.0), use_reentrant=False)


def opaque_hook():
    x = leaf(2.0)
    x.register_hook(g.opaque(raising))
    (x * 2).backward()


def invoked_in_a_graph():
    g.compile(lambda x: g.invoke(raising, x) + 1)(g.ones(2))


KINDS = {
    "tensor": backward_of(lambda x, y: y.register_hook(raising)),
    "tensor with context": backward_of(lambda x, y: y.register_hook(raising, context=True)),
    "leaf": backward_of(lambda x, y: x.register_hook(raising)),
    "node pre": backward_of(lambda x, y: y.grad_fn.register_prehook(raising)),
    "node post": backward_of(lambda x, y: y.grad_fn.register_hook(raising)),
    "accumulate pre": backward_of(lambda x, y: graph.get_gradient_edge(x).node.register_prehook(raising)),
    "accumulate post": backward_of(lambda x, y: graph.get_gradient_edge(x).node.register_hook(raising)),
    "post accumulate": backward_of(lambda x, y: x.register_post_accumulate_grad_hook(raising)),
    "multi all": backward_of(lambda x, y: graph.register_multi_grad_hook([x, y], raising)),
    "multi any": backward_of(lambda x, y: graph.register_multi_grad_hook([x, y], raising, mode="any")),
    "pack": pack,
    "unpack": unpack,
    "Function.forward": function(forward=raising),
    "Function.backward": function(backward=raising),
    "Function.setup_context": function(forward=lambda x: x * 2, setup_context=raising),
    "end of pass": end_of_pass,
    "checkpoint": checkpointed,
    "opaque": opaque_hook,
    "invoke": invoked_in_a_graph,
    "compiled body": lambda: g.compile(raising)(g.ones(2)),
    "replayed body": lambda: g.compile(raising, replay=True)(g.ones(2)),
    "traced body": lambda: g.trace(raising, g.ones(2)),
    "branch": lambda: g.cond(g.tensor(True), raising, raising, (g.ones(2),)),
    "backend": lambda: g.compile(lambda x: x * 2 + 1, backend=raising, on_failure="error")(g.ones(2)),
    "forward pre": module_hook("register_forward_pre_hook"),
    "forward": module_hook("register_forward_hook"),
    "full backward pre": module_hook("register_full_backward_pre_hook", True),
    "full backward": module_hook("register_full_backward_hook", True),
    "forward pre of all": module_hook_of_all("register_module_forward_pre_hook"),
    "forward of all": module_hook_of_all("register_module_forward_hook"),
    "full backward of all": module_hook_of_all("register_module_full_backward_hook", True),
    "step pre": optimizer_hook("register_step_pre_hook"),
    "step post": optimizer_hook("register_step_post_hook"),
    "state pre": state_hook("register_state_dict_pre_hook"),
    "state post": state_hook("register_state_dict_post_hook"),
    "load pre": state_hook("register_load_state_dict_pre_hook", True),
    "load post": state_hook("register_load_state_dict_post_hook", True),
    "optimizer state pre": optimizer_state_hook("register_state_dict_pre_hook"),
    "optimizer state post": optimizer_state_hook("register_state_dict_post_hook"),
    "optimizer load pre": optimizer_state_hook("register_load_state_dict_pre_hook", True),
    "optimizer load post": optimizer_state_hook("register_load_state_dict_post_hook", True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_type_text_and_traceback(kind):
    with pytest.raises(ZeroDivisionError, match="said by the hook") as caught:
        KINDS[kind]()
    assert caught.traceback[-1].name == "raising"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, StopIteration, MemoryError], ids=lambda e: e.__name__)
def test_exceptions_that_Python_treats_specially(kind, error, monkeypatch):
    monkeypatch.setattr("hook_tools.error", lambda: error("special"))
    with pytest.raises((error, RuntimeError)) as caught:  # a generator on the way makes a RuntimeError of a StopIteration
        KINDS[kind]()
    assert type(caught.value) is error or error is StopIteration


def test_memory_is_not_kept_by_what_was_raised():
    import gc
    import weakref

    class Witness:
        pass

    seen = weakref.ref(witness := Witness())

    def hook(grad, held=witness):
        raise KeyError("x")

    for kind in ("tensor", "node"):
        x = leaf(2.0)
        y = x * x
        (y if kind == "tensor" else y.grad_fn).register_hook(hook) if kind == "tensor" else y.grad_fn.register_prehook(hook)
        with pytest.raises(KeyError):
            y.backward()
    del x, y, hook, witness
    gc.collect()
    assert seen() is None
