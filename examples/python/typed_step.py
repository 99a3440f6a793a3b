"""A network, a hook, a compiled step and a function of one's own, with types throughout: mypy --strict has nothing to say."""
import pathlib
import tempfile
from collections.abc import Iterator
from typing import assert_type

import grapnel as g
from grapnel import nn
from grapnel.autograd.function import FunctionCtx


class Cube(g.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: g.Tensor) -> g.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: FunctionCtx, grad: g.Tensor) -> g.Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.second = nn.Linear(width, 1, bias=False)
        self.scale = nn.Parameter(g.ones(1))

    def forward(self, x: g.Tensor) -> g.Tensor:
        hidden = nn.functional.relu(self.first(x))
        y: g.Tensor = Cube.apply(self.second(hidden) * self.scale)
        return y


class Seen:
    """Counts the gradients that a hook sees, and clips them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, grad: g.Tensor) -> g.Tensor | None:
        self.count += 1
        return grad.clamp(-1, 1)


def batches(count: int, generator: g.Generator) -> Iterator[tuple[g.Tensor, g.Tensor]]:
    for _ in range(count):
        x = g.randn(32, 8)
        yield x, x.sum(1, keepdim=True)


@g.no_grad()
def mean_error(net: Net, x: g.Tensor, y: g.Tensor) -> float:
    return float((net(x) - y).abs().mean())


def main() -> None:
    g.manual_seed(0)
    net, seen = Net(16), Seen()
    optimizer = g.optim.AdamW(net.parameters(), lr=1e-2)
    handle = net.first.weight.register_hook(seen)
    assert_type(handle, g.RemovableHandle)

    @g.compile
    def step(x: g.Tensor, y: g.Tensor) -> g.Tensor:
        optimizer.zero_grad()
        loss: g.Tensor = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(x, y).item() for x, y in batches(5, g.Generator())]
    assert_type(losses, list[int | float])
    assert seen.count == len(losses) and step.stats().misses >= 1

    x = g.linspace(-1, 1, 4, requires_grad=True)
    assert_type(x.grad, g.Tensor | None)
    assert_type(x + 1 > 0, g.Tensor)

    folder = pathlib.Path(tempfile.mkdtemp())
    g.save(net.state_dict(), folder / "net.safetensors")
    missing, unexpected = net.load_state_dict(g.load(folder / "net.safetensors"))
    assert not missing and not unexpected
    print(f"{seen.count} gradients seen, error {mean_error(net, g.zeros(2, 8), g.zeros(2, 1)):.3f}")


if __name__ == "__main__":
    main()
