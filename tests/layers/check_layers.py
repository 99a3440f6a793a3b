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

Host code has an address: only cpu/ and compile/cpu/ use the pool of threads, and pointers to the memory of tensors. Who else has such
a pointer is listed here and says why; all others make and read values with ops/vectors.h and item(). Where a call goes is asked by
`apply`; the few outside capture/ that ask whether something is recorded are listed here and say why. What the CPU has tiles for is asked
of definitions: compile/ includes nothing of cpu/, but for the CPU's own runners.
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
THREADS = {"cpu/": "", "compile/cpu/": "", "base/": "makes them", "grapnel.h": "the user sets their number"}
# Who has pointers to the memory of tensors, which must be the CPU's, with the reason for those that are not the CPU's.
HOST = {
    "cpu/": "", "compile/cpu/": "", "tensor/": "declares them, and prints a copy", "io/": "files, from and to copies on the CPU",
    "functions/factories.cpp": "writes what it has just made on the CPU",
    "autograd/gradcheck.cpp": "changes inputs behind the back of the version counter",
    "hooks/saved.cpp": "compresses a copy on the CPU", "data/datasets.cpp": "reads pixels and writes a batch, on the CPU",
    "dist/communicator_mpi.cpp": "MPI reads and writes memory of the CPU", "dist/communicator_threads.cpp": "a tensor over the same memory",
    "ops/apply.cpp": "plain numbers", "capture/recorder.cpp": "plain numbers", "compile/memory.cpp": "plain numbers",
    "compile/replay.cpp": "plain numbers",
}
POINTER = re.compile(r"(?:\.|->)(?:host\(\)|data_ptr(?:<|\())")
# Who asks record::active(), once each; the line above the question says why.
ASKS = {
    "autograd/accumulate.cpp", "autograd/inplace.cpp", "autograd/pass.cpp", "autograd/tensor_grad.cpp", "compile/cond.cpp",
    "compile/session.cpp", "dist/reducer_pass.cpp", "ops/invoke.cpp", "optim/optimizer.cpp", "train/grad_scaler.cpp",
}
MOST_ASKS = 12
# ops/ is what an op is; what is more than that has a folder of its own.
MOST_FILES_IN_OPS = 60
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


def question_problems(name, lines):
    if name.startswith("capture/") or name == "ops/record.h":
        return
    asked = [number for number, line in enumerate(lines) if "record::active()" in line]
    if len(asked) > (name in ASKS):
        yield f"{name}:{asked[-1] + 1}: asks whether something is recorded. Call an op, or leave an undo (ops/record.h), or join ASKS."
    for number in asked:
        if not lines[number - 1].lstrip().startswith("//"):
            yield f"{name}:{number + 1}: the line above does not say why it asks whether something is recorded."


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


def number_problems():
    if len(ASKS) > MOST_ASKS:
        yield f"{len(ASKS)} sources ask whether something is recorded; {MOST_ASKS} may."
    files = sum(path.is_file() for path in (ROOT / "grapnel/ops").rglob("*"))
    if files > MOST_FILES_IN_OPS:
        yield f"ops/ has {files} files; {MOST_FILES_IN_OPS} are enough. Does all of it say what an op is?"


def problems():
    yield from symbolizer_problems()
    yield from number_problems()
    for path in sorted((ROOT / "grapnel").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".inc"}:
            continue
        name = str(path.relative_to(ROOT / "grapnel"))
        folder, top = folder_of(name), name.split("/")[0]
        if top not in UMBRELLA and folder not in ARROWS:
            yield f"{name}: folder {folder} is not in the table of {__file__}; add it there."
            continue
        lines = path.read_text().splitlines()
        yield from question_problems(name, lines)
        for number, line in enumerate(lines, 1):
            if POINTER.search(line) and not name.startswith((*HOST, "compat/")):
                yield f"{name}:{number}: takes a pointer to the memory of a tensor. Use ops/vectors.h or item(), or join HOST and say why."
            match = INCLUDE.match(line)
            if not match:
                continue
            if top not in UMBRELLA and folder_of(match[1]) not in (allowed := allowed_for(path, folder)):
                yield f"{name}:{number}: {folder}/ may not include grapnel/{match[1]}; allowed: {', '.join(sorted(allowed))}."
            if folder == "compile" and match[1].startswith("cpu/"):
                yield f"{name}:{number}: compile/ asks definitions, not the CPU. Code that runs plans there belongs to compile/cpu/."
            if match[1] == "base/thread_pool.h" and not name.startswith(tuple(THREADS)):
                yield f"{name}:{number}: only {', '.join(THREADS)} use threads. Host code belongs to cpu/ or compile/cpu/."


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found))
    print(f"{0 if found else 1} passed, {1 if found else 0} failed")
    sys.exit(1 if found else 0)
