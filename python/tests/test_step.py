"""A whole training step as one graph: forward, backward, a hook with state, and the optimiser."""
import pytest

import grapnel as g
from grapnel import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.hidden(x).relu())


@pytest.fixture(autouse=True)
def no_graph_of_an_earlier_test():
    g.reset_compile_cache()


def train(compiled, make, steps=6, backend="fused"):
    g.reset_compile_cache()
    g.manual_seed(0)
    net, seen = Net(), []
    optimizer = make(net.parameters())

    def clip(grad):
        seen.append(grad)
        return grad.clamp(-0.1, 0.1)

    net.hidden.weight.register_hook(clip)
    net.out.register_forward_hook(lambda module, args, output: output * 2)

    def step(x, y):
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run = g.compile(step, fullgraph=True, backend=backend) if compiled else step
    losses = [float(run(g.randn(4, 8), g.randn(4, 1))) for _ in range(steps)]
    assert len(seen) == steps and all(len(grad.tolist()) == 16 for grad in seen)
    return [losses, [p.tolist() for p in net.parameters()]], run


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fused"])
@pytest.mark.parametrize("make", [lambda p: g.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: g.optim.AdamW(p, lr=1e-2)], ids=["SGD", "AdamW"])
def test_a_step_is_one_graph_with_the_bits_of_eager_mode(make, backend):
    want, _ = train(False, make)
    got, step = train(True, make, backend=backend)
    assert got == want
    # The first step makes the optimiser's memory.
    assert step.stats().graphs <= 2 and step.stats().breaks == 0


def test_a_module_is_compiled_and_forwards_its_attributes():
    net = Net()
    compiled = g.compile(net, fullgraph=True)
    x = g.randn(4, 8)
    assert compiled(x).equal(net(x)) and compiled.stats().graphs == 1
    assert compiled.hidden is net.hidden and compiled.state_dict().keys() == net.state_dict().keys()


def test_a_compiled_method_of_a_module():
    class Compiled(Net):
        @g.compile
        def forward(self, x):
            return self.out(self.hidden(x).relu())

    net, x = Compiled(), g.randn(4, 8)
    want = net.out(net.hidden(x).relu())
    assert net(x).equal(want) and Compiled.forward.stats().graphs == 1
    net(x).sum().backward()
    assert net.hidden.weight.grad is not None
