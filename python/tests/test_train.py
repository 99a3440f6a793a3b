"""grapnel.train: checkpoints, mixed precision, clipping; and what looks at a whole model."""
import os
import random

import pytest

import grapnel as g
from grapnel import nn, train


class Scaled(nn.Module):
    """With a state of its own beside its tensors."""

    def __init__(self):
        super().__init__()
        self.fc, self.calls = nn.Linear(3, 1), 0

    def forward(self, x):
        self.calls += 1
        return self.fc(x)

    def get_extra_state(self):
        return self.calls

    def set_extra_state(self, state):
        self.calls = state


class Run:
    """A program of training with everything that can be a part of a checkpoint."""

    def __init__(self):
        g.manual_seed(1)
        self.net = Scaled()
        self.opt = g.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.schedule = g.optim.lr_scheduler.StepLR(self.opt, 3)
        self.stats = g.hooks.Statistics()
        self.stats.attach(self.net)
        self.average = g.zeros(3)
        self.progress = {"step": 0, "losses": [], "best": None, 7: ("a", True)}
        self.dice = random.Random(5)
        self.state = train.Checkpoint()
        for name in ("net", "opt", "schedule", "stats", "average", "progress", "dice"):
            self.state.add(name, getattr(self, name))
        self.state.add("random", train.default_generator())

    def go(self, steps):
        for _ in range(steps):
            self.opt.zero_grad()
            loss = (self.net(g.randn(4, 3)) ** 2).mean() * self.dice.random()
            loss.backward()
            self.opt.step()
            self.schedule.step()
            self.average.mul_(0.9).add_(self.net.fc.weight.detach().flatten())
            self.progress["step"] += 1
            self.progress["losses"].append(loss.item())
        return self

    def told(self):
        return (self.net.fc.weight.tolist(), self.net.calls, self.average.tolist(), dict(self.progress), self.schedule.get_last_lr(), self.stats.report(),
                self.dice.random(), g.rand(2).tolist())


def test_a_run_goes_on_as_if_it_had_never_stopped(tmp_path):
    path = tmp_path / "last.safetensors"
    whole = Run().go(10).told()
    first = Run()
    assert first.state.resume(path) is False
    first.go(4).state.save(path)
    second = Run()
    assert second.state.resume(path) is True and second.progress["step"] == 4
    assert second.go(6).told() == whole
    assert "net.fc.weight" in g.load(path)


def test_what_does_not_fit_changes_nothing(tmp_path):
    path = tmp_path / "last.safetensors"
    net, other = nn.Linear(2, 2), {"step": 3}
    train.Checkpoint().add("progress", other).add("net", net).save(path)
    bigger, mine = nn.Linear(3, 3), {"step": 1}
    with pytest.raises(g.Error, match="'net' does not fit; nothing was changed"):
        train.Checkpoint().add("progress", mine).add("net", bigger).load(path)
    assert mine == {"step": 1}
    with pytest.raises(g.Error, match="no part 'more'"):
        train.Checkpoint().add("more", mine).load(path)
    with pytest.raises(g.Error, match="a part 'net' already"):
        train.Checkpoint().add("net", net).add("net", net)
    with pytest.raises(TypeError, match="numbers go into a dict"):
        train.Checkpoint().add("step", 3)
    average = g.zeros(2)
    train.Checkpoint().add("average", average).save(path)
    with pytest.raises(g.Error, match="the saved tensor is"):
        train.Checkpoint().add("average", g.zeros(3)).load(path)


def test_what_cannot_be_saved_leaves_the_old_file(tmp_path):
    path, part = tmp_path / "last.safetensors", {"step": 1}
    state = train.Checkpoint().add("part", part)
    state.save(path)
    before = path.read_bytes()
    part["open"] = {object()}
    with pytest.raises(TypeError, match="'set' cannot be saved"):
        state.save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["last.safetensors"]


def test_an_optimiser_of_python_is_a_part(tmp_path):
    class Momentum(g.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["v"] = state.get("v", g.zeros_like(p)) * 0.9 + p.grad
                    p.sub_(state["v"] * group["lr"])

    def run(steps, path=None, resume=False):
        w = nn.Parameter(g.ones(2))
        opt = Momentum([w])
        state = train.Checkpoint().add("w", w).add("opt", opt)
        if resume:
            state.load(path)
        for _ in range(steps):
            opt.zero_grad()
            (w * w).sum().backward()
            opt.step()
        if path and not resume:
            state.save(path)
        return w.tolist()

    run(2, tmp_path / "file")
    assert run(3, tmp_path / "file", resume=True) == run(5)


# --- mixed precision ---


def test_autocast():
    x, net = g.randn(2, 3), nn.Linear(3, 2)
    with g.autocast("cpu", dtype=g.bfloat16):
        y = net(x)
        assert y.dtype is g.bfloat16 and y.softmax(-1).dtype is g.float32
        with g.autocast(enabled=False):
            assert net(x).dtype is g.float32
        with pytest.raises(g.Error):
            with g.autocast(dtype=g.int64):
                pass
        assert net(x).dtype is g.bfloat16
    assert net(x).dtype is g.float32
    y.sum().backward()
    assert net.weight.grad.dtype is g.float32

    @g.autocast(dtype=g.float16)
    def decorated():
        return net(x)

    assert decorated().dtype is g.float16 and net(x).dtype is g.float32


def test_a_scaler_takes_no_step_on_overflow():
    w = nn.Parameter(g.ones(2))
    opt = g.optim.SGD([w], lr=1.0)
    scaler = train.GradScaler(init_scale=8.0, growth_interval=2)
    loss = scaler.scale((w * 0.5).sum())
    assert loss.item() == 8.0 and [x.item() for x in scaler.scale([g.tensor(1.0)])] == [8.0]
    loss.backward()
    assert w.grad.tolist() == [4.0, 4.0]
    scaler.unscale_(opt)
    assert w.grad.tolist() == [0.5, 0.5]
    with pytest.raises(g.Error, match="unscaled already"):
        scaler.unscale_(opt)
    assert scaler.step(opt) and w.tolist() == [0.5, 0.5]
    scaler.update()
    w.grad = g.tensor([float("inf"), 0.0])
    assert not scaler.step(opt) and w.tolist() == [0.5, 0.5]
    scaler.update()
    assert scaler.get_scale() == 4.0
    for _ in range(2):
        w.grad = g.zeros(2)
        scaler.step(opt)
        scaler.update()
    assert scaler.get_scale() == 8.0
    state = scaler.state_dict()
    assert set(state) == {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}
    again = train.GradScaler()
    again.load_state_dict(state)
    assert again.get_scale() == 8.0 and again.is_enabled()
    off = train.GradScaler(enabled=False)
    assert off.scale(loss) is loss and off.get_scale() == 1 and off.state_dict() == {}


def test_an_iteration_with_a_scaler_is_one_graph():
    w = nn.Parameter(g.ones(2))
    opt, scaler = g.optim.SGD([w], lr=0.5), train.GradScaler(init_scale=4.0)

    @g.compile(fullgraph=True)
    def step(x):
        opt.zero_grad()
        scaler.scale((w * x).sum()).backward()
        scaler.step(opt)
        scaler.update()

    for x in (g.ones(2), g.tensor([float("inf"), 0.0]), g.ones(2)):
        step(x)
    assert w.tolist() == [0.0, 0.0] and scaler.get_scale() == 2.0


def test_pytorchs_names_of_modules():
    from grapnel.utils import data, tensorboard

    assert g.amp.autocast is g.autocast and g.amp.GradScaler is train.GradScaler and tensorboard.SummaryWriter is train.SummaryWriter
    assert data.DataLoader is g.data.DataLoader and data.random_split is g.data.random_split


# --- whole models ---


def test_clipping_by_the_common_norm():
    w, b, free = nn.Parameter(g.zeros(2)), nn.Parameter(g.zeros(1)), nn.Parameter(g.zeros(1))
    w.grad, b.grad = g.tensor([3.0, 0.0]), g.tensor([4.0])
    assert train.clip_grad_norm_([w, b, free], 1.0).item() == 5.0
    assert w.grad.tolist() == pytest.approx([0.6, 0.0], abs=1e-5) and b.grad.tolist() == pytest.approx([0.8], abs=1e-5)
    b.grad = g.tensor([float("nan")])
    with pytest.raises(g.Error, match="norm of the gradients is nan"):
        nn.utils.clip_grad_norm_((p for p in (w, b)), 1.0, error_if_nonfinite=True)
    assert nn.utils.clip_grad_norm_(w, 10.0, norm_type=float("inf")).item() == pytest.approx(0.6, abs=1e-5)


def test_a_summary_counts_parameters():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4))
    found = nn.summary(net)
    assert (found.parameters, found.trainable) == (24, 24) and [row.path for row in found.rows][1:] == ["0", "1", "2"]
    assert found.rows[1].parameters == 16 and "Linear" in str(found) and "24" in repr(found)
