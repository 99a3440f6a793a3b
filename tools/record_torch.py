#!/usr/bin/env python3
"""Records what PyTorch computes, for tests that compare with it without having it.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch==2.13.0 safetensors numpy
    /tmp/torch/bin/python tools/record_torch.py

Writes tests/nn/torch_layers.safetensors (layers: parameters, inputs, outputs and gradients),
tests/functions/torch_functions.safetensors (the same of functions),
tests/optim/torch_optim.safetensors (optimisers and schedules: every step), and tests/io/*.safetensors
(files as Python writes them). All numbers are f64, so that a comparison sees formulas and not rounding.
"""
import pathlib

import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
torch.set_default_dtype(torch.float64)


class Layers:
    """Cases named `name/...`: p.* parameters and buffers before the call, in.N, out.N, g.N the gradients
    given to the outputs, gp.* and gin.N the gradients that come back, b.* buffers after the call."""

    def __init__(self):
        self.table = {}

    def add(self, name, module, *inputs, call=None, train=True, constant=()):
        torch.manual_seed(len(self.table))
        module.train(train)
        for p in module.parameters():
            with torch.no_grad():
                p.copy_(torch.randn_like(p) * 0.5)
        put = lambda key, value: self.table.__setitem__(f"{name}/{key}", value.detach().clone().contiguous())
        for key, value in module.state_dict().items():
            put(f"p.{key}", value)
        inputs = [x.clone().requires_grad_() if x.is_floating_point() and i not in constant else x for i, x in enumerate(inputs)]
        for i, x in enumerate(inputs):
            put(f"in.{i}", x)
        out = call(module, *inputs) if call else module(*inputs)
        outs = []

        def walk(value):
            if isinstance(value, torch.Tensor):
                outs.append(value)
            elif value is not None:
                for v in value:
                    walk(v)

        walk(out)
        loss = 0
        for i, y in enumerate(outs):
            g = torch.randn_like(y)
            put(f"out.{i}", y)
            put(f"g.{i}", g)
            loss = loss + (y * g).sum()
        loss.backward()
        for key, p in module.named_parameters():
            if p.grad is not None:
                put(f"gp.{key}", p.grad)
        for i, x in enumerate(inputs):
            if x.requires_grad:
                put(f"gin.{i}", x.grad)
        for key, value in module.named_buffers():
            put(f"b.{key}", value)


def layers():
    t, nn = Layers(), torch.nn
    torch.manual_seed(1)
    x = lambda *shape: torch.randn(*shape)

    t.add("linear", nn.Linear(4, 3), x(5, 4))
    t.add("conv1d", nn.Conv1d(3, 4, 3, stride=2, padding=1), x(2, 3, 9))
    t.add("conv2d", nn.Conv2d(3, 8, 3, stride=2), x(2, 3, 7, 6))
    t.add("conv2d_groups", nn.Conv2d(4, 6, (3, 2), padding=(1, 0), dilation=(1, 2), groups=2, bias=False), x(2, 4, 5, 6))
    t.add("conv2d_same", nn.Conv2d(2, 3, (4, 3), padding="same"), x(2, 2, 5, 6))
    for mode in "reflect", "replicate", "circular":
        t.add(f"conv2d_{mode}", nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode=mode), x(1, 2, 5, 4))
    t.add("conv1d_unbatched", nn.Conv1d(2, 3, 2), x(2, 5))
    t.add("batch_norm1d", nn.BatchNorm1d(3), x(6, 3))
    t.add("batch_norm1d_length", nn.BatchNorm1d(3, eps=1e-3, momentum=0.3), x(4, 3, 5))
    t.add("batch_norm2d", nn.BatchNorm2d(3), x(3, 3, 4, 2))
    t.add("batch_norm2d_eval", nn.BatchNorm2d(3), x(3, 3, 4, 2), train=False)
    t.add("batch_norm2d_cumulative", nn.BatchNorm2d(2, momentum=None), x(3, 2, 4, 2))
    t.add("batch_norm2d_plain", nn.BatchNorm2d(2, affine=False, track_running_stats=False), x(3, 2, 4, 2), train=False)
    t.add("layer_norm", nn.LayerNorm([3, 4]), x(2, 3, 4))
    t.add("group_norm", nn.GroupNorm(2, 4), x(2, 4, 3, 3))
    t.add("rms_norm", nn.RMSNorm([4]), x(3, 4))
    t.add("rms_norm_eps", nn.RMSNorm([2, 3], eps=0.1), x(3, 2, 3))
    t.add("embedding", nn.Embedding(6, 3, padding_idx=-2), torch.tensor([[0, 4, 1], [5, 1, 0]]))
    t.add("prelu", nn.PReLU(3), x(2, 3, 4))
    t.add("glu", nn.GLU(1), x(2, 4, 3))
    for name, module in {"relu": nn.ReLU(), "relu6": nn.ReLU6(), "leaky_relu": nn.LeakyReLU(0.2), "elu": nn.ELU(0.7),
                         "selu": nn.SELU(), "silu": nn.SiLU(), "mish": nn.Mish(), "softplus": nn.Softplus(2, 3),
                         "log_sigmoid": nn.LogSigmoid(), "softsign": nn.Softsign(), "hardtanh": nn.Hardtanh(-0.5, 0.8),
                         "gelu": nn.GELU(), "gelu_tanh": nn.GELU("tanh"), "tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(),
                         "softmax": nn.Softmax(1), "log_softmax": nn.LogSoftmax(-1)}.items():
        t.add(name, module, 3 * x(2, 5))
    t.add("max_pool1d", nn.MaxPool1d(3, 2, 1), x(2, 3, 8))
    t.add("max_pool2d", nn.MaxPool2d((2, 3), ceil_mode=True), x(2, 2, 5, 7))
    t.add("avg_pool1d", nn.AvgPool1d(3, 2, 1, count_include_pad=False), x(2, 3, 8))
    t.add("avg_pool2d", nn.AvgPool2d(2), x(2, 2, 5, 6))
    t.add("adaptive_avg_pool1d", nn.AdaptiveAvgPool1d(4), x(2, 3, 10))
    t.add("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((3, 1)), x(2, 2, 7, 6))
    t.add("adaptive_avg_pool2d_uneven", nn.AdaptiveAvgPool2d((3, 4)), x(1, 2, 7, 6))
    t.add("adaptive_max_pool2d", nn.AdaptiveMaxPool2d((2, 3)), x(1, 2, 5, 6))

    p = lambda *shape: torch.rand(*shape) * 0.8 + 0.1
    target = torch.tensor([1, 0, 3, 2])
    t.add("cross_entropy", nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.5]), label_smoothing=0.1), x(4, 4), target)
    t.add("nll", nn.NLLLoss(ignore_index=0, reduction="sum"), x(4, 4), target)
    t.add("bce", nn.BCELoss(), p(3, 2), p(3, 2), constant=[1])
    t.add("bce_logits", nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 0.5])), x(3, 2), p(3, 2))
    t.add("mse", nn.MSELoss(), x(3, 2), x(3, 2))
    t.add("l1", nn.L1Loss(reduction="none"), x(3, 2), x(3, 2))
    t.add("smooth_l1", nn.SmoothL1Loss(beta=0.7), x(3, 4), x(3, 4))
    t.add("huber", nn.HuberLoss(delta=0.6), x(3, 4), x(3, 4))
    t.add("kl_div", nn.KLDivLoss(reduction="batchmean"), x(3, 4), p(3, 4))
    t.add("kl_div_log", nn.KLDivLoss(reduction="mean", log_target=True), x(3, 4), x(3, 4))

    t.add("attention", nn.MultiheadAttention(6, 2), x(4, 2, 6), call=lambda m, q: m(q, q, q))
    t.add("attention_cross", nn.MultiheadAttention(6, 3, kdim=4, vdim=5, add_bias_kv=True, add_zero_attn=True, batch_first=True),
          x(2, 3, 6), x(2, 4, 4), x(2, 4, 5), call=lambda m, q, k, v: m(q, k, v, average_attn_weights=False))
    keep = torch.tensor([[False, False, True, False], [False, True, False, False]])
    causal = torch.triu(torch.ones(3, 4, dtype=torch.bool), 2)
    t.add("attention_masks", nn.MultiheadAttention(4, 2), x(3, 2, 4), x(4, 2, 4), x(4, 2, 4), keep, causal,
          call=lambda m, q, k, v, pad, mask: m(q, k, v, key_padding_mask=pad, attn_mask=mask))
    t.add("attention_unbatched", nn.MultiheadAttention(4, 2, bias=False), x(3, 4), call=lambda m, q: m(q, q, q, need_weights=False))
    t.add("encoder", nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0), x(4, 2, 6))
    t.add("encoder_first", nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, activation="gelu", batch_first=True, norm_first=True), x(2, 4, 6))
    t.add("decoder", nn.TransformerDecoderLayer(6, 2, 8, dropout=0.0), x(4, 2, 6), x(3, 2, 6),
          call=lambda m, tgt, mem: m(tgt, mem, tgt_mask=torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)))
    t.add("lstm", nn.LSTM(3, 4), x(5, 2, 3))
    t.add("lstm_deep", nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True), x(2, 5, 3), x(4, 2, 4), x(4, 2, 4),
          call=lambda m, a, h, c: m(a, (h, c)))
    t.add("lstm_proj", nn.LSTM(3, 4, num_layers=2, proj_size=2, bias=False), x(3, 2, 3))
    t.add("gru", nn.GRU(3, 4), x(5, 2, 3))
    t.add("gru_deep", nn.GRU(3, 4, num_layers=2, bidirectional=True), x(4, 2, 3), x(4, 2, 4))
    t.add("gru_unbatched", nn.GRU(3, 4), x(4, 3), x(1, 4))

    # Behind all others, whose numbers would be other ones otherwise.
    for name, module in {"celu": nn.CELU(0.5), "rrelu": nn.RReLU(), "threshold": nn.Threshold(0.3, -2.0), "hardshrink": nn.Hardshrink(0.7),
                         "softshrink": nn.Softshrink(0.4), "tanhshrink": nn.Tanhshrink(), "softmin": nn.Softmin(1)}.items():
        t.add(name, module, 3 * x(2, 5), train=False)
    t.add("softmax2d", nn.Softmax2d(), x(2, 3, 2, 2))
    t.add("batch_norm3d", nn.BatchNorm3d(2), x(2, 2, 3, 2, 2))
    t.add("instance_norm1d", nn.InstanceNorm1d(3), x(2, 3, 5))
    t.add("instance_norm2d", nn.InstanceNorm2d(3, affine=True, eps=1e-3), x(2, 3, 4, 2))
    t.add("instance_norm2d_tracked", nn.InstanceNorm2d(2, affine=True, momentum=0.3, track_running_stats=True), x(3, 2, 4, 2))
    t.add("instance_norm2d_eval", nn.InstanceNorm2d(2, track_running_stats=True), x(3, 2, 4, 2), train=False)
    t.add("instance_norm3d", nn.InstanceNorm3d(2), x(2, 2, 3, 2, 2))
    t.add("conv_transpose1d", nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1, output_padding=1), x(2, 3, 5))
    t.add("conv_transpose2d", nn.ConvTranspose2d(3, 2, (3, 2), stride=(2, 3), bias=False), x(2, 3, 4, 3))
    t.add("conv_transpose2d_groups", nn.ConvTranspose2d(4, 6, 3, padding=1, groups=2, dilation=(1, 2)), x(2, 4, 4, 5))
    t.add("conv_transpose2d_size", nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), x(1, 2, 3, 4),
          call=lambda m, a: m(a, output_size=[6, 7]))
    for name, module in {"reflection_pad1d": nn.ReflectionPad1d((2, 1)), "replication_pad1d": nn.ReplicationPad1d((0, 3)),
                         "constant_pad1d": nn.ConstantPad1d((1, -1), 2.5)}.items():
        t.add(name, module, x(2, 3, 4))
    for name, module in {"reflection_pad2d": nn.ReflectionPad2d((1, 2, 0, 3)), "replication_pad2d": nn.ReplicationPad2d(2),
                         "zero_pad2d": nn.ZeroPad2d((1, -1, 2, 0)), "constant_pad2d": nn.ConstantPad2d((0, 1, 2, 3), -1.5)}.items():
        t.add(name, module, x(2, 2, 4, 5))
    t.add("replication_pad3d", nn.ReplicationPad3d((1, 0, 2, 1, 0, 1)), x(1, 2, 2, 3, 2))
    for name, module in {"upsample_nearest": nn.Upsample(scale_factor=2), "upsample_size": nn.Upsample(size=(7, 3)),
                         "upsample_bilinear": nn.Upsample(scale_factor=(2.0, 1.5), mode="bilinear"),
                         "upsample_corners": nn.Upsample(size=(5, 9), mode="bilinear", align_corners=True),
                         "upsample_down": nn.Upsample(size=(2, 3), mode="bilinear"),
                         "upsample_exact": nn.Upsample(size=(7, 3), mode="nearest-exact")}.items():
        t.add(name, module, x(2, 2, 4, 5))
    t.add("upsample_linear", nn.Upsample(scale_factor=3, mode="linear"), x(2, 2, 4))
    t.add("upsample_trilinear", nn.Upsample(size=(3, 4, 5), mode="trilinear"), x(1, 2, 2, 3, 2))
    t.add("pixel_shuffle", nn.PixelShuffle(2), x(2, 8, 3, 2))
    t.add("pixel_unshuffle", nn.PixelUnshuffle(2), x(2, 3, 4, 6))
    t.add("cosine_similarity", nn.CosineSimilarity(1), x(3, 4), x(3, 4))
    t.add("pairwise_distance", nn.PairwiseDistance(3.0, keepdim=True), x(3, 4), x(3, 4))
    t.add("rnn", nn.RNN(3, 4, num_layers=2, bidirectional=True), x(5, 2, 3), x(4, 2, 4))
    t.add("rnn_relu", nn.RNN(3, 4, nonlinearity="relu", bias=False), x(5, 2, 3))
    t.add("lstm_cell", nn.LSTMCell(3, 4), x(2, 3), x(2, 4), x(2, 4), call=lambda m, a, h, c: m(a, (h, c)))
    t.add("gru_cell", nn.GRUCell(3, 4, bias=False), x(3), x(4))
    t.add("rnn_cell", nn.RNNCell(3, 4), x(2, 3))
    t.add("rnn_cell_relu", nn.RNNCell(3, 4, nonlinearity="relu"), x(2, 3), x(2, 4))
    return t.table


def functions():
    """Functions without parameters, by name: in.N, out.N and, of outputs with a gradient, g.N, and gin.N that comes back."""
    table, f = {}, torch.nn.functional

    def add(name, fn, *inputs):
        inputs = [a.clone().requires_grad_() if a.is_floating_point() else a for a in inputs]
        out = fn(*inputs)
        torch.manual_seed(len(table))
        loss = 0
        for i, a in enumerate(inputs):
            table[f"{name}/in.{i}"] = a.detach().clone().contiguous()
        for i, y in enumerate(out if isinstance(out, (tuple, list)) else [out]):
            table[f"{name}/out.{i}"] = y.detach().clone().contiguous()
            if y.requires_grad:
                g = torch.randn_like(y)
                table[f"{name}/g.{i}"] = g.clone().contiguous()
                loss = loss + (y * g).sum()
        if isinstance(loss, torch.Tensor):
            loss.backward()
            for i, a in enumerate(inputs):
                if a.grad is not None:
                    table[f"{name}/gin.{i}"] = a.grad.clone().contiguous()

    torch.manual_seed(3)
    x = lambda *shape: torch.randn(*shape)
    some = torch.tensor([-3.5, -3.0, -1.2, -0.5, -0.1, 0.2, 0.5, 1.7, 3.0, 4.2])
    for name in "selu", "celu", "relu6", "hardtanh", "hardswish", "hardshrink", "softshrink", "tanhshrink", "mish", "softsign":
        add(name, getattr(f, name), some[some.abs() != 3] if name == "hardswish" else some[some.abs() != 0.5])
    # The gradient of PyTorch's own has a sixth in f32.
    add("hardsigmoid", lambda a: f.relu6(a + 3) / 6, some[some.abs() != 3])
    add("glu", lambda a: f.glu(a, 0), x(4, 3))
    add("elu", lambda a: torch.ops.aten.elu(a, 0.7, 1.5, 2.0), x(7))
    add("logit", lambda a: torch.logit(a, 0.1), torch.tensor([0.05, 0.2, 0.6, 0.95]))
    add("nan_to_num", lambda a: torch.nan_to_num(a, 1.0, 2.0), torch.tensor([1.5, float("nan"), float("inf"), -float("inf")]))
    add("isclose", torch.isclose, torch.tensor([1.0, 1.0, float("inf"), float("nan")]), torch.tensor([1.0 + 1e-7, 1.1, float("inf"), float("nan")]))
    add("pad", lambda a: f.pad(a, (1, 2, 0, 1), value=0.5), x(2, 3, 4))
    add("pad_negative", lambda a: f.pad(a, (3, -2)), x(2, 5))
    add("pad_reflect", lambda a: f.pad(a, (2, 1, 1, 3), mode="reflect"), x(1, 2, 4, 3))
    add("pad_replicate", lambda a: f.pad(a, (2, 0, 0, 3), mode="replicate"), x(1, 2, 4, 3))
    add("pad_circular", lambda a: f.pad(a, (2, 1, 4, 0), mode="circular"), x(1, 2, 4, 3))
    add("interpolate", lambda a: f.interpolate(a, (3, 8), mode="bilinear"), x(2, 2, 5, 4))
    add("interpolate_corners", lambda a: f.interpolate(a, (7, 1), mode="bilinear", align_corners=True), x(1, 2, 3, 4))
    add("interpolate_nearest", lambda a: f.interpolate(a, (3, 9)), x(1, 2, 5, 4))
    add("conv_transpose2d", lambda a, w, b: f.conv_transpose2d(a, w, b, (2, 1), (1, 0), (1, 0), 1, (1, 2)), x(2, 3, 4, 3), x(3, 2, 3, 2), x(2))
    add("conv_transpose1d", lambda a, w: f.conv_transpose1d(a, w, None, 3, 1, 2, 2), x(2, 4, 5), x(4, 3, 4))
    add("pixel_shuffle", lambda a: f.pixel_shuffle(a, 3), x(9, 2, 3))
    add("pixel_unshuffle", lambda a: f.pixel_unshuffle(a, 2), x(2, 1, 4, 2))
    add("repeat_interleave", lambda a: a.repeat_interleave(3, 1), x(2, 3))
    add("repeat_interleave_flat", lambda a: a.repeat_interleave(2), x(2, 3))
    add("repeat_interleave_each", lambda a, n: a.repeat_interleave(n, 1), x(2, 3), torch.tensor([2, 0, 3]))
    add("tile", lambda a: a.tile((2, 1, 3)), x(2, 3))
    add("diag", torch.diag, x(3))
    add("diag_matrix", lambda a: torch.diag(a, -1), x(3, 4))
    add("diag_embed", lambda a: torch.diag_embed(a, -2), x(2, 3))
    add("diag_above", lambda a: torch.diag(a, 1), x(2))
    add("meshgrid", lambda a, b: torch.meshgrid(a, b, indexing="ij"), x(3), x(2))
    add("meshgrid_xy", lambda a, b, c: torch.meshgrid(a, b, c, indexing="xy"), x(3), x(2), x(2))
    add("unfold", lambda a: a.unfold(1, 3, 2), x(2, 8))
    add("vstack", lambda a, b: torch.vstack((a, b)), x(3), x(2, 3))
    add("hstack", lambda a, b: torch.hstack((a, b)), x(2, 3), x(2, 1))
    add("std_mean", lambda a: torch.std_mean(a, 1), x(3, 4))
    add("var_mean", lambda a: torch.var_mean(a, (0, 2), unbiased=False, keepdim=True), x(3, 4, 2))
    add("median", lambda a: torch.median(a, 1), x(3, 4))
    add("median_all", torch.median, x(3, 3))
    for way in "linear", "lower", "higher", "nearest", "midpoint":
        add(f"quantile_{way}", lambda a, q: torch.quantile(a, q.detach(), 1, interpolation=way), x(3, 6), torch.tensor([0.0, 0.3, 0.5, 0.77, 1.0]))
    add("quantile_all", lambda a: torch.quantile(a, 0.4), x(3, 6))
    add("count_nonzero", lambda a: torch.count_nonzero(a, 0), torch.tensor([[0, 2, 0], [3, 1, 0]]))
    add("bincount", lambda a: torch.bincount(a, minlength=6), torch.tensor([1, 4, 1, 0, 1]))
    add("bincount_weights", lambda a, w: torch.bincount(a, w.detach()), torch.tensor([1, 4, 1, 0, 1]), x(5))
    add("histc", lambda a: torch.histc(a.detach(), 5, -1, 2), torch.tensor([-2.0, -1.0, -0.4, 0.2, 0.21, 1.9, 2.0, 2.5]))
    add("histc_range", lambda a: torch.histc(a.detach(), 4), torch.tensor([1.0, 2.0, 2.5, 3.0, 5.0]))
    edges, probes = torch.tensor([-1.0, 0.5, 0.5, 2.0, 7.0]), torch.tensor([[-3.0, -1.0, 0.5], [0.6, 7.0, 9.0]])
    add("searchsorted", torch.searchsorted, edges, probes)
    add("searchsorted_right", lambda s, v: torch.searchsorted(s, v, right=True), edges, probes)
    add("searchsorted_rows", torch.searchsorted, torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.5, 9.0]]), torch.tensor([[2.5, 0.0], [0.5, 4.0]]))
    add("bucketize", lambda v, s: torch.bucketize(v, s, right=True), probes, edges)
    add("unique", lambda a: torch.unique(a, return_inverse=True, return_counts=True), torch.tensor([[3, 1, 3], [7, 1, -2]]))
    add("cosine_similarity", lambda a, b: f.cosine_similarity(a, b, 0), x(3, 4), x(3, 4))
    add("pairwise_distance", f.pairwise_distance, x(3, 4), x(3, 4))
    for p in 1.0, 2.0, 3.0, float("inf"):
        add(f"cdist_{p}", lambda a, b: torch.cdist(a, b, p), x(2, 3, 4), x(2, 5, 4))
    add("cross", lambda a, b: torch.linalg.cross(a, b, dim=1), x(2, 3), x(2, 3))
    add("tensordot", torch.tensordot, x(2, 3, 4), x(3, 4, 5))
    add("tensordot_dims", lambda a, b: torch.tensordot(a, b, ([1, 0], [0, 2])), x(2, 3, 4), x(3, 4, 2))
    add("logspace", lambda n: torch.logspace(-1, 2, 7) + 0 * n, torch.tensor(0))
    return table


def optimisers():
    """Cases named `name/...`: start [n], grads [steps, n], params [steps, n] after each step."""
    table, o = {}, torch.optim

    def add(name, make, steps=8, maximise=False):
        torch.manual_seed(5)
        p = torch.nn.Parameter(torch.randn(4))
        grads, after = torch.randn(steps, 4), []
        grads[3, 1] = 0
        table[f"{name}/start"] = p.detach().clone()
        opt = make([p])
        for g in grads:
            p.grad = g.clone()
            opt.step()
            after.append(p.detach().clone())
        table[f"{name}/grads"], table[f"{name}/params"] = grads, torch.stack(after)

    add("sgd", lambda p: o.SGD(p, 0.1))
    add("sgd_momentum", lambda p: o.SGD(p, 0.1, momentum=0.9, dampening=0.1, weight_decay=0.01))
    add("sgd_nesterov", lambda p: o.SGD(p, 0.1, momentum=0.9, nesterov=True, maximize=True))
    add("adam", lambda p: o.Adam(p, 0.1, weight_decay=0.1))
    add("adam_amsgrad", lambda p: o.Adam(p, 0.1, betas=(0.8, 0.9), amsgrad=True, maximize=True))
    add("adamw", lambda p: o.AdamW(p, 0.1, amsgrad=True))
    add("rmsprop", lambda p: o.RMSprop(p, 0.01, weight_decay=0.1))
    add("rmsprop_centered", lambda p: o.RMSprop(p, 0.01, alpha=0.9, momentum=0.5, centered=True, maximize=True))
    add("adagrad", lambda p: o.Adagrad(p, 0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.2))

    def lbfgs(name, **options):
        # Rosenbrock's valley in four dimensions.
        p = torch.nn.Parameter(torch.tensor([-1.2, 1.0, 0.7, -0.3]))
        opt, after, losses = o.LBFGS([p], **options), [], []

        def closure():
            opt.zero_grad()
            loss = (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()
            loss.backward()
            return loss

        table[f"{name}/start"] = p.detach().clone()
        for _ in range(4):
            losses.append(opt.step(closure).detach())
            after.append(p.detach().clone())
        table[f"{name}/params"], table[f"{name}/losses"] = torch.stack(after), torch.stack(losses)

    lbfgs("lbfgs", lr=0.001, max_iter=4)
    lbfgs("lbfgs_wolfe", line_search_fn="strong_wolfe", max_iter=6, history_size=3)

    def schedule(name, make, steps=12, momentum=False):
        opt = o.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))]}, {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.02}],
                    lr=0.1, momentum=0.9)
        s, rates = make(opt), []
        for i in range(steps):
            rates.append([g["lr"] for g in opt.param_groups] + ([opt.param_groups[0]["momentum"]] if momentum else []))
            opt.step()
            if i + 1 < steps:
                s.step()
        table[f"{name}/rates"] = torch.tensor(rates)

    l = o.lr_scheduler
    schedule("step_lr", lambda p: l.StepLR(p, 3, 0.5))
    schedule("multi_step", lambda p: l.MultiStepLR(p, [2, 5, 5], 0.3))
    schedule("exponential", lambda p: l.ExponentialLR(p, 0.8))
    schedule("linear", lambda p: l.LinearLR(p, 0.25, 1.0, 4))
    schedule("constant", lambda p: l.ConstantLR(p, 0.5, 3))
    schedule("cosine", lambda p: l.CosineAnnealingLR(p, 8, 0.001))
    schedule("lambda", lambda p: l.LambdaLR(p, lambda e: 1 / (1 + e)))
    schedule("one_cycle", lambda p: l.OneCycleLR(p, 0.5, 12), momentum=True)
    schedule("one_cycle_linear", lambda p: l.OneCycleLR(p, 0.5, 12, anneal_strategy="linear", pct_start=0.4, div_factor=10), momentum=True)
    schedule("sequential", lambda p: l.SequentialLR(p, [l.LinearLR(p, 0.1, 1.0, 3), l.CosineAnnealingLR(p, 9)], [3]))

    def plateau(name, metrics, **options):
        opt = o.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        s, rates = l.ReduceLROnPlateau(opt, **options), []
        for m in metrics:
            s.step(m)
            rates.append(opt.param_groups[0]["lr"])
        table[f"{name}/metrics"], table[f"{name}/rates"] = torch.tensor(metrics), torch.tensor(rates)

    falling = [1.0, 0.9, 0.95, 0.91, 0.9, 0.8, 0.85, 0.8, 0.81, 0.82, 0.83, 0.84, 0.5, 0.5, 0.5, 0.5]
    plateau("plateau", falling, patience=2, factor=0.5)
    plateau("plateau_max", [-m for m in falling], mode="max", patience=1, cooldown=2, threshold=0.05, threshold_mode="abs", min_lr=0.02)
    return table


def files():
    """Files as Python's safetensors package writes them, for the reader."""
    table = {"bool": torch.tensor([True, False, True]), "u8": torch.tensor([0, 128, 255], dtype=torch.uint8),
             "i32": torch.tensor([-1, 2], dtype=torch.int32), "i64": torch.tensor([[-1, 2], [3, 1 << 40]]),
             "f16": torch.tensor([0.5, -2.0], dtype=torch.float16), "bf16": torch.tensor([0.5, -2.0], dtype=torch.bfloat16),
             "f32": torch.tensor([[0.1, 0.2, 0.3]], dtype=torch.float32), "f64": torch.tensor([0.1, 1e300]),
             "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4)}
    save_file(table, ROOT / "tests/io/from_python.safetensors", {"format": "pt", "note": "tools/record_torch.py"})
    save_file({"small": torch.zeros(3, dtype=torch.int16)}, ROOT / "tests/io/i16_from_python.safetensors")
    import numpy
    a = numpy.arange(6, dtype="<f4").reshape(2, 3)
    numpy.save(ROOT / "tests/io/plain.npy", a)
    numpy.save(ROOT / "tests/io/fortran.npy", numpy.asfortranarray(a.astype(">i4")))
    numpy.savez(ROOT / "tests/io/stored.npz", a=a, flags=numpy.array([True, False]))
    numpy.savez_compressed(ROOT / "tests/io/packed.npz", a=a, zeros=numpy.zeros((100, 10)), scalar=numpy.float16(0.5))


def main():
    files()
    save_file(layers(), ROOT / "tests/nn/torch_layers.safetensors")
    save_file(functions(), ROOT / "tests/functions/torch_functions.safetensors")
    save_file(optimisers(), ROOT / "tests/optim/torch_optim.safetensors")


if __name__ == "__main__":
    main()
