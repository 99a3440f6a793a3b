"""What runs of PyTorch's test files ended in, kept as counts and names, and the sections of a page that tell of it.

    python -m grapnel.compat.run --record RUNS.json --release 2.13 TEST_FILE...
    python -m grapnel.compat.record RUNS.json docs/porting-from-pytorch.md

The first notes a run, in the place of an earlier one of the same file and release. The second writes the sections "What was run" and "What is not
offered" of a page.
"""
import collections
import json
import re
import sys
from pathlib import Path

KINDS = ["pass", "pass, text not compared", "differs", "not offered", "skipped", "FAIL", "TIMEOUT"]
_HEADS = ["pass", "text", "differs", "not offered", "skipped", "fail", "timeout"]
_GROUPS, _NAMES = 40, 8  # of the list of what is not offered


def noted(file, release, outcomes, ranks=1, backward="eager", launcher="", expected=False):
    """A run of a file, as it is kept."""
    counts = collections.Counter(o.kind for o in outcomes)
    missing = collections.Counter(o.detail for o in outcomes if o.kind == "not offered")
    parts = Path(file).parts
    last = max((i for i, part in enumerate(parts) if part == "test"), default=len(parts) - 1)  # below upstream's own folder
    return {"file": "/".join(parts[last:]), "release": release, "ranks": ranks, "over": launcher or "threads", "backward": backward,
            "expected": expected, "counts": {kind: counts[kind] for kind in KINDS if counts[kind]}, "not offered": dict(sorted(missing.items()))}


def _key(run):
    return run["file"], run["release"], run["ranks"], run["over"], run["backward"]


def add(path, run):
    """Writes a run into a file of runs."""
    runs = {_key(known): known for known in (json.loads(Path(path).read_text()) if Path(path).exists() else [])}
    runs[_key(run)] = run
    Path(path).write_text(json.dumps([runs[key] for key in sorted(runs)], indent=1) + "\n")


def sections(runs):
    """heading -> text of the sections of a page."""
    return {"What was run": _what_was_run(runs), "What is not offered": _what_is_not_offered(runs)}


def _what_was_run(runs):
    listed, others = [r for r in runs if r["expected"]], [r for r in runs if not r["expected"]]
    compiled = {_key(r)[:-1]: r["counts"] for r in runs if r["backward"] == "compiled"}

    def also(run):
        counts = compiled.get(_key(run)[:-1])
        return "not run" if counts is None else "same" if counts == run["counts"] else f"{counts.get('pass', 0)} pass"

    text = ["Files with an expectation file. The last column is for `--backward=compiled`.", ""]
    text += _table(["file", "release"], [[*_named(r), *_counts(r), also(r)] for r in listed if r["backward"] == "eager"], ["compiled"])
    if others:
        text += ["", "Files without one. There, what differs is among the failures.", ""]
        text += _table(["file", "release"], [[*_named(r), *_counts(r)] for r in others if r["backward"] == "eager"])
    return "\n".join(text)


def _named(run):
    how = f", {run['ranks']} ranks over {run['over']}" if run["ranks"] > 1 else ""
    return [f"`{run['file']}`{how}", run["release"]]


def _counts(run):
    return [sum(run["counts"].values()), *(run["counts"].get(kind, 0) for kind in KINDS)]


def _table(left, rows, right=()):
    heads = [*left, "tests", *_HEADS, *right]
    marks = ["---"] * len(left) + ["--:"] * (1 + len(_HEADS)) + ["---"] * len(right)
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in (heads, marks, *rows)]


def _what_is_not_offered(runs):
    """Names by the module they are in, those first that end the most tests."""
    groups = collections.defaultdict(collections.Counter)
    for run in runs:
        if run["backward"] == "eager":
            for name, count in run["not offered"].items():
                owner, last = re.fullmatch(r"((?:\w+\.)*)(.*)", name, re.S).groups()
                groups[owner.rstrip(".")][last] += count
    ranked = sorted(groups.items(), key=lambda item: (-item[1].total(), item[0]))
    text = ["Names that ended tests of the files above, with how many tests each one ended. With arguments in brackets: the name is there, but",
            "does not take them.", "", "| tests | in | names |", "| --: | --- | --- |"]
    for owner, names in ranked[:_GROUPS]:
        shown = sorted(names.items(), key=lambda item: (-item[1], item[0]))
        more = f", and {len(shown) - _NAMES} more" if len(shown) > _NAMES else ""
        listed = ", ".join(f"`{name.replace('|', '/')}` {count}" for name, count in shown[:_NAMES])
        text.append(f"| {names.total()} | `{owner}` | {listed}{more} |")
    rest = ranked[_GROUPS:]
    if rest:
        text += ["", f"{len(rest)} more modules ended {sum(names.total() for _, names in rest)} tests."]
    return "\n".join(text)


def written(page, runs):
    """A page with these sections as the runs say."""
    for heading, text in sections(runs).items():
        page, count = re.subn(rf"(?ms)(^## {re.escape(heading)}\n).*?(?=^## |\Z)", lambda found: f"{found[1]}\n{text}\n\n", page)
        if count != 1:
            raise SystemExit(f"The page has {count} sections '## {heading}', and must have one.")
    return page.rstrip("\n") + "\n"


if __name__ == "__main__":
    _, source, target = sys.argv
    Path(target).write_text(written(Path(target).read_text(), json.loads(Path(source).read_text())))
