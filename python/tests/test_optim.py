"""Optimisers: C++'s and ones written in Python, their groups, hooks, state and schedules."""
import copy
import gc
import math
import pickle
import weakref

import pytest

import grapnel as g
from grapnel import nn, optim


def problem():
    g.manual_seed(1)
    net = nn.Linear(3, 1)
    x, y = g.randn(16, 3), g.randn(16, 1)

    def loss():
        return ((net(x) - y) ** 2).mean()

    return net, loss


NATIVE = {"SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9), "Adam": lambda p: optim.Adam(p, lr=0.05), "AdamW": lambda p: optim.AdamW(p, lr=0.05),
          "Adagrad": lambda p: optim.Adagrad(p, lr=0.3), "RMSprop": lambda p: optim.RMSprop(p, lr=0.02), "Lion": lambda p: optim.Lion(p, lr=0.01),
          "LBFGS": lambda p: optim.LBFGS(p, line_search_fn="strong_wolfe")}


class Plain(optim.Optimizer):
    """Written in Python."""

    def __init__(self, params, lr=0.1, momentum=0.5):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    def step(self, closure=None):
        loss = None if closure is None else closure()
        assert not g.is_grad_enabled()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                buffer = state.setdefault("buffer", g.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(p.grad)
                p.add_(buffer, alpha=-group["lr"])
        return loss


ALL = {**NATIVE, "Plain": Plain}


@pytest.mark.parametrize("name", ALL)
def test_a_step_makes_the_loss_smaller(name):
    net, loss = problem()
    opt = ALL[name](net.parameters())
    first = loss().item()

    def closure():
        opt.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(20):
        returned = opt.step(closure)
    assert loss().item() < first and isinstance(returned, g.Tensor)


def test_sgd_by_hand():
    w = nn.Parameter(g.ones(2))
    opt = optim.SGD([w], lr=0.5)
    (w * g.tensor([1.0, 2.0])).sum().backward()
    opt.step()
    assert w.tolist() == [0.5, 0.0] and opt.param_groups[0]["params"][0] is w
    opt.zero_grad()
    assert w.grad is None


def test_groups_read_and_write_like_dicts():
    a, b = nn.Parameter(g.ones(1)), nn.Parameter(g.ones(1))
    opt = optim.Adam([{"params": [a]}, {"params": b, "lr": 0.5, "note": "mine"}], lr=0.1)
    first, second = opt.param_groups
    assert first["lr"] == 0.1 and second["lr"] == 0.5 and second["betas"] == (0.9, 0.999) and second["note"] == "mine"
    second["lr"] *= 2
    second["betas"] = (0.5, 0.6)
    assert dict(second)["lr"] == 1.0 and second["betas"] == (0.5, 0.6)
    assert {"params", "lr", "betas", "eps", "note"} <= set(second)
    with pytest.raises(KeyError):
        second["nothing"]
    with pytest.raises(g.Error, match="learning rate"):
        second["lr"] = -1.0
    assert second["lr"] == 1.0
    (a + b).sum().backward()
    opt.step()
    assert abs(b.item()) < 1e-6 and abs(a.item() - 0.9) < 1e-6
    assert "lr: 1.0" in repr(opt)


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="empty"):
        optim.SGD([], lr=1)
    with pytest.raises(TypeError):
        optim.SGD(g.ones(1), lr=1)
    with pytest.raises(TypeError):
        optim.SGD([3], lr=1)
    w = nn.Parameter(g.ones(1))
    with pytest.raises(g.Error, match="already in a group"):
        optim.SGD([w, w], lr=1)
    with pytest.raises(g.Error, match="leaves"):
        optim.SGD([w * 2], lr=1)


# --- hooks ---


@pytest.mark.parametrize("name", ["SGD", "Plain"])
def test_step_hooks(name):
    net, loss = problem()
    opt, order = ALL[name](net.parameters()), []
    handles = [opt.register_step_pre_hook(lambda o, args, kwargs: order.append(("pre", o, args, kwargs))),
               opt.register_step_post_hook(lambda o, args, kwargs: order.append(("post", o))),
               optim.optimizer.register_optimizer_step_pre_hook(lambda o, a, k: order.append("all pre")),
               optim.optimizer.register_optimizer_step_post_hook(lambda o, a, k: order.append("all post"))]
    loss().backward()
    opt.step()
    assert order == ["all pre", ("pre", opt, (), {}), ("post", opt), "all post"]
    for handle in handles:
        handle.remove()
    opt.step()
    assert len(order) == 4


def test_a_step_pre_hook_replaces_the_closure():
    net, loss = problem()
    opt, calls = NATIVE["SGD"](net.parameters()), []

    def other():
        calls.append("other")
        return loss()

    opt.register_step_pre_hook(lambda o, args, kwargs: ((other,), {}))
    opt.step(lambda: calls.append("mine"))
    assert calls == ["other"]


def test_errors_in_hooks_and_closures_come_through():
    net, loss = problem()
    opt = NATIVE["SGD"](net.parameters())

    def bad(*args):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        opt.step(bad)
    opt.register_step_post_hook(bad)
    with pytest.raises(LookupError, match="mine"):
        opt.step()


def test_hooks_on_saving_and_loading():
    net, loss = problem()
    opt, order = NATIVE["SGD"](net.parameters()), []
    opt.register_state_dict_pre_hook(lambda o: order.append("before save"))
    opt.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    opt.register_load_state_dict_pre_hook(lambda o, state: order.append(state["more"]))
    opt.register_load_state_dict_post_hook(lambda o: order.append("after load"))
    opt.load_state_dict(opt.state_dict())
    assert order == ["before save", 1, "after load"]


# --- state ---


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("how", ["state_dict", "pickle", "deepcopy"])
def test_a_run_goes_on_where_it_stopped(name, how):
    net, loss = problem()
    opt = ALL[name](net.parameters())

    def train(net, opt, steps):
        x, y = data
        for _ in range(steps):
            def closure():
                opt.zero_grad()
                value = ((net(x) - y) ** 2).mean()
                value.backward()
                return value
            opt.step(closure)

    data = g.randn(8, 3), g.randn(8, 1)
    train(net, opt, 3)
    if how == "state_dict":
        other = copy.deepcopy(net)
        again = ALL[name](other.parameters())
        again.load_state_dict(pickle.loads(pickle.dumps(opt.state_dict())))
    else:
        pair = copy.deepcopy((net, opt)) if how == "deepcopy" else pickle.loads(pickle.dumps((net, opt)))
        other, again = pair
        assert again.param_groups[0]["params"][0] is other.weight
    train(net, opt, 3)
    train(other, again, 3)
    assert g.equal(net.weight, other.weight)


def test_state_has_pytorchs_layout():
    net, loss = problem()
    opt = NATIVE["Adam"](net.parameters())
    loss().backward()
    opt.step()
    state = opt.state_dict()
    assert set(state) == {"state", "param_groups"} and set(state["state"]) == {0, 1}
    assert set(state["state"][0]) == {"step", "exp_avg", "exp_avg_sq"} and state["param_groups"][0]["params"] == [0, 1]
    assert state["param_groups"][0]["betas"] == (0.9, 0.999)
    assert opt.state[net.weight]["exp_avg"].shape == net.weight.shape and len(opt.state) == 2
    state["param_groups"][0]["params"] = [0]
    with pytest.raises((g.Error, ValueError)):
        opt.load_state_dict(state)


# --- schedules ---


def rates(make, steps=8):
    opt = optim.SGD([nn.Parameter(g.ones(1))], lr=1.0, momentum=0.9)
    schedule, out = make(opt), []
    for _ in range(steps):
        out.append(opt.param_groups[0]["lr"])
        assert schedule.get_last_lr() == [out[-1]]
        opt.step()
        schedule.step()
    return out


S = optim.lr_scheduler


@pytest.mark.parametrize("make, expected", [
    (lambda o: S.StepLR(o, 2, 0.5), [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125]),
    (lambda o: S.MultiStepLR(o, [1, 3], 0.1), [1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01, 0.01]),
    (lambda o: S.ExponentialLR(o, 0.5), [0.5**i for i in range(8)]),
    (lambda o: S.LinearLR(o, 0.5, 1.0, 4), [0.5, 0.625, 0.75, 0.875, 1, 1, 1, 1]),
    (lambda o: S.ConstantLR(o, 0.5, 2), [0.5, 0.5, 1, 1, 1, 1, 1, 1]),
    (lambda o: S.CosineAnnealingLR(o, 4), [(1 + math.cos(math.pi * i / 4)) / 2 for i in range(8)]),
    (lambda o: S.LambdaLR(o, lambda e: 1 / (1 + e)), [1 / (1 + i) for i in range(8)]),
    (lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.5, 9), S.ExponentialLR(o, 0.5)], [2]), [0.5, 0.5, 1, 0.5, 0.25, 0.125, 0.0625, 0.03125])],
    ids=["step", "multi", "exponential", "linear", "constant", "cosine", "lambda", "sequential"])
def test_rates_over_time(make, expected):
    assert rates(make) == pytest.approx(expected)


def test_one_cycle_moves_the_momentum_the_other_way():
    opt = optim.SGD([nn.Parameter(g.ones(1))], lr=0.1, momentum=0.9)
    schedule = S.OneCycleLR(opt, 1.0, 10)
    start = opt.param_groups[0]["lr"], opt.param_groups[0]["momentum"]
    for _ in range(3):
        schedule.step()
    assert opt.param_groups[0]["lr"] > start[0] and opt.param_groups[0]["momentum"] < start[1]


def test_plateau():
    opt = optim.SGD([nn.Parameter(g.ones(1))], lr=1.0)
    schedule = S.ReduceLROnPlateau(opt, patience=1, factor=0.5)
    for metric in (1.0, 1.0, 1.0, g.tensor(1.0)):
        schedule.step(metric)
    assert opt.param_groups[0]["lr"] == 0.5


def test_schedules_written_in_python_and_for_python():
    class Half(S.LRScheduler):
        def get_lr(self):
            return [base / (1 + self.last_epoch) for base in self.base_lrs]

    assert rates(Half, 3) == pytest.approx([1, 1 / 2, 1 / 3])
    opt = Plain([nn.Parameter(g.ones(1))], lr=1.0)
    schedule = S.ExponentialLR(opt, 0.5)
    schedule.step()
    assert opt.param_groups[0]["lr"] == 0.5


def test_a_schedule_is_saved():
    opt = optim.SGD([nn.Parameter(g.ones(1))], lr=1.0)
    schedule = S.StepLR(opt, 1, 0.5)
    schedule.step()
    state = pickle.loads(pickle.dumps(schedule.state_dict()))
    schedule.step()
    schedule.load_state_dict(state)
    assert schedule.get_last_lr() == [0.5] and schedule.last_epoch == 1


# --- lifetimes ---


@pytest.mark.parametrize("name", ["SGD", "Adam", "Plain"])
def test_optimisers_in_rings_are_collected(name):
    def make():
        net, loss = problem()
        opt = ALL[name](net.parameters())
        net.weight.register_post_accumulate_grad_hook(lambda p: (opt, None)[1])
        opt.register_step_post_hook(lambda o, a, k: (opt, net, None)[2])
        schedule = S.StepLR(opt, 1)
        opt.note = [opt, schedule]
        loss().backward()
        opt.step()
        return [weakref.ref(x) for x in (net, opt, net.weight)]

    for _ in range(20):
        seen = make()
    gc.collect()
    gc.collect()
    assert [r() for r in seen] == [None] * 3


def test_an_optimiser_keeps_its_parameters():
    opt = optim.SGD([nn.Parameter(g.ones(1))], lr=1.0)
    calls = []
    opt.param_groups[0]["params"][0].register_hook(lambda grad: calls.append(1))
    gc.collect()
    p = opt.param_groups[0]["params"][0]
    assert isinstance(p, nn.Parameter)
    p.sum().backward()
    assert calls == [1]
