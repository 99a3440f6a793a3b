#!/usr/bin/env python3
"""No function that an ISA-specific object defines can stand in for somebody else's.

    check_isa.py BUILD_DIR

An inline function or template that is used in several objects is kept once by the linker. If the copy
it keeps was compiled for AVX-512, a processor without it dies in code that never asked for it. So a
weak function of an object of grapnel_cpu_avx2 or grapnel_cpu_avx512 may not be defined by any object for another instruction
set, and may not come from the standard library, of which a user's program has copies too.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys

ISA = re.compile(r"/grapnel_cpu_(avx2|avx512)\.dir/")


def objects_of_library(build):
    """Those that the build makes now; its folders may hold objects of sources that are gone."""
    commands = json.loads((build / "compile_commands.json").read_text())
    outputs = [re.search(r" -o (\S+)", command["command"])[1] for command in commands]
    return [build / output for output in sorted(outputs) if output.startswith("grapnel/")]


def weak_functions(path):
    """Mangled names of the functions that `path` defines and offers for merging."""
    table = subprocess.run(["nm", "--defined-only", "--format=posix", str(path)],
                           capture_output=True, check=True, text=True).stdout
    return {name for name, kind, *_ in map(str.split, table.splitlines()) if kind == "W"}


def demangle(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, check=True, text=True).stdout
    return dict(zip(names, text.splitlines()))


def main():
    build = pathlib.Path(sys.argv[1])
    users = collections.defaultdict(lambda: collections.defaultdict(list))  # name -> isa -> objects
    for path in objects_of_library(build):
        match = ISA.search(str(path))
        for name in weak_functions(path):
            users[name][match[1] if match else "baseline"].append(path.name)

    readable = demangle(list(users))
    problems = []
    for name, by_isa in users.items():
        special = set(by_isa) - {"baseline"}
        if special and (len(by_isa) > 1 or name.startswith(("_ZNSt", "_ZNKSt", "_ZSt"))):
            objects = ", ".join(sorted({o for isa in special for o in by_isa[isa]}))
            problems.append(f"{objects}: {readable[name]} could replace, or be replaced by, another copy. "
                            "Give it internal linkage, or force it inline.")
    print("\n".join(problems))
    print(f"{0 if problems else 1} passed, {1 if problems else 0} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
