"""Runs test files written for PyTorch, untouched, against Grapnel.

    python -m grapnel.compat.run [--ranks 2] [--backward=compiled] [--expect FILE.toml] TEST_FILE...

Each file runs in a process of its own, each test for at most a minute. A test ends as

    pass                      as it is written
    pass, text not compared   values hold; the text of a graph is another compiler's, as the expectation file says
    differs (reason)          asserts what PyTorch cannot do, as the expectation file says
    not offered (name)        uses a name that is not here, or one with arguments that it does not take here
    skipped (reason)          skips itself
    FAIL, TIMEOUT             what is to be mended

The expectation file names the tests that do not simply pass: `[text] tests = [...]`, and tables `[differs]`, `[not_offered]`, `[skipped]` and
`[fails]` with the reason behind each test's name; `{ error = "TypeError", reason = "..." }` for a difference that is no failed assertion. The
status is 0 when every test ends as expected; a test that passes unexpectedly does not. Without a file, every test is expected to pass, not to be
offered, or to skip itself.
"""
import argparse
import collections
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from grapnel.compat import record
from grapnel.compat.record import KINDS

_TABLES = {"differs": "differs", "not offered": "not_offered", "skipped": "skipped", "FAIL": "fails", "TIMEOUT": "fails"}
_KIND_OF = {"pass": "pass", "text": "pass, text not compared", "not offered": "not offered", "skip": "skipped"}
SECONDS = 60


class Outcome:
    """How one test ended."""

    def __init__(self, name, kind, detail="", seconds=0.0, trace="", text=()):
        self.name, self.kind, self.detail, self.seconds, self.trace, self.text = name, kind, detail, seconds, trace, text

    def __str__(self):
        return f"{self.kind} ({self.detail})" if self.detail else self.kind


class Expectation:
    """Which tests of a file do not simply pass, and why."""

    def __init__(self, path=None):
        found = tomllib.loads(Path(path).read_text()) if path else {}
        unknown = set(found) - {"text", "differs", "not_offered", "skipped", "fails"}
        if unknown:
            raise SystemExit(f"{path}: unknown tables {sorted(unknown)}; there are text, differs, not_offered, skipped and fails.")
        self.given = path is not None
        self.texts = list(found.get("text", {}).get("tests", []))
        self.tables = {kind: found.get(table, {}) for kind, table in _TABLES.items()}

    def settle(self, outcome):
        """What upstream's limits are is known only here: a failed assertion becomes `differs` when the file says so."""
        reason = self.tables["differs"].get(outcome.name)
        error = "AssertionError"
        if isinstance(reason, dict):
            reason, error = reason["reason"], reason["error"]
        if outcome.kind == "FAIL" and reason is not None and outcome.detail.startswith(error + ":"):
            outcome.kind, outcome.detail = "differs", reason

    def wrong(self, outcome):
        """What is not as expected about an outcome; empty if all is."""
        if not self.given:
            return outcome.kind if outcome.kind in ("FAIL", "TIMEOUT") else ""
        expected = {kind for kind, table in self.tables.items() if outcome.name in table}
        if outcome.name in self.texts:
            expected.add("pass, text not compared")
        if outcome.kind in (expected or {"pass"}):
            return ""
        return f"{outcome} is not expected" + (f", but {' or '.join(sorted(expected))}" if expected else "")

    def absent(self, names):
        listed = set(self.texts).union(*self.tables.values())
        return sorted(listed - set(names))


def run_file(path, expectation, ranks=1, backward="eager", only="", seconds=SECONDS):
    """(outcomes, what was ignored) of one file. A test that hangs or kills its process ends alone; the others run in a new one."""
    outcomes, ignored, names = {}, collections.Counter(), None
    while names is None or any(name not in outcomes for name in names):
        task = dict(file=str(path), done=list(outcomes), texts=expectation.texts, backward=backward, only=only)
        running, ended, broken = None, None, None
        with _Child(task, ranks) as child:
            for said in child.says(seconds):
                if "tests" in said:
                    names = said["tests"]
                elif "broken" in said:
                    broken = said
                elif "begin" in said:
                    running = said["begin"]
                elif "end" in said:
                    running = None
                    outcomes[said["end"]] = outcome_of(said)
                elif "ignored" in said:
                    ignored.update(said["ignored"])
            ended = child.end()
        if broken or names is None:
            return [_unreadable(Path(path).name, broken, ended, child.hung, seconds)], ignored
        if running is not None:
            outcomes[running] = Outcome(running, "TIMEOUT", f"{seconds:g} s") if child.hung else Outcome(
                running, "FAIL", f"its process ended with {ended}")
        else:
            for name in names:
                outcomes.setdefault(name, Outcome(name, "FAIL", f"the process of the file ended with {ended} between tests" if ended or child.hung
                                                  else "did not run"))
    for outcome in outcomes.values():
        expectation.settle(outcome)
    return [outcomes[name] for name in names], ignored


def _unreadable(name, broken, ended, hung, seconds):
    """The outcome of a file whose tests cannot be listed."""
    if broken:
        kind, detail = broken["broken"]
        return Outcome(name, _KIND_OF.get(kind, "FAIL"), detail, trace=broken["trace"])
    return Outcome(name, "TIMEOUT", f"{seconds:g} s") if hung else Outcome(name, "FAIL", f"its process ended with {ended}")


class _Child:
    """The process that runs the tests of a file, and all that it starts: none of them is left behind."""

    def __init__(self, task, ranks):
        self.read, write = os.pipe()
        self.hung = False
        self.process = subprocess.Popen([sys.executable, "-m", "grapnel.compat._child", str(write)], pass_fds=[write], process_group=0,
                                        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=os.environ | {"GRAPNEL_COMPAT_RANKS": str(ranks)})
        os.close(write)
        with contextlib.suppress(BrokenPipeError), self.process.stdin as stdin:
            stdin.write(json.dumps(task).encode())

    def __enter__(self):
        return self

    def says(self, seconds):
        """What it writes, until it ends or is silent for too long."""
        for line in _lines(self.read, seconds):
            if line is None:
                self.hung = self.process.poll() is None  # else only something that it started holds the pipe
                return
            yield json.loads(line)

    def end(self):
        """Its status. When it hung it is killed."""
        if self.hung:
            self._kill()
        return self.process.wait()

    def __exit__(self, *error):
        self._kill()
        self.process.wait()

    def _kill(self):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


def outcome_of(said):
    return Outcome(said["end"], _KIND_OF.get(said["kind"], "FAIL"), said["detail"], said["seconds"], said["trace"], said["text"])


def _lines(pipe, seconds):
    """Lines from a pipe, which is closed at the end; None when the next one takes longer than that."""
    rest = b""
    with os.fdopen(pipe, "rb", 0) as file:
        while True:
            ready, _, _ = select.select([file], [], [], seconds)
            if not ready:
                yield None
                return
            more = file.read(65536)
            if not more:
                return
            *lines, rest = (rest + more).split(b"\n")
            yield from lines


def summary(outcomes):
    counts = collections.Counter(o.kind for o in outcomes)
    return f"{len(outcomes)} tests: " + "; ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m grapnel.compat.run", description="Runs test files written for PyTorch against Grapnel.")
    parser.add_argument("--ranks", type=int, default=1, help="how many ranks distributed tests see")
    parser.add_argument("--backward", choices=["eager", "compiled"], default="eager", help="compiled: every test inside CompiledBackward")
    parser.add_argument("--expect", help="which tests do not simply pass, and why (TOML)")
    parser.add_argument("--record", metavar="RUNS.json", help="notes counts and names there, for grapnel.compat.record")
    parser.add_argument("--release", default="", help="what --record calls the release that the files are from")
    parser.add_argument("--only", default="", help="only tests whose name contains this")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long one test may take")
    parser.add_argument("-v", "--verbose", action="store_true", help="where tests failed, and the texts that were not compared")
    parser.add_argument("files", nargs="+", metavar="TEST_FILE")
    options = parser.parse_args(argv)
    rank, options.ranks, options.launcher = launched(options.ranks)
    if rank > 0:
        options.record = None
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere if rank > 0 else sys.stdout):
        return report(options)


def launched(ranks):
    """(rank, how many there are, over what): those of mpirun where it started this process."""
    for own, all_of_them in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
        if own in os.environ:
            return int(os.environ[own]), int(os.environ[all_of_them]), "MPI"
    return 0, ranks, "threads"


def report(options):
    expectation = Expectation(options.expect)
    everything, unexpected, ignored = [], [], collections.Counter()
    for path in options.files:
        began = time.perf_counter()
        outcomes, more = run_file(path, expectation, options.ranks, options.backward, options.only, options.seconds)
        ignored += more
        if options.record:
            record.add(options.record, record.noted(path, options.release, outcomes, options.ranks, options.backward, options.launcher,
                                                    expectation.given))
        print(path)
        for outcome in outcomes:
            print(f"  {outcome.name}: {outcome}", flush=True)
            if options.verbose and outcome.kind not in ("pass", "differs"):
                print("".join(f"      {line}\n" for line in (outcome.trace or "\n".join(outcome.text)).splitlines()), end="")
            if what := expectation.wrong(outcome):
                unexpected.append(f"{outcome.name}: {what}")
        print(f"  {summary(outcomes)}; {time.perf_counter() - began:.1f} s\n")
        everything += outcomes
    if not options.only:
        unexpected += [f"{name}: expected, but there is no such test" for name in expectation.absent(o.name for o in everything)]
    missing = collections.Counter(o.detail for o in everything if o.kind == "not offered")
    if missing:
        print("Not offered, by the number of tests that ended there:")
        for name, count in sorted(missing.items(), key=lambda item: (-item[1], item[0])):
            print(f"  {count:5}  {name}")
    if ignored:
        print("Accepted without meaning: " + ", ".join(ignored))
    if len(options.files) > 1:
        print(summary(everything))
    for line in unexpected:
        print(f"unexpected: {line}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
