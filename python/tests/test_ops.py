"""Every op of the library is there, without a line of its own, and says what it does."""
import inspect
import re

import numpy as np
import pytest

import grapnel as g
from grapnel import _core

ROOT = __import__("pathlib").Path(__file__).resolve().parents[2]
LISTED = {
    kind: re.findall(r"X\((\w+), \w+\)", re.search(rf"#define GRAPNEL_{kind}_OPS\(X\)(.*?)\n\n", (ROOT / "grapnel/tensor/op_list.h").read_text(), re.S)[1])
    for kind in ("UNARY", "UNARY_TEST", "BINARY", "BINARY_TENSOR", "COMPARE")
}
NUMPY = {"neg": "negative", "square": "square", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "round": "rint",
         "rsqrt": lambda a: 1 / np.sqrt(a), "relu": lambda a: np.maximum(a, 0), "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
         "silu": lambda a: a / (1 + np.exp(-a)), "erf": None, "erfc": None, "mul": "multiply", "div": "divide", "pow": "power", "eq": "equal",
         "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


def reference(name):
    known = NUMPY.get(name, name)
    return getattr(np, known, None) if isinstance(known, str) else known


@pytest.mark.parametrize("name", LISTED["UNARY"])
def test_unary(name):
    a = np.array([0.25, 0.5, 0.75])
    x = g.tensor(a)
    f = getattr(g, name)
    assert f(x).equal(getattr(x, name)()) and f(input=x).equal(f(x))
    if reference(name):
        assert np.allclose(f(x).numpy(), reference(name)(a))
    y = x.clone()
    assert getattr(y, name + "_")() is y and y.equal(f(x))
    z = x.clone().requires_grad_()
    f(z).sum().backward()
    assert z.grad.shape == (3,)


@pytest.mark.parametrize("name", LISTED["UNARY_TEST"])
def test_unary_tests(name):
    a = np.array([0.0, 1.0, np.nan, np.inf])
    assert np.array_equal(getattr(g, name)(g.tensor(a)).numpy(), getattr(np, name)(a))


@pytest.mark.parametrize("name", LISTED["BINARY"] + LISTED["BINARY_TENSOR"] + LISTED["COMPARE"])
def test_binary(name):
    a, b = np.array([3.0, 2.0, 1.0]), np.array([2.0, 2.0, 2.0])
    x, y = g.tensor(a), g.tensor(b)
    f = getattr(g, name)
    want = reference(name)(a, b)
    assert np.allclose(f(x, y).numpy(), want) and np.allclose(f(x, other=y).numpy(), want) and np.allclose(getattr(x, name)(y).numpy(), want)
    if name not in LISTED["BINARY_TENSOR"]:
        assert np.allclose(f(x, 2).numpy(), want) and np.allclose(getattr(x, name)(2.0).numpy(), want)
        assert np.allclose(f(3, y).numpy(), reference(name)(3.0, b))


def test_reductions():
    a = np.arange(6.0).reshape(2, 3)
    x = g.tensor(a)
    for name in ("sum", "mean", "amax", "amin", "prod"):
        assert np.allclose(getattr(x, name)().numpy(), getattr(np, name)(a))
        assert np.allclose(getattr(x, name)(1).numpy(), getattr(np, name)(a, 1))
        assert np.allclose(getattr(g, name)(x, dim=0, keepdim=True).numpy(), getattr(np, name)(a, 0, keepdims=True))
    assert x.sum((0, 1)).item() == 15 and x.sum(dim=[0]).tolist() == [3, 5, 7] and x.sum(dim=None).item() == 15 and x.sum(dtype=g.int64).dtype is g.int64
    best = x.max(1)
    assert best.values.tolist() == [2, 5] and best.indices.tolist() == [2, 2] and x.max().item() == 5
    values, indices = x.sort(dim=1, descending=True)
    assert values.tolist() == [[2, 1, 0], [5, 4, 3]] and indices[0].tolist() == [2, 1, 0]
    assert x.argmax().item() == 5 and x.argmin(1).tolist() == [0, 0] and x.var().item() == pytest.approx(3.5) and x.std(0).shape == (3,)
    assert x.topk(2).values.tolist() == [[2, 1], [5, 4]] and x.any().item() and not x.all().item()
    assert x.norm().item() == pytest.approx(np.linalg.norm(a)) and x.logsumexp(1).shape == (2,) and x.cumsum(1).tolist() == [[0, 1, 3], [3, 7, 12]]
    assert x.softmax(1).sum(1).tolist() == pytest.approx([1, 1]) and x.softmax(dim=-1).shape == (2, 3)


def test_shapes():
    x = g.arange(6)
    assert x.view(2, 3).shape == x.view((2, 3)).shape == x.reshape(2, -1).shape == (2, 3)
    y = x.view(2, 3)
    assert y.permute(1, 0).shape == y.permute((1, 0)).shape == y.transpose(0, 1).shape == y.t().shape == (3, 2)
    assert y.unsqueeze(0).shape == (1, 2, 3) and y.unsqueeze(0).squeeze().shape == (2, 3) and y.flatten().shape == (6,)
    assert g.ones(1, 3).expand(2, 3).shape == (2, 3) and y.repeat(2, 1).shape == (4, 3) and y.flip(0).tolist() == [[3, 4, 5], [0, 1, 2]]
    assert [t.tolist() for t in x.split(4)] == [[0, 1, 2, 3], [4, 5]] and isinstance(x.chunk(2), tuple) and len(y.unbind()) == 2
    assert g.cat([y, y]).shape == (4, 3) and g.cat((y, y), dim=1).shape == (2, 6) and g.stack([x, x]).shape == (2, 6)
    assert y.narrow(1, 1, 2).tolist() == [[1, 2], [4, 5]] and y.select(0, 1).tolist() == [3, 4, 5] and y.contiguous().is_contiguous()
    assert y.to(g.float64).dtype is g.float64 and y.float().dtype is g.float32 and y.type_as(g.ones(1)).dtype is g.float32
    assert y.double() is not y and y.long() is y


def test_functions_of_several_tensors():
    g.manual_seed(0)
    x, w, b = g.randn(4, 3), g.randn(2, 3), g.randn(2)
    assert g.linear(x, w, b).allclose(x @ w.T + b) and g.linear(x, w).allclose(g.linear(x, w, None))
    assert g.addmm(b, x, w.t()).allclose(x @ w.T + b) and g.einsum("ij,kj->ik", [x, w]).allclose(x @ w.T)
    assert g.where(x > 0, x, 0.0).equal(x.relu()) and g.clamp(x, min=0).equal(x.relu()) and x.clamp(-1, 1).abs().max().item() <= 1
    target = g.tensor([0, 1, 0, 1])
    loss = g.cross_entropy(g.linear(x, w, b), target)
    assert loss.item() == pytest.approx(g.nll_loss(g.linear(x, w, b).log_softmax(1), target).item())
    assert g.cross_entropy(g.linear(x, w, b), target, reduction="none").shape == (4,)
    assert g.mse_loss(x, x, reduction="sum").item() == 0
    with pytest.raises(TypeError):
        g.mse_loss(x, x, reduction="some")
    assert g.conv2d(g.ones(1, 1, 4, 4), g.ones(1, 1, 3, 3), padding=1).shape == (1, 1, 4, 4)
    assert g.max_pool2d(g.ones(1, 1, 4, 4), 2).shape == (1, 1, 2, 2) and g.layer_norm(x, (3,)).shape == (4, 3)
    assert g.scaled_dot_product_attention(*[g.randn(1, 2, 4, 8)] * 3, is_causal=True).shape == (1, 2, 4, 8)
    assert g.embedding(w, g.tensor([1, 0])).equal(w[g.tensor([1, 0])]) and g.one_hot(target, 3).shape == (4, 3)
    assert g.gelu(x, approximate="tanh").shape == (4, 3) and g.dropout(x, 0.5, training=False).equal(x)


def test_in_place_methods_and_fills():
    x = g.zeros(3)
    assert x.add_(1).mul_(2).tolist() == [2, 2, 2] and x.fill_(5).tolist() == [5, 5, 5] and x.copy_(g.ones(3)).tolist() == [1, 1, 1]
    assert x.uniform_(0, 1).max().item() < 1 and x.normal_() is x and x.exponential_(lambd=2).min().item() >= 0
    assert x.masked_fill(g.tensor([True, False, True]), 7).tolist()[0] == 7
    assert g.zeros(3).scatter_(0, g.tensor([1]), g.tensor([4.0])).tolist() == [0, 4, 0]
    assert g.zeros(3).index_add(0, g.tensor([1, 1]), g.tensor([1.0, 2.0])).tolist() == [0, 3, 0]


def test_every_function_of_the_headers_is_bound():
    text = (ROOT / "grapnel/functions/functions.h").read_text() + (ROOT / "grapnel/functions/factories.h").read_text()
    declared = set(re.findall(r"^(?:Tensor|bool|std::vector<Tensor>|std::tuple<Tensor, Tensor>) (\w+)\(", text, re.M)) - {"from_blob"}
    assert len(declared) > 100 and not [name for name in declared if not hasattr(g, name)]
    assert all(hasattr(g, name) and hasattr(g.Tensor, name) for names in LISTED.values() for name in names)


def test_documentation_comes_from_the_headers():
    assert "a + alpha * b" in g.add.__doc__ and "input: Tensor" in g.add.__doc__
    assert "x where it is positive" in inspect.getdoc(g.leaky_relu)


def test_a_new_op_needs_no_binding(tmp_path):
    """A copy of the headers with one op more leads to a binding of it."""
    import shutil
    import subprocess
    import sys

    shutil.copytree(ROOT / "grapnel", tmp_path / "grapnel", ignore=lambda folder, names: [n for n in names if n.endswith(".cpp")])
    ops = tmp_path / "grapnel/tensor/op_list.h"
    ops.write_text(ops.read_text().replace("X(neg, Neg)", "X(neg, Neg) X(wobble, Wobble)"))
    functions = tmp_path / "grapnel/functions/functions.h"
    functions.write_text(functions.read_text().replace("/// a + alpha * b\n", "/// What wibbling is.\nTensor wibble(const Tensor& x, IntArrayRef dims, double strength = 0.5);\n/// a + alpha * b\n", 1))
    subprocess.run([sys.executable, str(ROOT / "python/generate.py"), "c++", str(tmp_path), str(tmp_path / "made")], check=True)
    made = "".join(path.read_text() for path in (tmp_path / "made").glob("*.cpp"))
    assert 'm.def("wobble"' in made and 'on_tensor("wobble"' in made and 'on_tensor("wobble_"' in made
    assert re.search(r'm\.def\("wibble".*"dim"_a.*"strength"_a = 0\.5, "What wibbling is\."', made)
    stub = (tmp_path / "made" / "ops.pyi").read_text()
    assert "def wibble(input: Tensor, dim: int | Sequence[int] | None, strength: float = 0.5) -> Tensor:\n    'What wibbling is.'\n" in stub
    assert "\ndef wobble(input: Tensor) -> Tensor" in stub and "    def wobble_(self) -> Tensor" in stub
    assert not hasattr(_core, "wobble")
