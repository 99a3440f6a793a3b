"""grapnel.hooks: the ready-made hooks of C++, from Python."""
import functools
import gc
import json
import math
import weakref

import pytest

import grapnel as g
from grapnel import hooks, nn


def grad_behind(hook, values=(3.0, -4.0)):
    x = g.zeros(len(values), requires_grad=True)
    hooks.attach(x, hook)
    x.backward(g.tensor(list(values)))
    return x.grad.tolist()


@pytest.mark.parametrize("hook, wanted", [
    (hooks.ClipValue(1.0), [1.0, -1.0]), (hooks.ClipNorm(1.0), [0.6, -0.8]), (hooks.ClipNorm(4.0, norm_type=math.inf), [3.0, -4.0]),
    (hooks.Scale(2.0), [6.0, -8.0]), (hooks.Freeze(), [0.0, 0.0]), (hooks.Reverse(0.5), [-1.5, 2.0]),
    (hooks.Mask(g.tensor([True, False])), [3.0, 0.0]), (hooks.Mask(g.tensor([0.5, 1.0])), [1.5, -4.0]), (hooks.Noise(0.0), [3.0, -4.0]),
], ids=lambda value: getattr(value, "name", ""))
def test_gradients_are_changed(hook, wanted):
    assert grad_behind(hook) == pytest.approx(wanted, abs=1e-5)


def test_hooks_are_chained_with_each_other_and_with_functions():
    both = hooks.ClipNorm(1.0) | hooks.Scale(10.0)
    assert both.name == "clip norm 1 | scale 10" and repr(both) == "<hook 'clip norm 1 | scale 10'>"
    assert grad_behind(both) == pytest.approx([6.0, -8.0], abs=1e-4)

    def shifted(grad):
        return grad + 1

    assert grad_behind(hooks.Scale(2.0) | shifted) == [7.0, -7.0]
    assert grad_behind(shifted | hooks.Scale(2.0)) == [8.0, -6.0]
    assert grad_behind(shifted | hooks.Scale(2.0) | (lambda grad: None) | shifted) == [9.0, -5.0]
    with pytest.raises(TypeError):
        hooks.Scale(2.0) | 3


def test_handles_names_and_lines():
    net = nn.Linear(2, 2)
    net.bias.requires_grad_(False)
    handles = hooks.attach(net, hooks.ClipValue(0.1))
    assert len(handles) == 1
    (info,) = g.autograd.graph.hooks_of(net.weight)
    assert info.name == "clip value 0.1" and "test_hook_library.py" in info.site
    handles[0].remove()
    net(g.ones(1, 2)).sum().backward()
    assert net.weight.grad.tolist() == [[1.0, 1.0]] * 2
    assert len(hooks.attach([net.weight], hooks.Freeze())) == 1


def test_they_are_part_of_a_compiled_step():
    w = g.ones(3, requires_grad=True)
    hooks.attach(w, hooks.ClipNorm(1.0) | hooks.Scale(0.5))

    @g.compile(fullgraph=True)
    def step(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad.clone()

    for x in (g.tensor([3.0, 0.0, 4.0]), g.tensor([0.0, 0.0, 2.0])):
        assert g.allclose(step(x), 0.5 * x / x.norm(), atol=1e-5)
    assert step.stats().graphs == 1


def test_through_changes_one_use_only():
    x = g.ones(2, requires_grad=True)
    (hooks.through(x, hooks.Reverse(2.0)) + x).sum().backward()
    assert x.grad.tolist() == [-1.0, -1.0]


def test_a_chain_that_refers_to_its_tensor_is_collected():
    x = g.ones(2, requires_grad=True)
    hooks.attach(x, hooks.Scale(2.0) | functools.partial(lambda tensor, grad: grad, x))
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None


# --- statistics and logs ---


def test_statistics():
    net = nn.Linear(2, 1)
    with hooks.Statistics(bins=2, low=-1.0, high=1.0) as stats:
        stats.attach(net)
        x = g.zeros(3, requires_grad=True)
        stats.attach("x", x)
        for value in (0.5, -2.0):
            x.backward(g.full((3,), value))
        stats.set_active(False)
        x.backward(g.ones(3))
        weight, bias, row = stats.report()
        assert (row.name, row.calls, row.elements, row.min, row.max) == ("x", 2, 6, -2.0, 0.5)
        assert row.mean == -0.75 and row.histogram == [3, 0, 3, 0, 0] and weight.calls == 0
        saved = stats.state_dict()
        stats.reset()
        assert stats.report()[2].calls == 0
        stats.load_state_dict(saved)
        assert stats.report()[2] == row
    with pytest.raises(g.Error, match="removed"):
        stats.report()
    assert not g.autograd.graph.hooks_of(x)


def losses(net, steps, logger):
    for _ in range(steps):
        net(g.ones(4, 2)).sum().backward()
        logger.step()


def test_a_logger_writes_lines(tmp_path):
    net, path = nn.Linear(2, 1), tmp_path / "log.jsonl"
    writer = hooks.JsonLinesWriter(path)
    with hooks.GradientLogger(net, writer, every=2) as logger:
        losses(net, 4, logger)
        assert logger.steps == 4 and logger.state_dict()["steps"] == 4
    writer.flush()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["step"] for line in lines} == {2, 4} and any(line["tag"] == "weight/norm" for line in lines)


def test_a_writer_may_be_python(tmp_path):
    class Writer:
        def __init__(self):
            self.seen, self.histograms = {}, []

        def scalar(self, tag, step, value):
            self.seen[tag, step] = value

        def histogram(self, tag, step, values):
            self.histograms.append((values.limits, values.counts))

        def flush(self):
            pass

    net, writer = nn.Linear(2, 1), Writer()
    logger = hooks.GradientLogger(net, writer, bins=4)
    losses(net, 1, logger)
    assert writer.seen["bias/mean", 1] == 4.0 and writer.histograms
    with pytest.raises(ZeroDivisionError):
        writer.scalar = lambda *args: 1 / 0
        losses(net, 1, logger)


def test_tensorboard_files(tmp_path):
    from grapnel.train import SummaryWriter

    with SummaryWriter(tmp_path / "runs") as writer:
        writer.add_scalar("loss", g.tensor(0.5), 3)
        writer.add_scalars("rates", {"a": 1.0, "b": 2}, 3)
        writer.add_histogram("weights", g.tensor([0.0, 0.1, 1.0, math.nan]), 3, bins=2)
    (path,) = (tmp_path / "runs").iterdir()
    content = path.read_bytes()
    assert all(tag in content for tag in (b"loss", b"rates/a", b"weights")) and str(path) == writer._writer.path


# --- guards ---


def test_the_nan_guard_names_op_line_and_layer():
    class Log(nn.Module):
        def forward(self, x):
            return x.log()

    net = nn.Sequential(nn.Linear(2, 2), Log())
    with hooks.NanGuard(net, rank="node 7") as guard:
        guard.check()
        nn.init.constant_(net[0].weight, -1.0)
        nn.init.zeros_(net[0].bias)
        net(g.ones(1, 2))
        report = guard.find()
        assert report.phase == "forward" and report.op == "log" and report.layer == "1" and "test_hook_library.py" in report.where
        net(g.ones(1, 2))
        with pytest.raises(g.Error, match=r"forward of log.*test_hook_library.py.*in layer '1'.*node 7"):
            guard.check()
        guard.check()
    net(g.ones(1, 2))
    with pytest.raises(g.Error, match="removed"):
        guard.find()


def test_norms_per_example():
    net, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), g.randn(5, 3)
    norms = hooks.PerSampleNorms(net)
    net(x).mean().backward()
    taken = norms.take()
    for i in range(5):
        net.zero_grad()
        net(x[i:i + 1]).mean().backward()
        alone = g.cat([p.grad.flatten() for p in net.parameters()]).norm()
        assert g.allclose(taken[i], alone, rtol=1e-4)
        norms.take()
    with pytest.raises(g.Error, match="no backward pass"):
        norms.take()
    with pytest.raises(g.Error, match="BatchNorm1d"):
        hooks.PerSampleNorms(nn.BatchNorm1d(2))


def test_norms_outlive_their_module():
    net = nn.Sequential(nn.Linear(3, 1))
    norms = hooks.PerSampleNorms(net)
    loss = net(g.ones(2, 3)).mean()
    del net
    gc.collect()
    loss.backward()
    assert norms.take().shape == (2,)


# --- saved tensors ---


@pytest.mark.parametrize("make, files", [
    (lambda folder: hooks.compress(g.bfloat16, min_bytes=0), False), (lambda folder: hooks.deflate(min_bytes=0), False),
    (lambda folder: hooks.save_to_disk(folder, min_bytes=0), True),
    (lambda folder: hooks.compress(g.bfloat16, hooks.save_to_disk(folder, min_bytes=0), min_bytes=0), True),
], ids=["compress", "deflate", "disk", "both"])
def test_saved_tensors_wait_elsewhere(make, files, tmp_path):
    hook = make(tmp_path)
    x = g.ones(8, requires_grad=True)
    with hook:
        y = (x * 2).exp()
        loss = (y * y).sum()
    assert any(tmp_path.iterdir()) == files
    loss.backward()
    assert g.allclose(x.grad, 4 * (4 * g.ones(8)).exp(), rtol=0.05)
    del y, loss
    assert not any(tmp_path.iterdir())


def test_only_narrower_types_compress():
    with pytest.raises(g.Error, match="floating-point"):
        hooks.compress(g.int64)
    with pytest.raises(TypeError, match="compress: next"):
        hooks.compress(g.float16, print)


def test_steps_in_backward():
    torch_like, stepped = nn.Linear(2, 1), nn.Linear(2, 1)
    stepped.load_state_dict(torch_like.state_dict())
    a, b = g.optim.AdamW(torch_like.parameters()), g.optim.AdamW(stepped.parameters())
    with g.optim.StepInBackward(b):
        for _ in range(3):
            a.zero_grad()
            torch_like(g.ones(4, 2)).sum().backward()
            a.step()
            stepped(g.ones(4, 2)).sum().backward()
            assert stepped.weight.grad is None
    assert g.equal(torch_like.weight, stepped.weight)
    stepped(g.ones(4, 2)).sum().backward()
    assert stepped.weight.grad is not None
