#!/usr/bin/env python3
"""Ranks that are killed, stopped or throw, over both backends: none may hang, none may corrupt anything.

    check_faults.py BUILD

GRAPNEL_FAULTS says how many seeded faults to try in all, half of them with processes; by default 60 with threads and 10 with processes.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from check_mpi import mpirun

DEADLINE = 60  # seconds for one fault; a rank notices within 1.5, and at once if another one throws


# Short sums travel in one piece, long ones in parts of pieces. Messages of most of these are equally long.
SUMS = [(4, 8), (300, 600), (300, 1 << 20), (1 << 19, 1 << 20), (3 << 19, 5 << 19)]


def sums(program, a, b):
    """Ranks that sum different numbers of elements: all are told, before the time is up."""
    run = subprocess.run(mpirun(2, [program, "sums", str(a), str(b)], recovery=True), capture_output=True, text=True, check=False, timeout=DEADLINE)
    outcomes = sorted(re.findall(r"rank (\d) (survived|FAILED)", run.stdout))
    told = outcomes == [("0", "survived"), ("1", "survived")] and "was not complete" not in run.stdout
    return None if told else f"sums of {a} and {b} elements: {outcomes}\n{run.stdout}{run.stderr[-2000:]}"


def processes(program, seed):
    """A line that says what went wrong, or nothing. The plan of the fault is drawn in the program, ranks included."""
    ranks, what = subprocess.run([program, "plan", str(seed)], capture_output=True, text=True, check=True).stdout.splitlines()
    ranks = int(ranks)
    with tempfile.TemporaryFile("w+") as out:
        command = mpirun(ranks, [program, "mpi", str(seed)], recovery=True)
        try:
            subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=DEADLINE, check=False)
        except subprocess.TimeoutExpired:
            out.seek(0)
            return f"seed {seed} ({what}): hangs\n{out.read()[-2000:]}"
        out.seek(0)
        text = out.read()
    outcomes = re.findall(r"rank (\d) (survived|FAILED)", text)
    if any(outcome == "FAILED" for _, outcome in outcomes) or len({rank for rank, _ in outcomes}) < ranks - 1:
        return f"seed {seed} ({what}): {outcomes}\n{text[-3000:]}"
    return None


def main():
    program = str(pathlib.Path(sys.argv[1], "tests", "dist_faults"))
    total = int(os.environ.get("GRAPNEL_FAULTS", "70"))
    by_mpi = total // 2 if "GRAPNEL_FAULTS" in os.environ else 10
    failed = 0
    threads = subprocess.run([program, "threads", "1", str(total - by_mpi)], capture_output=True, text=True, check=False, timeout=900)
    if threads.returncode != 0:
        failed += 1
        print(threads.stdout[-4000:], threads.stderr[-2000:])
    if pathlib.Path(sys.argv[1], "grapnel", "libgrapnel_mpi.so").exists():
        problems = [processes(program, seed) for seed in range(1000, 1000 + by_mpi)]
        problems += [sums(program, a, b) for a, b in SUMS]
        total += len(SUMS)
        for problem in filter(None, problems):
            failed += 1
            print(problem)
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
