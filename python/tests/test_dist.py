"""grapnel.dist: ranks as threads, collectives, futures, and the wrapper that averages gradients."""
import pytest

import grapnel as g
from grapnel import dist, nn


def on_ranks(count, function):
    """What `function(group)` returned on each rank."""
    results = {}

    def run(group):
        results[group.rank()] = function(group)

    dist.run_threads(count, run)
    return [results[r] for r in range(count)]


def test_ranks_know_each_other():
    assert on_ranks(3, lambda group: (group.rank(), group.size(), dist.init() == group)) == [(0, 3, True), (1, 3, True), (2, 3, True)]


def test_collectives_give_what_their_names_say():
    def work(group):
        t = g.tensor([float(group.rank() + 1)])
        group.all_reduce(t).wait()
        b = g.tensor([float(group.rank())])
        group.broadcast(b, 1).wait()
        parts = group.all_gather(g.tensor([float(group.rank())])).result()
        own = group.reduce_scatter(g.tensor([1.0, 2.0])).result()[0]
        m = g.tensor([float(group.rank())])
        group.all_reduce(m, "max").wait()
        group.barrier().wait()
        return t.item(), b.item(), [p.item() for p in parts], own.item(), m.item()

    assert on_ranks(2, work) == [(3, 1, [0, 1], 2, 1), (3, 1, [0, 1], 4, 1)]


def test_an_unknown_reduction_names_those_there_are():
    with pytest.raises(g.Error, match="'sum', 'min', 'max' or 'product'"):
        dist.run_threads(1, lambda group: group.all_reduce(g.ones(1), "median"))


def test_an_exception_of_one_rank_reaches_the_caller_as_it_is():
    def work(group):
        if group.rank() == 1:
            raise KeyError("mine")
        group.barrier().wait()

    with pytest.raises(KeyError, match="mine"):
        dist.run_threads(2, work)


def test_ranks_draw_from_generators_of_their_own():
    def work(group):
        g.manual_seed(0)
        return g.randn(4).tolist()

    first, second = on_ranks(2, work)
    assert first == second


def test_futures_hold_any_object_and_call_back():
    future = dist.Future()
    doubled = future.then(lambda f: f.value() * 2)
    assert not doubled.done()
    future.set_result(21)
    assert doubled.wait() == 42 and future.wait() == 21
    failed = dist.Future()
    after = failed.then(lambda f: f.value())
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        after.wait()


def test_a_collective_has_a_future():
    def work(group):
        t = g.ones(2) * (group.rank() + 1)
        return group.all_reduce(t).get_future().then(lambda f: f.value()[0] / group.size()).wait().tolist()

    assert on_ranks(2, work) == [[1.5, 1.5]] * 2


def model():
    g.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1, bias=False))


def gradients(group, hook=None, **options):
    """Of a wrapped model, whose input differs by rank."""
    wrapped = dist.DistributedDataParallel(model(), group, **options)
    if isinstance(hook, str):
        wrapped.register_builtin_comm_hook(hook)
    elif hook is not None:
        wrapped.register_comm_hook(*hook)
    wrapped(g.ones(4, 2) * (group.rank() + 1)).sum().backward()
    return [p.grad.tolist() for p in wrapped.parameters()]


def test_gradients_are_averaged_over_the_ranks():
    alone = []
    for rank in range(2):
        m = model()
        m(g.ones(4, 2) * (rank + 1)).sum().backward()
        alone.append([p.grad for p in m.parameters()])
    mean = [((a + b) / 2).tolist() for a, b in zip(*alone)]
    for got in on_ranks(2, gradients):
        assert got == mean


@pytest.mark.parametrize("name", ["allreduce", "fp16_compress", "quantize_per_tensor", "quantize_per_channel"])
def test_builtin_hooks_come_near_the_mean(name):
    plain = on_ranks(2, gradients)[0]
    for got in on_ranks(2, lambda group: gradients(group, name)):
        for a, b in zip(got, plain):
            assert g.allclose(g.tensor(a), g.tensor(b), rtol=1e-2, atol=5e-2)


def test_a_comm_hook_sees_its_state_and_decides_what_becomes_of_a_bucket():
    def work(group):
        seen = []

        def hook(state, bucket):
            state.append((bucket.index(), bucket.is_last(), bucket.buffer().numel(), len(bucket.parameters())))
            future = dist.Future()
            future.set_result(bucket.buffer() * 0 + 7)
            return future

        wrapped = dist.DistributedDataParallel(model(), group, bucket_cap_mb=0.00002)
        wrapped.register_comm_hook(seen, hook)
        for _ in range(2):  # the first pass finds out how gradients arrive, and has one bucket
            wrapped.zero_grad()
            wrapped(g.ones(4, 2)).sum().backward()
        return [p.grad.tolist() for p in wrapped.parameters()], seen

    for grads, seen in on_ranks(2, work):
        assert set(sum(grads[0], [])) == {7}
        assert seen[0] == (0, True, 12, 3)
        assert [s[1] for s in seen[1:]] == [False] * (len(seen) - 2) + [True] and len(seen) > 2


def test_a_comm_hook_may_go_on_from_a_collective():
    def hook(group, bucket):
        return bucket.group().all_reduce(bucket.buffer() / group.size()).get_future()

    plain = on_ranks(2, gradients)
    assert on_ranks(2, lambda group: gradients(group, (group, hook))) == plain


def test_what_a_comm_hook_returns_is_checked():
    with pytest.raises((TypeError, g.Error), match="Future"):
        on_ranks(2, lambda group: gradients(group, (None, lambda state, bucket: 3)))


def test_what_a_comm_hook_raises_ends_the_pass():
    def hook(state, bucket):
        raise ZeroDivisionError("in the hook")

    with pytest.raises((ZeroDivisionError, g.Error), match="in the hook"):
        on_ranks(2, lambda group: gradients(group, (None, hook)))


def test_without_synchronisation_gradients_stay_local():
    def work(group):
        wrapped = dist.DistributedDataParallel(model(), group)
        with wrapped.no_sync():
            wrapped(g.ones(1, 2) * (group.rank() + 1)).sum().backward()
        return wrapped.module[0].weight.grad.tolist()

    first, second = on_ranks(2, work)
    assert first != second
