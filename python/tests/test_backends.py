"""Backends written in Python: asked once per graph, and part of the key."""
import gc
import threading
import weakref

import pytest

import grapnel as g


@pytest.fixture(autouse=True)
def empty_cache():
    g.reset_compile_cache()


class Counter:
    """Counts graphs, and what is in them."""

    def __init__(self, answer="fused"):
        self.graphs, self.answer = [], answer

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        assert len(inputs) == len(graph.inputs)
        return self.answer(graph) if callable(self.answer) else self.answer


ANSWERS = ["eager", "aot_eager", "fused", g.Backend.eager, lambda graph: graph, lambda graph: graph.run, lambda graph: lambda *x: graph.run(*x)]


@pytest.mark.parametrize("answer", ANSWERS, ids=["eager", "aot_eager", "fused", "member", "graph", "method", "function"])
def test_all_answers_give_the_bits_of_eager_mode(answer):
    def step(x, k):
        w.grad = None
        loss = ((x @ w - 1) ** 2).mean() * k
        loss.backward()
        with g.no_grad():
            w.sub_(w.grad * 0.1)
        return loss.detach()

    results = []
    for compiled in (None, Counter(answer)):
        g.manual_seed(1)
        w = g.randn(4, 2).requires_grad_()
        w.register_hook(lambda grad: grad.clamp(-1, 1))
        f = step if compiled is None else g.compile(step, backend=compiled, fullgraph=True)
        results.append([f(g.randn(3, 4), float(k)).item() for k in (1, 2, 1)] + [w.tolist()])
    assert results[0] == results[1]
    assert f.stats().graphs == 1 and compiled.graphs[0].count("matmul") >= 1


def test_one_object_shares_its_graphs_and_two_do_not():
    first, second = Counter(), Counter()
    for _ in range(3):
        g.compile(lambda x: x * 2, backend=first)(g.ones(2))
        g.compile(lambda x: x * 2, backend=second)(g.ones(3))
    assert len(first.graphs) == len(second.graphs) == 1


def test_methods_and_functions_are_backends():
    class Owner:
        def __init__(self):
            self.asked = 0

        def backend(self, graph, inputs):
            self.asked += 1
            return "eager"

    owner, other = Owner(), Owner()
    for _ in range(2):
        g.compile(lambda x: x * 2, backend=owner.backend)(g.ones(2))
        g.compile(lambda x: x * 2, backend=other.backend)(g.ones(2))
    assert owner.asked == other.asked == 1


def test_a_backward_pass_is_handed_over_with_its_hooks():
    counter = Counter()
    x = g.ones(2, requires_grad=True)

    def triple(grad):
        return grad * 3

    x.register_hook(triple)
    with g.CompiledBackward(backend=counter, fullgraph=True):
        (x * x).sum().backward()
    assert x.grad.tolist() == [6, 6] and "triple" in str(counter.graphs[0])


def test_what_it_raises_reaches_the_caller_and_nothing_has_happened():
    class Refused(Exception):
        pass

    def refuse(graph, inputs):
        raise Refused(graph.count("add"))

    total = g.zeros(2)
    with pytest.raises(Refused) as caught:
        g.compile(lambda x: total.add_(x), backend=refuse)(g.ones(2))
    assert caught.traceback[-1].name == "refuse" and total.tolist() == [0, 0] and total._version == 0


def test_answers_are_checked():
    for wrong, what in ((lambda graph, inputs: 3, "'int'"), (lambda graph, inputs: "fast", "'str'"), (lambda graph, inputs: lambda x: 3, "'int'")):
        with pytest.raises(TypeError, match=what):
            g.compile(lambda x: x + 1, backend=wrong)(g.ones(2))
    with pytest.raises(g.Error, match="output 0 is f32"):
        g.compile(lambda x: x + 1, backend=lambda graph, inputs: lambda x: g.ones(3))(g.ones(2))
    with pytest.raises(TypeError, match="positional argument"):
        g.compile(lambda x: x + 1, backend=lambda: None)(g.ones(2))


def test_a_backend_may_look_at_its_inputs_and_compile_again():
    seen = []

    def backend(graph, inputs):
        seen.append([x.tolist() for x in inputs])
        return g.compile(graph.run)

    f = g.compile(lambda x, y: x * y, backend=backend)
    assert f(g.ones(2), g.full((2,), 3.0)).tolist() == [3, 3] and seen == [[[1, 1], [3, 3]]]


def test_a_backend_and_its_function_are_collected():
    counter = Counter()
    counter.f = g.compile(lambda x: x * 2, backend=counter)
    counter.f(g.ones(2))
    seen = weakref.ref(counter)
    del counter
    gc.collect()
    assert seen() is None


def test_threads_wait_for_one_question_without_a_deadlock():
    counter = Counter(lambda graph: (threading.Event().wait(0.02), "fused")[1])
    results = []
    threads = [threading.Thread(target=lambda: results.append(g.compile(lambda x: x * 3, backend=counter)(g.ones(2)).sum().item())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert results == [6] * 4 and len(counter.graphs) == 1
