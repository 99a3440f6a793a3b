"""Several threads with hooks of all kinds, in passes over shared and own graphs: no deadlock, nothing lost, nothing torn."""
import contextlib
import gc
import os
import random
import sys
import threading

import pytest

import grapnel as g
from grapnel import nn, optim
from grapnel.autograd import graph


def run_all(work, count=4, seconds=120):
    """work(i) on `count` threads at once. A thread that is still there after that time waits for something that will not come."""
    errors, start = [], threading.Barrier(count)

    def guarded(i):
        try:
            start.wait()
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=[i], daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.fixture
def many_switches():
    """Threads of Python take turns far more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_hooks_of_every_kind_on_shared_leaves(many_switches):
    x = g.ones(4, requires_grad=True)
    counts = {"th": 0, "pa": 0, "pre": 0, "post": 0, "multi": 0}
    lock = threading.Lock()

    def count(name):
        def hook(*_):
            with lock:
                counts[name] += 1

        return hook

    x.register_hook(count("th"))
    x.register_post_accumulate_grad_hook(count("pa"))

    def work(_):
        for _ in range(60):
            y = x * 2
            y.grad_fn.register_prehook(count("pre"))
            y.grad_fn.register_hook(count("post"))
            graph.register_multi_grad_hook([y], count("multi"))
            y.sum().backward()

    run_all(work)
    assert counts == dict.fromkeys(counts, 240)
    assert x.grad.tolist() == [480] * 4


def test_hooks_that_start_passes(many_switches):
    shared = g.ones(3, requires_grad=True)

    def inner(grad):
        with g.enable_grad():
            y = (shared * 3).sum()
        y.backward()

    def work(_):
        for _ in range(40):
            x = g.ones(3, requires_grad=True)
            x.register_hook(inner)
            (x * 2).sum().backward()
            assert x.grad.tolist() == [2] * 3

    run_all(work)
    assert shared.grad.tolist() == [480] * 3


def test_hooks_that_wait_for_each_other():
    """Each pass calls a hook that needs the other thread's hook to have been called: nothing may be held while a hook runs."""
    for _ in range(20):
        barrier = threading.Barrier(2)
        x = g.ones(3, requires_grad=True)
        x.register_hook(lambda grad: (barrier.wait(60), None)[1])

        def work(_):
            (x * 2).sum().backward()

        run_all(work, 2)
        assert x.grad.tolist() == [4] * 3


def test_hooks_come_and_go_under_passes(many_switches):
    x = g.ones(3, requires_grad=True)
    stop = threading.Event()

    def work(i):
        if i == 0:
            for _ in range(100):
                (x * 2).sum().backward()
            stop.set()
        while not stop.is_set():
            handles = [x.register_hook(lambda grad: grad * 1), x.register_post_accumulate_grad_hook(lambda p: None)]
            for handle in random.sample(handles, 2):
                handle.remove()

    run_all(work)
    assert x.grad.tolist() == [200] * 3 and graph.hooks_of(x) == []


def test_compiled_functions_with_hooks(many_switches):
    x = g.ones(3, requires_grad=True)
    x.register_hook(lambda grad: grad * 2)

    @g.compile
    def step(scale):
        y = (x * scale).sum()
        y.backward()
        return y

    def work(_):
        for _ in range(30):
            step(g.tensor(1.0))

    try:
        run_all(work)
    except g.Error as error:
        # One thread's recording may hold the leaf's gradient while another one asks for it: that is said, and is no hang.
        assert "another thread" in str(error)


def test_compiling_the_same_function_first(many_switches):
    for _ in range(5):
        g.reset_compile_cache()
        calls = []

        def backend(graph_, inputs):
            calls.append(1)
            return "eager"

        f = g.compile(lambda x: x * 2 + 1, backend=backend)
        run_all(lambda _: f(g.ones(3)).tolist())
        assert 1 <= len(calls) <= 4


def test_modules_and_optimisers(many_switches):
    def work(i):
        g.manual_seed(i)
        net = nn.Linear(3, 2)
        net.register_forward_hook(lambda m, inputs, out: out * 1)
        net.register_full_backward_hook(lambda m, gi, go: None)
        opt = optim.SGD(net.parameters(), lr=0.1)
        opt.register_step_post_hook(lambda *_: None)
        for _ in range(30):
            opt.zero_grad()
            net(g.ones(4, 3)).pow(2).sum().backward()
            opt.step()

    run_all(work)


def test_objects_end_on_other_threads(many_switches):
    """Tensors with hooks are handed from thread to thread and let go anywhere, also inside of passes, with the collector at work."""
    ended, lock, box = [], threading.Lock(), []

    class Hook:
        def __call__(self, grad):
            with lock:
                if box:
                    box.pop(random.randrange(len(box)))

        def __del__(self):
            ended.append(1)

    def work(_):
        for i in range(60):
            x = g.ones(2, requires_grad=True)
            x.register_hook(Hook())
            y = (x * 2).sum()
            with lock:
                box.append((x, y))
            y.backward()
            if i % 20 == 0:
                gc.collect()

    run_all(work)
    box.clear()
    gc.collect()
    assert len(ended) == 240


def test_collections_while_others_are_in_passes(many_switches):
    stop = threading.Event()

    def work(i):
        if i == 0:
            for _ in range(15):
                gc.collect()
            stop.set()
        while not stop.is_set():
            x = g.ones(2, requires_grad=True)
            y = x * 2
            y.register_hook(lambda grad: (y, None)[1])  # a cycle through the graph
            z = (y * y).sum()
            z.backward()
            assert x.grad.tolist() == [8, 8]

    run_all(work)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_beside_running_passes():
    stop = threading.Event()

    def work(i):
        if i == 0:
            for _ in range(3):
                pid = os.fork()
                if pid == 0:
                    status = 1
                    with contextlib.suppress(BaseException):
                        x = g.ones(3, requires_grad=True)
                        x.register_hook(lambda grad: grad * 2)
                        (x * 2).sum().backward()
                        status = 0 if x.grad.tolist() == [4, 4, 4] else 2
                    os._exit(status)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            stop.set()
        while not stop.is_set():
            x = g.ones(100, requires_grad=True)
            x.register_hook(lambda grad: grad * 2)
            (x * 2).sum().backward()

    run_all(work, 3)
