"""autograd.Function: forward and backward written in Python; ctx is the node."""
import gc
import weakref

import pytest

import grapnel as g
from grapnel.autograd import Function
from grapnel.autograd.function import once_differentiable
from hook_tools import rss


def leaf(*values):
    return g.tensor(list(values), requires_grad=True)


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


def test_forward_and_backward_run():
    x = leaf(1.0, 2.0)
    y = Cube.apply(x)
    assert y.tolist() == [1, 8] and y.grad_fn.name() == "CubeBackward"
    y.sum().backward()
    assert x.grad.tolist() == [3, 12]


def test_gradients_of_gradients():
    x = leaf(2.0)
    (grad,) = g.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    grad.sum().backward()
    assert x.grad.tolist() == [12]


def test_gradcheck_agrees():
    x = g.randn(3, dtype=g.float64).requires_grad_()
    assert g.autograd.gradcheck(Cube.apply, (x,)) and g.autograd.gradgradcheck(Cube.apply, (x,))

    class Wrong(Cube):
        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    with pytest.raises(g.Error):
        g.autograd.gradcheck(Wrong.apply, (x,))
    assert not g.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False)


def test_ctx_is_the_node_and_keeps_attributes_as_long_as_it_lives():
    seen = []

    class Keeps(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            seen.append(ctx)
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            seen.append(ctx)
            return grad * ctx.factor, None

    x = leaf(1.0)
    y = Keeps.apply(x, 5)
    assert y.grad_fn is seen[0] and type(y.grad_fn).__name__ == "KeepsBackward" and y.grad_fn.factor == 5
    seen.clear()
    gc.collect()
    y.grad_fn.note = "kept"
    gc.collect()
    assert y.grad_fn.note == "kept" and y.grad_fn.factor == 5
    y.sum().backward()
    assert x.grad.tolist() == [5] and seen[0] is y.grad_fn


def test_attributes_end_with_the_node():
    class Witness:
        pass

    class Keeps(Cube):
        @staticmethod
        def forward(ctx, x):
            ctx.witness = Witness()
            return Cube.forward(ctx, x)

    y = Keeps.apply(leaf(1.0))
    end = weakref.ref(y.grad_fn.witness)
    gc.collect()
    assert end() is not None
    del y
    gc.collect()
    assert end() is None


def test_setup_context():
    class Scale(Function):
        @staticmethod
        def forward(x, factor):
            return x * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.factor = inputs[1]
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, grad):
            assert ctx.saved_tensors[0].tolist() == [6]
            return grad * ctx.factor, None

    x = leaf(2.0)
    Scale.apply(x, 3).sum().backward()
    assert x.grad.tolist() == [3]


def test_needs_input_grad_and_arguments_of_all_kinds():
    seen = []

    class Many(Function):
        @staticmethod
        def forward(ctx, a, text, b, c):
            seen.append((text, ctx.needs_input_grad))
            return a + b + c

        @staticmethod
        def backward(ctx, grad):
            return grad, None, grad if ctx.needs_input_grad[2] else None, None

    a, b = leaf(1.0), g.ones(1)
    Many.apply(a, "text", b, 2.0).sum().backward()
    assert seen == [("text", (True, False, False, False))] and a.grad.tolist() == [1] and b.grad is None


def test_several_outputs_some_of_them_no_tensors():
    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, "note", x * 3

        @staticmethod
        def backward(ctx, first, note, second):
            assert note is None
            return first * 2 + second * 3

    x = leaf(1.0)
    a, note, b = Split.apply(x)
    assert note == "note"
    b.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [3]
    (a + b).sum().backward()
    assert x.grad.tolist() == [8]


def test_materialize_grads():
    seen = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x, on):
            ctx.set_materialize_grads(on)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            seen.append(first if first is None else first.tolist())
            return second * 3, None

    for on in (True, False):
        Two.apply(leaf(1.0), on)[1].sum().backward()
    assert seen == [[0], None]


def test_mark_dirty_and_non_differentiable():
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            positive = x > 0
            ctx.mark_dirty(x)
            ctx.mark_non_differentiable(positive)
            return x, positive

        @staticmethod
        def backward(ctx, grad, _):
            return grad * 7

    x = leaf(1.0)
    y = x * 2
    z, positive = AddOne.apply(y)
    assert z is y and z.tolist() == [3] and not positive.requires_grad and positive.tolist() == [True]
    z.sum().backward()
    assert x.grad.tolist() == [14]


def test_an_input_that_is_returned_is_another_tensor():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = leaf(1.0)
    y = Same.apply(x)
    assert y is not x and y.grad_fn is not None
    y.sum().backward()
    assert x.grad.tolist() == [2]


def test_once_differentiable():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            assert not g.is_grad_enabled()
            return grad * 2 * ctx.saved_tensors[0]

    x = leaf(3.0)
    Once.apply(x).sum().backward()
    assert x.grad.tolist() == [6]
    (grad,) = g.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    assert grad.tolist() == [6] and grad.requires_grad
    with pytest.raises(g.Error, match="OnceBackward.*once_differentiable"):
        grad.sum().backward()


def test_nothing_is_recorded_without_need():
    class Notes(Cube):
        made = []

        @staticmethod
        def forward(ctx, x):
            Notes.made.append(weakref.ref(ctx))
            return Cube.forward(ctx, x)

    with g.no_grad():
        assert Notes.apply(leaf(1.0)).grad_fn is None
    assert Notes.apply(g.ones(1)).grad_fn is None
    gc.collect()
    assert all(end() is None for end in Notes.made)


def test_mistakes_are_named():
    class Base(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

    class TooFew(Base):
        @staticmethod
        def backward(ctx, grad):
            return grad

    class NoTensor(Base):
        @staticmethod
        def backward(ctx, grad):
            return 3

    x, y = leaf(1.0), leaf(1.0)
    with pytest.raises(g.Error, match="backward of TooFewBackward returned 1 gradients, expected 2"):
        TooFew.apply(x, y).sum().backward()
    with pytest.raises(TypeError, match="NoTensorBackward' returned an object of type 'int'"):
        NoTensor.apply(x, y).sum().backward()
    with pytest.raises(NotImplementedError, match="write a static method backward"):
        Base.apply(x, y).sum().backward()

    class Saves(Base):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)

    with pytest.raises(TypeError, match="save_for_backward"):
        Saves.apply(x)
    with pytest.raises(TypeError):
        g.autograd.function.FunctionCtx()


def test_exceptions_pass_with_type_and_traceback():
    class Raises(Cube):
        @staticmethod
        def backward(ctx, grad):
            raise KeyError("here")

    with pytest.raises(KeyError, match="here") as caught:
        Raises.apply(leaf(1.0)).sum().backward()
    assert caught.traceback[-1].name == "backward"


def test_saved_tensors_are_freed_by_the_pass_and_guarded_by_versions():
    x = leaf(1.0)
    y = Cube.apply(x)
    y.sum().backward()
    with pytest.raises(g.Error, match="freed"):
        y.grad_fn.saved_tensors
    z = x * 1
    y = Cube.apply(z)
    with g.no_grad():
        z.add_(1)
    with pytest.raises(g.Error, match="modified|changed"):
        y.sum().backward()


def test_saved_tensor_hooks_see_what_functions_save():
    packed = []
    with g.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or len(packed) - 1, lambda i: packed[i]):
        y = Cube.apply(leaf(2.0))
    y.sum().backward()
    assert len(packed) == 1


def test_hooks_on_the_node_of_a_function():
    x, seen = leaf(2.0), []
    y = Cube.apply(x)
    y.grad_fn.register_hook(lambda ins, outs: seen.append((ins[0].tolist(), outs[0].tolist())))
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    y.sum().backward()
    assert seen == [([24], [2])] and x.grad.tolist() == [24]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fused"])
def test_functions_compile(backend):
    calls = []

    class Counts(Cube):
        @staticmethod
        def backward(ctx, grad):
            calls.append(1)
            return Cube.backward(ctx, grad)

    x = leaf(1.0, 2.0)

    @g.compile(fullgraph=True, backend=backend)
    def step():
        x.grad = None
        Counts.apply(x).sum().backward()

    for _ in range(3):
        step()
        assert x.grad.tolist() == [3, 12]
    assert len(calls) == 3 and step.stats().graphs <= 1
    with g.CompiledBackward(fullgraph=True, backend=backend):
        x.grad = None
        Counts.apply(x).sum().backward()
    assert x.grad.tolist() == [3, 12]


class Box:
    pass


def note_of_numbers(y):
    y.grad_fn.note = [1.0] * 100


def note_that_is_the_node(y):
    y.grad_fn.note = y.grad_fn
    y.grad_fn.more = [1.0] * 100


def note_that_leads_to_the_node(y):
    y.grad_fn.note = box = Box()
    box.ring = [y.grad_fn, [1.0] * 100]


@pytest.mark.parametrize("take_note", [note_that_is_the_node, note_that_leads_to_the_node])
def test_a_node_that_only_its_own_attributes_keep_is_collected(take_note):
    y = Cube.apply(leaf(2.0))
    take_note(y)
    y.grad_fn.witness = Box()
    end = weakref.ref(y.grad_fn.witness)
    gc.collect()
    assert end() is not None and y.grad_fn.witness is end()  # y keeps the node, which keeps what is set on it
    node = y.grad_fn
    del y
    gc.collect()
    assert node.witness is end() is not None
    del node
    gc.collect()
    assert end() is None


@pytest.mark.flat_memory
@pytest.mark.parametrize("take_note", [note_of_numbers, note_that_is_the_node, note_that_leads_to_the_node])
def test_memory_stays_flat(take_note):
    x = leaf(1.0)

    def once():
        y = Cube.apply(x)
        take_note(y)
        y.sum().backward()

    for _ in range(1000):
        once()
    gc.collect()
    before = rss()
    for _ in range(10000):
        once()
    gc.collect()
    assert rss() - before < 8 << 20


def test_a_hook_may_ask_for_its_context():
    seen = []

    def hook(grad, context):
        seen.append((context.node.name(), context.slot, context.depth, context.final, context.creates_graph, context.hook_name, context.tensor_name))

    x = leaf(1.0)
    x.name = "weight"
    x.register_hook(hook, context=True, name="watch")
    (x * 2).sum().backward()
    assert seen == [("accumulate_grad", 0, 0, True, False, "watch", "weight")]
    with pytest.raises(ValueError, match="context=True"):
        x.register_hook(g.opaque(hook), context=True)


def test_arguments_that_a_call_leaves_out_are_those_of_forward():
    class Power(g.autograd.Function):
        @staticmethod
        def forward(x, y=3):
            return x**y

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.y = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * ctx.y * x ** (ctx.y - 1), None

    for arguments, expected in (((), 12), ((2,), 4)):
        x = g.tensor(2.0, requires_grad=True)
        Power.apply(x, *arguments).backward()
        assert x.grad.item() == expected
    with pytest.raises(TypeError):
        Power.apply(x, 1, 2)
