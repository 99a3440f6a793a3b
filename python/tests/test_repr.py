"""What notebooks show, and tensors in the queues of multiprocessing."""
import multiprocessing
import re
import xml.etree.ElementTree

import grapnel as g
from grapnel import nn


def parsed(text):
    return xml.etree.ElementTree.fromstring(text.replace("details open", "details"))


def test_matrices_are_tables():
    x = g.tensor([[1.0, 2.5], [3.0, -4.0]], requires_grad=True)
    page = parsed(x._repr_html_())
    assert page.text == "Tensor [2, 2], float32, requires grad"
    assert [[cell.text.strip() for cell in row] for row in page.find("table")] == [["1.0000", "2.5000"], ["3.0000", "-4.0000"]]
    (row,) = parsed((x.detach()[0] > 1)._repr_html_()).find("table")
    assert [cell.text.strip() for cell in row] == ["False", "True"]
    assert "grad_fn=mul" in (x * 2)._repr_html_()


def test_long_tensors_are_shortened_and_others_are_text():
    page = parsed(g.arange(4000).view(2000, 2)._repr_html_())
    assert len(page.find("table")) == 7
    assert parsed(g.zeros(2, 2, 2)._repr_html_()).find("pre").text == repr(g.zeros(2, 2, 2))
    assert parsed(g.zeros(0)._repr_html_()).find("pre").text == "tensor([])"
    assert "7" in parsed(g.tensor(7)._repr_html_()).find("pre").text


def test_modules_are_trees():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

        def extra_repr(self):
            return "a<b>&'c'"

    text = Named()._repr_html_()
    page = parsed(text)
    assert re.findall(r"<small>([\d,]+) parameters", text) == ["16", "16", "16"]
    assert [b.text for b in page.iter("b")] == ["Named", "Sequential", "Linear", "ReLU"] and page.find("summary/code").text == "a<b>&'c'"
    shared = nn.Linear(2, 2)
    assert parsed(nn.Sequential(shared, shared)._repr_html_()).find("summary/small").text == "6 parameters"


def test_graphs_are_tables_of_calls():
    graph = g.trace(lambda x: x.exp().sum(0) + 1, g.ones(2, 3))
    page = parsed(graph._repr_html_())
    rows = [["".join(cell.itertext()) for cell in row] for row in page.find("table")]
    assert [row[1] for row in rows] == ["exp", "sum", "add"] and all("test_repr.py" in row[3] for row in rows)
    assert page.text.startswith("Graph: 3 calls")


def test_small_things_say_what_they_are():
    opt = g.optim.SGD([g.ones(1, requires_grad=True)], lr=0.5)
    rows = g.data.TensorDataset(g.ones(3))
    texts = {
        "<Generator, seed 5>": g.Generator().manual_seed(5), "Lifted(2.0)": g._core.Lifted(2.0), "StepLR(last_epoch=0, lr=[0.5])": g.optim.lr_scheduler.StepLR(opt, 1),
        "TensorDataset(3 examples)": rows, "DataLoader(TensorDataset, batch_size=2, num_workers=0)": g.data.DataLoader(rows, 2), "{}": opt.state,
        "Checkpoint(opt, rate)": g.train.Checkpoint().add("opt", opt).add("rate", {}), "GradScaler(scale=8.0, enabled=True)": g.train.GradScaler(init_scale=8.0),
    }
    assert list(texts) == [repr(value) for value in texts.values()]


# --- between processes ---


def answer(questions, answers):
    """Runs in another process."""
    for kind, value in iter(questions.get, None):
        if kind == "add":
            a, b = value
            a.add_(1)
            answers.put((value, b.tolist()))
        elif kind == "call":
            net, x = value
            answers.put(net(x).detach())
        else:
            answers.put(type(value).__name__ + str(value.requires_grad))


def test_tensors_and_modules_pass_through_queues():
    context = multiprocessing.get_context("spawn")
    questions, answers = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(questions, answers), daemon=True)
    process.start()
    try:
        base = g.zeros(4)
        questions.put(("add", (base, base[2:])))
        (a, b), seen = answers.get(timeout=60)
        assert seen == [1, 1] and a.tolist() == [1] * 4 and base.tolist() == [0] * 4
        b.zero_()
        assert a.tolist() == [1, 1, 0, 0]  # still one memory
        net, x = nn.Sequential(nn.Linear(3, 2), nn.Tanh()), g.randn(5, 3)
        questions.put(("call", (net, x)))
        assert g.equal(answers.get(timeout=60), net(x))
        questions.put(("kind", nn.Parameter(g.ones(2))))
        assert answers.get(timeout=60) == "ParameterTrue"
        for dtype in (g.bfloat16, g.bool, g.int64):
            questions.put(("add", (g.ones(3).to(g.int64 if dtype is g.bool else dtype), g.zeros(0, 3, dtype=dtype))))
            (a, empty), _ = answers.get(timeout=60)
            assert a.tolist() == [2] * 3 and empty.shape == (0, 3) and empty.dtype is dtype
    finally:
        questions.put(None)
        process.join(30)
    assert process.exitcode == 0


def test_a_pending_tensor_has_its_values_on_the_other_side():
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()

    @g.compile
    def step(x):
        y = x * 2
        queue.put(y)
        return y + 1

    assert step(g.ones(2)).tolist() == [3, 3] and queue.get().tolist() == [2, 2]


def test_pools():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(g.exp, [g.zeros(2), g.zeros(1)])[0].tolist() == [1, 1]
