"""Layers against what their functions compute; what is done to all parameters at once."""
import math

import pytest

import grapnel as g
from grapnel import nn
from grapnel.nn import functional as F

X = g.randn(2, 6)
IMAGE = g.randn(2, 3, 8, 8)


@pytest.mark.parametrize("layer, x, expected", [
    (lambda: nn.Linear(6, 4), X, lambda m, x: F.linear(x, m.weight, m.bias)),
    (lambda: nn.Linear(6, 4, bias=False), X, lambda m, x: x @ m.weight.t()),
    (lambda: nn.Conv2d(3, 5, 3, stride=2, padding=1), IMAGE, lambda m, x: F.conv2d(x, m.weight, m.bias, 2, 1)),
    (lambda: nn.Conv2d(3, 5, (3, 1), padding="same"), IMAGE, lambda m, x: F.conv2d(x, m.weight, m.bias, 1, (1, 0))),
    (lambda: nn.Conv1d(3, 5, 3), IMAGE[:, :, 0], lambda m, x: F.conv1d(x, m.weight, m.bias)),
    (lambda: nn.MaxPool2d(2), IMAGE, lambda m, x: F.max_pool2d(x, 2)),
    (lambda: nn.AvgPool2d((2, 1)), IMAGE, lambda m, x: F.avg_pool2d(x, (2, 1))),
    (lambda: nn.AdaptiveAvgPool2d((1, None)), IMAGE, lambda m, x: x.mean(2, keepdim=True)),
    (lambda: nn.LayerNorm(6), X, lambda m, x: F.layer_norm(x, (6,), m.weight, m.bias)),
    (lambda: nn.Softmax(dim=-1), X, lambda m, x: F.softmax(x, -1)),
    (lambda: nn.LogSoftmax(1), X, lambda m, x: F.log_softmax(x, 1)),
    (lambda: nn.ReLU(), X, lambda m, x: F.relu(x)), (lambda: nn.ReLU6(), X, lambda m, x: F.relu6(x)),
    (lambda: nn.GELU("tanh"), X, lambda m, x: F.gelu(x, "tanh")), (lambda: nn.LeakyReLU(0.2), X, lambda m, x: F.leaky_relu(x, 0.2)),
    (lambda: nn.ELU(0.5), X, lambda m, x: F.elu(x, 0.5)), (lambda: nn.SiLU(), X, lambda m, x: F.silu(x)), (lambda: nn.Mish(), X, lambda m, x: F.mish(x)),
    (lambda: nn.Tanh(), X, lambda m, x: x.tanh()), (lambda: nn.Sigmoid(), X, lambda m, x: x.sigmoid()), (lambda: nn.GLU(), X, lambda m, x: F.glu(x)),
    (lambda: nn.Softplus(2.0), X, lambda m, x: F.softplus(x, 2.0)), (lambda: nn.Hardtanh(-0.5, 0.5), X, lambda m, x: F.hardtanh(x, -0.5, 0.5)),
    (lambda: nn.LogSigmoid(), X, lambda m, x: x.sigmoid().log()), (lambda: nn.Softsign(), X, lambda m, x: F.softsign(x)),
    (lambda: nn.Flatten(), IMAGE, lambda m, x: x.reshape(2, -1)), (lambda: nn.Identity(1, a=2), X, lambda m, x: x),
    (lambda: nn.PReLU(), X, lambda m, x: x.clamp(min=0) + 0.25 * x.clamp(max=0)), (lambda: nn.Dropout(0.0), X, lambda m, x: x)])
def test_layers_compute_their_functions(layer, x, expected):
    m = layer()
    assert g.allclose(m(x), expected(m, x), 1e-5, 1e-6)


@pytest.mark.parametrize("loss, function", [
    (nn.MSELoss(), F.mse_loss), (nn.L1Loss(reduction="sum"), lambda a, b: F.l1_loss(a, b, reduction="sum")),
    (nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits)], ids=lambda v: type(v).__name__)
def test_losses(loss, function):
    target = g.rand(2, 6)
    assert g.allclose(loss(X, target), function(X, target))


def test_functions_that_are_layers_without_a_module():
    d, target = (X - 0.5).abs(), g.full((2, 6), 0.5)
    assert g.allclose(F.huber_loss(X, target, delta=0.7), g.where(d < 0.7, d * d / 2, 0.7 * (d - 0.35)).mean(), 1e-5, 1e-6)
    assert g.allclose(F.smooth_l1_loss(X, target, "sum", 0.7), g.where(d < 0.7, d * d / 1.4, d - 0.35).sum(), 1e-5, 1e-5)
    assert g.allclose(F.kl_div(X, target, "batchmean"), (target * (target.log() - X)).sum() / 2, 1e-5, 1e-5)
    row = IMAGE[:, :, 0]
    assert g.equal(F.max_pool1d(row, 2), g.maximum(row[:, :, ::2], row[:, :, 1::2]))
    assert g.allclose(F.avg_pool1d(row, 2), (row[:, :, ::2] + row[:, :, 1::2]) / 2, 1e-5, 1e-6)
    assert g.equal(F.adaptive_max_pool2d(IMAGE, 1).flatten(), IMAGE.flatten(2).amax(2).flatten())
    assert g.allclose(F.adaptive_avg_pool2d(IMAGE, (None, 1)), IMAGE.mean(3, keepdim=True), 1e-5, 1e-6)


def test_losses_of_classes():
    target = g.tensor([1, 3])
    weight = g.rand(6)
    assert g.allclose(nn.CrossEntropyLoss(weight=weight)(X, target), F.cross_entropy(X, target, weight))
    assert g.allclose(nn.NLLLoss()(F.log_softmax(X, 1), target), F.cross_entropy(X, target))
    with pytest.raises(ValueError, match="reduction"):
        nn.MSELoss(reduction="all")


def test_embedding():
    table = nn.Embedding(5, 3, padding_idx=0)
    assert table.weight[0].tolist() == [0, 0, 0] and g.equal(table(g.tensor([1, 4])), F.embedding(g.tensor([1, 4]), table.weight))
    fixed = nn.Embedding.from_pretrained(g.ones(2, 3))
    assert fixed(g.tensor([1])).tolist() == [[1, 1, 1]] and not fixed.weight.requires_grad


def test_batch_norm_keeps_statistics():
    m = nn.BatchNorm1d(6, momentum=None)
    m(X)
    assert g.allclose(m.running_mean, X.mean(0)) and m.num_batches_tracked.item() == 1
    m.eval()
    m(X)
    assert m.num_batches_tracked.item() == 1


def test_recurrent_layers_and_transformers():
    x = g.randn(5, 2, 3)
    out, (h, c) = nn.LSTM(3, 4, num_layers=2, bidirectional=True)(x)
    assert out.shape == (5, 2, 8) and h.shape == (4, 2, 4) and c.shape == (4, 2, 4)
    lstm = nn.LSTM(3, 4)
    again, _ = lstm(x, (g.zeros(1, 2, 4), g.zeros(1, 2, 4)))
    assert g.equal(again, lstm(x)[0])
    assert nn.GRU(3, 4, batch_first=True)(x)[1].shape == (1, 5, 4)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation=g.relu)
    assert layer(g.randn(3, 2, 4)).shape == (3, 2, 4) and layer.linear1.out_features == 8
    memory = g.randn(3, 2, 4)
    assert nn.TransformerDecoderLayer(4, 2, 8)(memory, memory).shape == (3, 2, 4)


def test_simple_recurrent_layers_and_cells():
    x, h = g.randn(5, 2, 3), g.randn(2, 4)
    rnn = nn.RNN(3, 4, nonlinearity="relu")
    step = lambda m, row, state: F.linear(row, m.weight_ih, m.bias_ih) + F.linear(state, m.weight_hh, m.bias_hh)
    simple = nn.RNNCell(3, 4)
    assert g.allclose(simple(x[0], h), step(simple, x[0], h).tanh(), 1e-5, 1e-6)
    long, last = rnn(x)
    state = g.zeros(2, 4)
    for row in x:
        state = (F.linear(row, rnn.weight_ih_l0, rnn.bias_ih_l0) + F.linear(state, rnn.weight_hh_l0, rnn.bias_hh_l0)).relu()
    assert g.allclose(long[-1], state, 1e-5, 1e-6) and g.equal(last[0], long[-1])
    cell, layer = nn.LSTMCell(3, 4), nn.LSTM(3, 4)
    layer.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    out, (_, c) = layer(x[:1], (h[None], h[None]))
    assert g.equal(cell(x[0], (h, h))[0], out[0]) and g.equal(cell(x[0], (h, h))[1], c[0])
    assert nn.GRUCell(3, 4, bias=False)(x[0]).shape == (2, 4)
    assert repr(rnn) == "RNN(3, 4, nonlinearity=relu)" and repr(cell) == "LSTMCell(3, 4)"
    with pytest.raises(ValueError, match="nonlinearity must be 'tanh' or 'relu', got 'gelu'"):
        nn.RNN(3, 4, nonlinearity="gelu")


def test_wrong_arguments_say_which_there_are():
    with pytest.raises(TypeError, match="in_features, out_features"):
        nn.Linear(3)
    with pytest.raises(TypeError, match="in_features must be an integer, got str"):
        nn.Linear("a", 2)
    with pytest.raises(TypeError, match="kernel_size must be an integer or a sequence of integers, got str"):
        nn.Conv2d(1, 1, "a")
    with pytest.raises(TypeError, match="p must be a number, got list"):
        nn.Dropout([])
    with pytest.raises(TypeError, match="output_size must be an integer or a sequence of integers and None, got"):
        nn.AdaptiveAvgPool2d(object())
    with pytest.raises(TypeError, match="Conv2d"):
        nn.Conv2d(1, 2, 3, strides=2)
    with pytest.raises((TypeError, g.Error)):
        nn.Linear(2, 2)("text")
    with pytest.raises(g.Error, match="padding_mode"):
        nn.Conv2d(1, 1, 1, padding_mode="none")


# --- C++ hooks see Python's modules, and Python's hooks C++ layers inside of layers ---


def test_hooks_see_layers_that_layers_call():
    layer, seen = nn.MultiheadAttention(4, 2), []
    layer.out_proj.register_forward_hook(lambda m, a, o: seen.append(m) or o * 0)
    x = g.randn(3, 2, 4)
    assert layer(x, x, x)[0].abs().sum().item() == 0 and seen == [layer.out_proj]


def test_clipping_and_vectors():
    net = nn.Linear(2, 2)
    for p in net.parameters():
        p.grad = g.ones_like(p)
    assert nn.utils.clip_grad_norm_(net.parameters(), 1.0).item() == pytest.approx(math.sqrt(6))
    assert nn.utils.clip_grad_norm_(net.parameters(), 9.0).item() == pytest.approx(1.0)
    nn.utils.clip_grad_value_(net.parameters(), 0.1)
    assert net.bias.grad.max().item() == pytest.approx(0.1)
    row = nn.utils.parameters_to_vector(net.parameters())
    nn.utils.vector_to_parameters(g.zeros(6), net.parameters())
    assert row.shape == (6,) and net.weight.abs().sum().item() == 0 and net.weight.requires_grad
    with pytest.raises(ValueError, match="7 elements"):
        nn.utils.vector_to_parameters(g.zeros(7), net.parameters())
