"""Copies: what deepcopy and multiprocessing make of tensors."""
import copy

import grapnel as g
from grapnel import nn


def test_every_copy_has_the_gradient_of_its_own_original():
    params = [nn.Parameter(g.full((i % 7 + 1,), float(i))) for i in range(300)]
    for i, p in enumerate(params):
        p.grad = g.full((i % 7 + 1,), -float(i))
    for original, twin in zip(params, copy.deepcopy(params)):
        assert twin is not original and g.equal(twin, original) and g.equal(twin.grad, original.grad) and twin.grad is not original.grad
