"""What is kept of runs of PyTorch's test files, and the sections of the page that are written from it."""
import json
import pathlib

import pytest

from grapnel.compat import record, run

ROOT = pathlib.Path(__file__).resolve().parents[2]


def outcomes(**kinds):
    """So many of each kind; where a name is not offered, its name instead of a number."""
    made = []
    for kind, what in kinds.items():
        made += [run.Outcome(f"T.test_{kind}_{i}", kind.replace("_", " "), detail) for i, detail in enumerate(
            what if isinstance(what, list) else [""] * what)]
    return made


def runs():
    names = ["torch.jit.script", "torch.jit.script", "torch.jit.trace", "torch.vmap", "torch.sum(Tensor, out=)"]
    return [record.noted("/x/test/dynamo/test_a.py", "2.13", outcomes(**{"pass": 3, "differs": 1}), expected=True),
            record.noted("/x/test/dynamo/test_a.py", "2.13", outcomes(**{"pass": 3, "differs": 1}), backward="compiled", expected=True),
            record.noted("/x/test/test_b.py", "2.13", outcomes(**{"pass": 2}), ranks=2, launcher="MPI", expected=True),
            record.noted("/x/test/test_c.py", "2.13", outcomes(**{"pass": 1, "FAIL": 2, "not_offered": names}))]


def test_a_run_is_kept_as_counts_and_names():
    assert runs()[3] == {
        "file": "test/test_c.py", "release": "2.13", "ranks": 1, "over": "threads", "backward": "eager", "expected": False,
        "counts": {"pass": 1, "not offered": 5, "FAIL": 2},
        "not offered": {"torch.jit.script": 2, "torch.jit.trace": 1, "torch.sum(Tensor, out=)": 1, "torch.vmap": 1}}


def test_a_run_takes_the_place_of_an_earlier_one(tmp_path):
    file = tmp_path / "runs.json"
    for one in (*runs(), record.noted("elsewhere/test/test_c.py", "2.13", outcomes(**{"pass": 8}))):
        record.add(file, one)
    kept = json.loads(file.read_text())
    assert len(kept) == 4 and [r["counts"] for r in kept if r["file"] == "test/test_c.py"] == [{"pass": 8}]


def test_the_sections_follow_from_the_runs():
    made = record.sections(runs())
    assert made["What was run"] == """\
Files with an expectation file. The last column is for `--backward=compiled`.

| file | release | tests | pass | text | differs | not offered | skipped | fail | timeout | compiled |
| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --- |
| `test/dynamo/test_a.py` | 2.13 | 4 | 3 | 0 | 1 | 0 | 0 | 0 | 0 | same |
| `test/test_b.py`, 2 ranks over MPI | 2.13 | 2 | 2 | 0 | 0 | 0 | 0 | 0 | 0 | not run |

Files without one. There, what differs is among the failures.

| file | release | tests | pass | text | differs | not offered | skipped | fail | timeout |
| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: |
| `test/test_c.py` | 2.13 | 8 | 1 | 0 | 0 | 5 | 0 | 2 | 0 |"""
    assert made["What is not offered"].splitlines()[-3:] == [
        "| --: | --- | --- |", "| 3 | `torch.jit` | `script` 2, `trace` 1 |", "| 2 | `torch` | `sum(Tensor, out=)` 1, `vmap` 1 |"]


def test_only_the_sections_of_a_page_are_written():
    page = "# P\n\n## What was run\n\nold\n\n## Between\n\nstays\n\n## What is not offered\n\nold\n"
    new = record.written(page, runs())
    assert "old" not in new and new.startswith("# P\n\n## What was run\n\nFiles with")
    assert "\n## Between\n\nstays\n\n## What is not offered\n\nNames" in new
    assert record.written(new, runs()) == new
    with pytest.raises(SystemExit, match="What was run"):
        record.written("# P\n", runs())


def test_the_runner_keeps_what_it_saw(tmp_path, capsys):
    file = tmp_path / "test_some.py"
    file.write_text("import torch, unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        torch.nowhere.f()\n")
    run.main(["--record", str(tmp_path / "r.json"), "--release", "9.9", str(file)])
    (kept,) = json.loads((tmp_path / "r.json").read_text())
    assert (kept["file"], kept["release"], kept["not offered"], kept["counts"]) == ("test_some.py", "9.9", {"torch.nowhere.f": 1}, {"not offered": 1})


def test_the_page_says_what_the_runs_say():
    page = (ROOT / "docs" / "porting-from-pytorch.md").read_text()
    kept = json.loads((ROOT / "python" / "tests" / "compat_runs.json").read_text())
    assert record.written(page, kept) == page
