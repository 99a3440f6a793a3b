#!/usr/bin/env python3
"""Every #include "grapnel/..." in grapnel/ follows the arrows between the folders.

    base <- tensor <- ops <- autograd <- nn, optim                   (a <- b: b may include a)
                      ops <- io; io, autograd <- data
                      io, nn, optim <- hooks; hooks, data <- train; nn, optim <- dist
                      ops <- capture <- codegen <- compile -> autograd

An arrow carries on: nn may include base. grapnel.h, gdb_printers.cpp and compat/ stand above all folders and may
include anything; nothing in a folder includes them.
"""
import pathlib
import re
import sys

ARROWS = {
    "base": [],
    "tensor": ["base"],
    "ops": ["tensor"],
    "autograd": ["ops"],
    "io": ["ops"],
    "nn": ["autograd"],
    "optim": ["autograd"],
    "dist": ["nn", "optim"],
    "data": ["io", "autograd"],
    "hooks": ["nn", "optim", "io"],
    "train": ["hooks", "data"],
    "capture": ["ops"],
    "codegen": ["capture"],
    "compile": ["codegen", "autograd"],
}
UMBRELLA = {"grapnel.h", "compat", "gdb_printers.cpp"}
ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]grapnel/([^"/>]+)')


def reachable(folder):
    """The folder itself and all that its arrows lead to."""
    found = {folder}
    for below in ARROWS[folder]:
        found |= reachable(below)
    return found


def problems():
    for path in sorted((ROOT / "grapnel").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".inc"}:
            continue
        folder = path.relative_to(ROOT / "grapnel").parts[0]
        if folder in UMBRELLA:
            continue
        if folder not in ARROWS:
            yield f"{path.relative_to(ROOT)}: folder {folder} is not in the table of {__file__}; add it there."
            continue
        allowed = reachable(folder)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and match[1] not in allowed:
                yield (f"{path.relative_to(ROOT)}:{number}: {folder}/ may not include grapnel/{match[1]}; "
                       f"allowed: {', '.join(sorted(allowed))}.")


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found))
    print(f"{0 if found else 1} passed, {1 if found else 0} failed")
    sys.exit(1 if found else 0)
