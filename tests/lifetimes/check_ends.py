#!/usr/bin/env python3
"""Things of every kind end in every way that programs have: no crash, no hang, nothing used that is gone.

    check_ends.py BUILD

Each pair is a run of tests/lifetimes/ends.cpp, as a program or as a plugin that is closed. Where valgrind is installed and the build has no sanitizer of its own, the
ends that destructors bring about are run under it, too.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

KINDS = ["tensor", "compiled", "handle", "optimizer", "ranks", "loader"]
ENDS = ["global", "thread", "main_thread", "static", "exit_in_hook", "fork"]
WATCHED = [(kind, end) for kind in KINDS if kind != "compiled" for end in ["global", "thread"]]
DEADLINE = 120  # seconds for one run; a usual one takes less than one


def run(command, environment):
    """What went wrong, or nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=DEADLINE,
                              env={**os.environ, **environment})
    except subprocess.TimeoutExpired as e:
        return f"hangs\n{e.stdout}\n{e.stderr}"
    if done.returncode != 0:
        return f"ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    if "used at the end" not in done.stdout:
        return f"was not used at the end\n{done.stdout}\n{done.stderr[-2000:]}"
    return None


def main():
    build = pathlib.Path(sys.argv[1])
    program = str(build / "tests" / "ends")
    cache = (build / "CMakeCache.txt").read_text()
    sanitized = re.search(r"^GRAPNEL_SANITIZE:\w+=(.+)$", cache, re.M) is not None
    runs = []
    for kind in KINDS:
        for end in ENDS:
            # A sanitizer's own allocator is not looked after around forks: the child hangs in it if another thread was inside.
            if sanitized and end == "fork":
                continue
            environment = {}
            # What a process leaves behind when it ends in the middle of something is no leak.
            if end == "exit_in_hook":
                environment["ASAN_OPTIONS"] = "detect_leaks=0"
            runs.append((f"{kind}, {end}", [program, kind, end], environment))
        runs.append((f"{kind}, dlclose", [str(build / "tests" / "plugin_host"), str(build / "tests" / "ends_plugin.so"), kind], {}))
    valgrind = None if sanitized else shutil.which("valgrind")
    if valgrind:
        for kind, end in WATCHED:
            command = [valgrind, "-q", "--error-exitcode=9", "--fair-sched=yes", program, kind, end]
            # Not the compiled functions: LLVM would take minutes.
            environment = {"GRAPNEL_ISA": "baseline", "GRAPNEL_NUM_THREADS": "2"}
            runs.append((f"{kind}, {end}, under valgrind", command, environment))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda r: (r[0], run(r[1], r[2])), runs))
    problems = [f"{name}: {problem}" for name, problem in results if problem]
    print("\n".join(problems))
    print(f"{len(results) - len(problems)} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
