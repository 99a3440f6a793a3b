"""PyTorch's own tests of hooks, timed on PyTorch and on Grapnel in turns: wall time and CPU time, with all that a process starts.

    PYTHONPATH=build/release/python python bench/hook_tests.py TORCH_PYTHON EXPECT.toml=TEST_FILE...

TORCH_PYTHON is the interpreter of an environment with torch, pytest and expecttest. Each file is one of a release of PyTorch, as it is there, and
EXPECT.toml says how its tests end here. A turn counts only when all tests of PyTorch pass or skip themselves there, and all end as expected here.
PyTorch keeps compiled code on disk: the first figure of a turn is with an empty folder for it, the second finds what the first left.
"""
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

TURNS = 3


def timed(command, **environment):
    """(wall, CPU, output) of a command that must succeed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def theirs(torch_python, files, cache):
    return timed([torch_python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files], TORCHINDUCTOR_CACHE_DIR=cache, PYTHONPATH="",
                 PYTHONDONTWRITEBYTECODE="1")


def ours(pairs):
    wall, cpu, counts = 0.0, 0.0, []
    for expect, file in pairs:
        w, c, out = timed([sys.executable, "-m", "grapnel.compat.run", "--expect", expect, file])
        wall, cpu = wall + w, cpu + c
        counts.append(re.search(r"^  (\d+ tests: .*); [\d.]+ s$", out, re.M)[1])
    return wall, cpu, " | ".join(counts)


def main():
    torch_python, pairs = sys.argv[1], [argument.split("=", 1) for argument in sys.argv[2:]]
    files = [file for _, file in pairs]
    print(f"{'turn':4} {'':26} {'wall s':>8} {'CPU s':>8}")
    for turn in range(1, TURNS + 1):
        with tempfile.TemporaryDirectory() as cache:
            for name, run in (("PyTorch", lambda: theirs(torch_python, files, cache)), ("Grapnel", lambda: ours(pairs)),
                              ("PyTorch, code on disk", lambda: theirs(torch_python, files, cache)), ("Grapnel, again", lambda: ours(pairs))):
                wall, cpu, out = run()
                print(f"{turn:4} {name:26} {wall:8.2f} {cpu:8.2f}  {re.sub(r' in [0-9].*', '', out.strip().splitlines()[-1])}", flush=True)


if __name__ == "__main__":
    main()
