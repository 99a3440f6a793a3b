#!/usr/bin/env python3
"""Runs the tests of grapnel/dist with processes as ranks: the same test program as for threads, started by mpirun.

    check_mpi.py BUILD       BUILD holds tests/test_dist

Every process runs all test cases; those that need more ranks than there are do nothing.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# (what, number of processes, arguments of the test program, environment)
RUNS = [
    ("2 processes", 2, [], {}),
    ("3 processes", 3, [], {}),
    ("as if on three machines", 3, ["-tc=*every collective*,*sums*"], {"GRAPNEL_MPI_APART": "1"}),
    ("calls compared, counts split", 2, ["-tc=*every collective*,comm.E18*,*gradients are averaged*"],
     {"GRAPNEL_DIST_CHECK": "1", "GRAPNEL_MPI_LARGEST_COUNT": "4"}),
]
SUMMARY = re.compile(r"^\[doctest\] test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed", re.M)


def mpirun(processes, command, env=None, recovery=False):
    """The command line; oversubscribed, and as root where that is who we are."""
    words = ["mpirun", "-np", str(processes), "--oversubscribe", "--bind-to", "none", "--mca", "btl_vader_single_copy_mechanism", "none"]
    if os.geteuid() == 0:
        words.append("--allow-run-as-root")
    if recovery:
        words.append("--enable-recovery")
    for name in env or {}:
        words += ["-x", name]
    return words + command


def first_program(build):
    """The first program of docs/distributed.md is the example, and finds its line on 1, 2 and 3 ranks."""
    block = re.search(r"^```cpp\n(.*?)^```$", (ROOT / "docs/distributed.md").read_text(), re.M | re.S)
    if not block or block[1] != (ROOT / "examples/data_parallel.cpp").read_text():
        yield "docs/distributed.md: the first ```cpp block differs from examples/data_parallel.cpp; copy the file there."
    program = str(pathlib.Path(build, "examples", "data_parallel"))
    for ranks in 1, 2, 3:
        run = subprocess.run(mpirun(ranks, [program]), capture_output=True, text=True, check=False, timeout=120)
        match = re.search(r"^w = (\S+), b = (\S+) on (\d+) ranks", run.stdout, re.M)
        if run.returncode or not match or abs(float(match[1]) - 3) > 0.05 or abs(float(match[2]) - 0.5) > 0.05 or int(match[3]) != ranks:
            yield f"{program} on {ranks} ranks: ended with {run.returncode} and printed {run.stdout!r} {run.stderr[-2000:]!r}"


def main():
    program = pathlib.Path(sys.argv[1], "tests", "test_dist")
    passed = failed = 0
    for what, processes, arguments, env in RUNS:
        command = mpirun(processes, [str(program), "-nc", *arguments], env)
        run = subprocess.run(["timeout", "200", *command], capture_output=True, text=True, check=False,
                             env={**os.environ, **env, "OMP_NUM_THREADS": "1"})
        output = run.stdout + run.stderr
        counts = SUMMARY.findall(output)
        bad = sum(int(f) for _, _, f in counts)
        if run.returncode != 0 or len(counts) != processes or bad or not all(int(n) for n, _, _ in counts):
            failed += max(bad, 1)
            print(f"{what}: status {run.returncode}\n{output[-6000:]}")
        passed += min(int(p) for _, p, _ in counts) if counts else 0
    problems = list(first_program(sys.argv[1]))
    print("\n".join(problems))
    failed += len(problems)
    passed += not problems
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
