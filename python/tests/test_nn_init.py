"""Initialising parameters: PyTorch's names and defaults over C++'s functions; and log_sigmoid, which comes by the same way."""
import math

import pytest

import grapnel as g
from grapnel import nn
from grapnel.nn import init


def test_every_function_of_the_header_is_there():
    names = {"uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "eye_", "dirac_", "orthogonal_", "sparse_", "kaiming_uniform_",
             "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "calculate_gain", "fans_of"}
    assert names <= set(dir(init))


def test_they_fill_in_place_and_are_not_recorded():
    p = nn.Parameter(g.empty(3, 4))
    assert init.ones_(p) is p and p.grad_fn is None and p.requires_grad
    assert p.tolist() == [[1.0] * 4] * 3
    assert init.constant_(p, 0.25).sum().item() == 3.0
    assert init.constant_(p, val=2).sum().item() == 24.0
    assert init.zeros_(p).abs().sum().item() == 0
    assert init.eye_(g.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_they_draw_what_c_draws():
    g.manual_seed(7)
    a = init.uniform_(g.empty(100), a=-2.0, b=2.0)
    g.manual_seed(7)
    b = g.empty(100).uniform_(-2.0, 2.0)
    assert g.equal(a, b) and a.abs().max().item() <= 2
    assert init.trunc_normal_(g.empty(1000), 0.0, 1.0, a=-0.5, b=0.5).abs().max().item() <= 0.5


def test_variances_follow_fans_and_gains():
    w = g.empty(64, 32)
    assert init.fans_of(w) == init._calculate_fan_in_and_fan_out(w) == (32, 64)
    init.kaiming_uniform_(w, a=math.sqrt(5))
    assert w.abs().max().item() <= 1 / math.sqrt(32)
    init.kaiming_uniform_(w, mode="fan_out", nonlinearity="relu")
    assert 0.9 * math.sqrt(6 / 64) < w.abs().max().item() <= math.sqrt(6 / 64)
    init.xavier_uniform_(w, gain=2.0)
    assert w.abs().max().item() <= 2 * math.sqrt(6 / 96)
    assert init.calculate_gain("tanh") == 5 / 3 and init.calculate_gain("conv2d") == 1
    assert init.calculate_gain("leaky_relu", 1.0) == 1.0
    assert init.calculate_gain("leaky_relu", param=0.01) == init.calculate_gain("leaky_relu")


def test_rows_are_orthogonal():
    w = init.orthogonal_(g.empty(4, 8, dtype=g.float64))
    assert g.allclose(w @ w.t(), g.eye(4, dtype=g.float64))


def test_wrong_words_are_errors_that_name_the_right_ones():
    with pytest.raises(ValueError, match="fan_in.*fan_out.*'sideways'"):
        init.kaiming_normal_(g.empty(2, 2), mode="sideways")
    with pytest.raises(ValueError, match="nonlinearity 'swish'"):
        init.calculate_gain("swish")
    with pytest.raises(g.Error, match="at least 2 dimensions"):
        init.xavier_normal_(g.empty(3))
    with pytest.raises(TypeError):
        init.ones_([1.0])


def test_log_sigmoid_is_a_function_like_any_other():
    x = g.tensor([-200.0, 0.0, 200.0], requires_grad=True)
    y = g.log_sigmoid(x)
    assert y.tolist() == [-200.0, pytest.approx(-math.log(2)), 0.0]
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 0.5, 0.0]
    assert g.equal(nn.functional.logsigmoid(x), nn.LogSigmoid()(x))


# --- what an assignment that fails leaves ---


def test_a_part_of_a_wrong_type_leaves_the_old_one():
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    before = layer.linear1
    with pytest.raises(TypeError, match="linear1.*TransformerEncoderLayer"):
        layer.linear1 = nn.ReLU()
    assert layer.linear1 is before and dict(layer.named_children())["linear1"] is before
    assert layer(g.randn(3, 2, 4)).shape == (3, 2, 4)
    fresh = nn.Linear(4, 8)
    layer.linear1 = fresh
    assert layer.linear1 is fresh


def test_a_wrong_part_where_there_is_none_leaves_none():
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    layer.linear1 = None
    with pytest.raises(TypeError, match="linear1"):
        layer.linear1 = nn.ReLU()
    assert layer.linear1 is None and "linear1" not in dict(layer.named_children())


def test_a_registration_that_fails_leaves_the_old_parameter():
    net = nn.Linear(2, 2)
    before = net.weight
    before.note = "kept"

    def refuse(module, name, value):
        raise KeyError("not now")

    handle = nn.modules.module.register_module_parameter_registration_hook(refuse)
    try:
        with pytest.raises(KeyError):
            net.weight = nn.Parameter(g.zeros(2, 2))
    finally:
        handle.remove()
    assert net.weight is before and net.weight.note == "kept"
    net(g.ones(1, 2)).sum().backward()
    assert before.grad is not None
