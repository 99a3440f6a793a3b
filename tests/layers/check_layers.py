#!/usr/bin/env python3
"""Every #include "grapnel/..." in grapnel/ follows the arrows between the folders.

    base <- tensor <- ops <- functions <- autograd <- nn, optim      (a <- b: b may include a)
    base <- math <- ops <- cpu; cpu <- codegen, compile/cpu
                      functions <- io; io, autograd <- data
                      io, nn, optim <- hooks; hooks, data <- train; nn, optim <- dist
                      functions <- capture <- codegen <- compile <- compile/cpu; autograd <- compile

An arrow carries on: nn may include base. What functions/ declares, it declares on tensors alone, so
gradients in ops/ may be written with it. grapnel.h, gdb_printers.cpp and compat/ stand above all folders and may
include anything; nothing in a folder includes them.

Host code has an address: only cpu/ and compile/cpu/ use the pool of threads.
"""
import pathlib
import re
import sys

ARROWS = {
    "base": [],
    "math": ["base"],
    "tensor": ["base"],
    "ops": ["tensor", "math"],
    "functions": ["ops"],
    "cpu": ["ops"],
    "autograd": ["functions"],
    "io": ["functions"],
    "nn": ["autograd"],
    "optim": ["autograd"],
    "dist": ["nn", "optim"],
    "data": ["io", "autograd"],
    "hooks": ["nn", "optim", "io"],
    "train": ["hooks", "data"],
    "capture": ["functions"],
    "codegen": ["capture", "cpu"],
    "compile": ["codegen", "autograd"],
    "compile/cpu": ["compile"],
}
# Who may use threads, with the reason for those that are not the CPU's.
THREADS = {
    "cpu/": "", "compile/cpu/": "", "base/": "makes them", "grapnel.h": "the user sets their number",
    "optim/update.cpp": "shares out the blocks of an update",
}
UMBRELLA = {"grapnel.h", "compat", "gdb_printers.cpp"}
ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]grapnel/([^">]+)')


def folder_of(path):
    """The folder in the table that a path below grapnel/ belongs to."""
    parts = path.split("/")
    return "/".join(parts[:2]) if "/".join(parts[:2]) in ARROWS else parts[0]


def reachable(folder):
    """The folder itself and all that its arrows lead to."""
    found = {folder}
    for below in ARROWS[folder]:
        found |= reachable(below)
    return found


def allowed_for(path, folder):
    if folder == "functions" and path.suffix == ".h":
        return {"functions"} | reachable("tensor")
    return reachable(folder) | ({"functions"} if "ops" in reachable(folder) else set())


def symbolizer_problems():
    """Places of errors are told apart from the library's own by a list of folders."""
    text = (ROOT / "grapnel/base/symbolizer.cpp").read_text()
    listed = set(re.findall(r'"(\w+)"', re.search(r"kFolders\[\] = \{(.*?)\}", text, re.S)[1]))
    for folder in sorted({name.split("/")[0] for name in ARROWS} - listed):
        yield f"base/symbolizer.cpp: kFolders lacks {folder}."


def problems():
    yield from symbolizer_problems()
    for path in sorted((ROOT / "grapnel").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".inc"}:
            continue
        name = str(path.relative_to(ROOT / "grapnel"))
        folder, top = folder_of(name), name.split("/")[0]
        if top not in UMBRELLA and folder not in ARROWS:
            yield f"{name}: folder {folder} is not in the table of {__file__}; add it there."
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            if top not in UMBRELLA and folder_of(match[1]) not in (allowed := allowed_for(path, folder)):
                yield f"{name}:{number}: {folder}/ may not include grapnel/{match[1]}; allowed: {', '.join(sorted(allowed))}."
            if match[1] == "base/thread_pool.h" and not name.startswith(tuple(THREADS)):
                yield f"{name}:{number}: only {', '.join(THREADS)} use threads. Host code belongs to cpu/ or compile/cpu/."


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found))
    print(f"{0 if found else 1} passed, {1 if found else 0} failed")
    sys.exit(1 if found else 0)
