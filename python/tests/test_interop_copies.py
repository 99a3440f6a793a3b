"""Copies: what deepcopy and pickle make of tensors and functions."""
import copy
import functools
import pickle

import grapnel as g
from grapnel import nn


def test_every_copy_has_the_gradient_of_its_own_original():
    params = [nn.Parameter(g.full((i % 7 + 1,), float(i))) for i in range(300)]
    for i, p in enumerate(params):
        p.grad = g.full((i % 7 + 1,), -float(i))
    for original, twin in zip(params, copy.deepcopy(params)):
        assert twin is not original and g.equal(twin, original) and g.equal(twin.grad, original.grad) and twin.grad is not original.grad


def test_functions_go_by_their_names():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.activation = functools.partial(g.clamp, max=1.0)

    for function in (g.exp, g.matmul, nn.init.ones_, nn.functional.linear):
        assert pickle.loads(pickle.dumps(function)) is function is copy.deepcopy(function)
    twin = copy.deepcopy(Net())
    assert twin.activation(g.full((1,), 3.0)).item() == 1.0
