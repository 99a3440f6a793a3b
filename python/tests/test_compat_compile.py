"""torch.compile and torch._dynamo in grapnel.compat: what test files of PyTorch ask of them, and that nothing is counted but graphs."""
import contextlib
import functools
import itertools
from unittest import mock

import pytest

from grapnel import compat


def ones(torch, n=4):
    return torch.ones(n, requires_grad=True)


def test_compile_is_a_function_and_a_decorator(torch):
    assert torch.compile(lambda x: x * 2)(torch.ones(2)).tolist() == [2, 2]

    @torch.compile(backend="eager", fullgraph=True)
    def f(x):
        """Doubles."""
        return x + x

    assert f(torch.ones(2)).tolist() == [2, 2] and f.__name__ == "f" and f.__doc__ == "Doubles."
    assert torch._dynamo.optimize("aot_eager", nopython=True)(lambda x: x * 3)(torch.ones(1)).tolist() == [3]
    assert torch.compile(f, disable=True) is f


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_all_backends_give_the_same(torch, backend):
    x = ones(torch)
    y = torch.compile(lambda t: (t.sin() * 3).exp(), backend=backend)(x)
    y.sum().backward()
    z = ones(torch)
    (z.sin() * 3).exp().sum().backward()
    assert x.grad.tolist() == z.grad.tolist()


def test_a_backend_that_is_not_there_is_not_offered(torch):
    with pytest.raises(compat.NotOffered, match="openxla"):
        torch.compile(lambda x: x, backend="openxla")


def test_graphs_are_counted_by_the_backend_that_was_given_them(torch):
    count = torch._dynamo.testing.CompileCounter()
    f = torch.compile(lambda x: x * 2 + 1, backend=count)
    assert f(torch.ones(2)).tolist() == [3, 3] and f(torch.ones(2)).tolist() == [3, 3]
    assert (count.frame_count, count.op_count) == (1, 2)
    other = torch._dynamo.testing.CompileCounter()
    torch.compile(lambda x: x * 2 + 1, backend=other)(torch.ones(2))
    assert (count.frame_count, other.frame_count) == (1, 1)
    torch.compile(lambda x: x * 2 + 1, backend=count)(torch.ones(2))
    assert count.frame_count == 1, "the same graph was there already"
    count.clear()
    assert count.frame_count == 0


def test_an_empty_body_has_no_graph(torch):
    count = torch._dynamo.testing.CompileCounter()
    torch.compile(lambda x: x, backend=count, fullgraph=True)(torch.ones(2))
    assert count.frame_count == 0


def test_counting_leaves_the_work_to_another_backend(torch):
    for name in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        count = torch._dynamo.testing.CompileCounterWithBackend(name)
        assert torch.compile(lambda x: x * 2 + 1, backend=count)(torch.ones(2)).tolist() == [3, 3]
        assert count.frame_count == 1 and len(count.graphs) == 1


def test_graphs_can_be_kept_called_and_printed(torch):
    kept = torch._dynamo.testing.EagerAndRecordGraphs()
    torch.compile(lambda x: x * 2 + 1, backend=kept)(torch.ones(2))
    (graph,) = kept.graphs
    assert [i.op for i in graph.instructions()] == ["mul", "add"]
    assert graph.code.startswith("\n\n\ndef forward(self") and "torch.mul(" in graph.code
    text = graph.print_readable(False)
    assert text.startswith("class GraphModule(torch.nn.Module):\n    def forward(self") and '"f32[2]"' in text


def test_every_kind_of_instruction_is_printed(torch):
    kept = torch._dynamo.testing.EagerAndRecordGraphs()
    other = torch.tensor([True, False])

    def f(x):
        first, second = x.split(1)
        first = first.clone()
        first.add_(second)
        first[0] = 4
        return torch.where(other, first.sum(), second.half().sum())

    torch.compile(f, backend=kept)(torch.ones(2, 3))
    lines = kept.graphs[0].print_readable(False).splitlines()
    text = "\n".join(lines)
    assert '"f32[2, 3]"' in lines[1] and '"b8[2]"' in text and '"f16[1, 3]"' in text
    assert "        split = torch.split(" in text and ' = split[1]' in text and "dim = 0" in text
    assert [line.split(";")[0].strip() for line in lines if "add_" in line] == ["add_ = torch.add_(clone, getitem_1)"]
    assert kept.graphs[0].code.count("\n    return (where,)") == 1


def test_a_graph_of_a_backward_pass_can_be_printed(torch):
    from torch._dynamo import compiled_autograd

    kept = torch._dynamo.testing.EagerAndRecordGraphs()
    x = ones(torch, 2)
    with compiled_autograd._enable(torch.compile(backend=kept)):
        x.register_hook(invoking)
        (x * 3).backward(torch.tensor([1.0, 2.0]))
    assert "torch.mul(" in kept.graphs[0].print_readable(False) and x.grad.tolist() == [9, 36]


def test_a_backend_may_be_any_function(torch):
    seen = []

    def backend(gm, inputs):
        seen.append([tuple(t.shape) for t in inputs])

        def run(*inputs):
            seen.append("ran")
            return gm(*inputs)

        return run

    f = torch.compile(lambda x: x * 2, backend=backend)
    assert f(torch.ones(3)).tolist() == [2, 2, 2] and f(torch.ones(3)).tolist() == [2, 2, 2]
    assert seen[0][0] == (3,) and seen[1:] == ["ran", "ran"]


def test_inductor_can_be_asked_for_by_a_backend(torch):
    from torch import _inductor as inductor

    assert torch.compile(lambda x: x * 2, backend=lambda gm, inputs: inductor.compile(gm, inputs))(torch.ones(2)).tolist() == [2, 2]


def test_reading_a_value_under_fullgraph_is_unsupported_in_their_words(torch):
    f = torch.compile(lambda x: str(x * 2), fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Failed to trace builtin operator"):
        f(torch.ones(2))


def test_messages_are_our_own_and_theirs_stand_in_brackets(torch):
    f = torch.compile(lambda x: float((x * 2).sum()), fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported) as raised:
        f(torch.ones(2))
    assert "[" not in str(raised.value).partition("\n")[0]


def test_backward_passes_are_compiled_as_the_compiler_function_asks(torch):
    from torch._dynamo import compiled_autograd

    count = torch._dynamo.testing.CompileCounter()
    for compiler in (functools.partial(torch.compile, backend=count, fullgraph=True), lambda gm: torch.compile(gm, backend=count),
                     torch.compile(backend=count, fullgraph=True)):
        torch._dynamo.reset()
        count.clear()
        x = ones(torch)
        x.register_hook(lambda grad: grad + 1)
        with compiled_autograd._enable(compiler):
            (x * 3).sum().backward()
        assert x.grad.tolist() == [4, 4, 4, 4] and count.frame_count == 1
    with compiled_autograd.enable(lambda gm: torch._dynamo.optimize("inductor", nopython=True, dynamic=True)(gm)):
        (x * 3).sum().backward()
    assert x.grad.tolist() == [8, 8, 8, 8]


def test_a_compiler_function_of_another_kind_is_not_offered(torch):
    from torch._dynamo import compiled_autograd

    with pytest.raises(compat.NotOffered, match="compiled_autograd"):
        compiled_autograd._enable(lambda gm: 3)


def test_captures_of_compiled_passes_are_graphs(torch):
    from torch._dynamo import compiled_autograd
    from torch._dynamo.utils import counters

    x = ones(torch)
    with compiled_autograd._enable(torch.compile(backend="eager")) as scope:
        for _ in range(2):
            x.grad = None
            (x * 3).sum().backward()
        assert scope.stats().graphs == 1
        assert counters["compiled_autograd"]["captures"] >= 1
    with pytest.raises(compat.NotOffered, match="inductor"):
        counters["inductor"]


def test_a_second_graph_is_an_error_where_recompiling_is(torch):
    f = torch.compile(lambda x: x.cos() if x.dim() == 1 else x.sin().exp(), backend="eager")
    with mock.patch("torch._dynamo.config.error_on_recompile", True):
        f(torch.ones(2))
        f(torch.ones(2))
        with pytest.raises(torch._dynamo.exc.RecompileError):
            f(torch.ones(2, 2))


def test_a_second_graph_of_backward_is_an_error_where_recompiling_is(torch):
    from torch._dynamo import compiled_autograd

    x = ones(torch)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        with mock.patch("torch._dynamo.config.error_on_recompile", True):
            for _ in range(2):
                x.grad = None
                (x * 3).sum().backward()
            with pytest.raises(torch._dynamo.exc.RecompileError):
                x.sin().exp().sum().backward()


def test_modules_recorded_without_optimisation(torch):
    from functorch.compile import nop
    from torch._functorch.aot_autograd import aot_module_simplified

    x = ones(torch)
    out = aot_module_simplified(lambda t: (t * 2,), (x,), nop)(x)
    out[0].sum().backward()
    assert x.grad.tolist() == [2, 2, 2, 2] and nop(3) == 3
    with pytest.raises(compat.NotOffered, match="nop"):
        aot_module_simplified(lambda t: t, (x,), print)


def multiply(x):
    return x * x


def invoking(grad):
    from torch._dynamo._trace_wrapped_higher_order_op import trace_wrapped

    return trace_wrapped(grad, fn=multiply)


def test_a_trace_does_not_enter_what_is_wrapped(torch):
    from torch._dynamo.testing import normalize_gm
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.tensor([0.5, 3.0])
    graph = make_fx(invoking)(x)
    assert graph(x).tolist() == [0.25, 9.0]
    lines = normalize_gm(graph.print_readable(False)).splitlines()
    assert lines[0] == "class invoking(torch.nn.Module):" and lines[1] == '    def forward(self, grad_1: "f32[2]"):'
    assert [i.op for i in graph.instructions()] == ["invoke"] and lines[-1] == "        return trace_wrapped"


def test_wrapped_functions_run_in_hooks_of_every_backend(torch):
    for backend, compiled in itertools.product(("eager", "aot_eager", "inductor"), (False, True)):
        torch._dynamo.reset()
        x, y = ones(torch, 2), ones(torch, 2)
        out = torch.compile(lambda a, b: (a.register_hook(invoking), a * b)[1], backend=backend)(x, y)
        from torch._dynamo import compiled_autograd

        with compiled_autograd._enable(torch.compile(backend=backend)) if compiled else contextlib.nullcontext():
            out.backward(torch.tensor([2.0, 3.0]))
        assert x.grad.tolist() == [4, 9]


def test_branches_are_taken_by_data(torch):
    def f(x):
        return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))

    g = torch.compile(f, fullgraph=True)
    assert g(torch.ones(2)).tolist() == f(torch.ones(2)).tolist() == [2, 2]
    assert g(torch.ones(2) * -1).tolist() == f(torch.ones(2) * -1).tolist() == [-2, -2]


def test_cases_of_dynamo_begin_with_an_empty_cache(torch):
    from torch._dynamo.test_case import TestCase

    count = torch._dynamo.testing.CompileCounter()
    f = torch.compile(lambda x: x * 2, backend=count)
    f(torch.ones(2))

    class T(TestCase):
        def runTest(self):  # noqa: N802
            f(torch.ones(2))

    T().debug()
    assert count.frame_count == 2


def test_what_is_accepted_without_meaning_is_listed(torch):
    torch.compile(lambda x: x, dynamic=True, mode="max-autotune")
    assert {"torch.compile(dynamic=)", "torch.compile(mode=)"} <= set(compat.ignored())


def test_words_of_theirs_are_few_and_short():
    from grapnel.compat.torch import _dynamo

    assert len(_dynamo._WORDS) <= 20
    for row in _dynamo._WORDS:
        assert set(row) == {"here", "there"} and len(row["there"].split()) <= 6, row
