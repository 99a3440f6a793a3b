#!/usr/bin/env python3
"""Nothing of the library is gone while somebody may still use it.

    check_lifetimes.py BUILD

What the compiler made tells more than the text. No object file of the library

  - has a thread_local with a destructor, or a static object with one (Note [What a thread owns]);
  - starts a thread, but by base::start_thread (Note [Threads and forks]);
  - registers handlers for forks by itself (Note [Forking]);

other than the file that offers it to the others. And every lock in the text is listed below with what it belongs to: a lock of
the whole process is a base::ProcessMutex or is registered by hand, so that a fork finds it free.
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SYMBOLS = {
    "__cxa_thread_atexit": ("a thread_local with a destructor; what a thread owns is a base::PerThread", set()),
    "__cxa_atexit": ("a static object with a destructor; write `static X& x = *new X`", set()),
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE":
        ("a std::thread; use base::start_thread", {"base/threads.cpp"}),
    "pthread_create": ("a thread; use base::start_thread", set()),
    "pthread_atfork": ("handlers for forks; use base::register_at_fork", {"base/at_fork.cpp"}),
}
# Locks of single objects, which are not looked after: what another thread was using is not to be used in a child.
OF_AN_OBJECT = {
    "autograd/checkpoint.cpp": 1, "autograd/meta.h": 2, "autograd/node.h": 2, "base/versioned.h": 1,
    "compat/data/loader.h": 1, "compile/custom.cpp": 1, "compile/replay.cpp": 1, "compile/session.h": 1, "data/data_loader.cpp": 1, "dist/communicator_threads.cpp": 2, "dist/executor.cpp": 1,
    "dist/future.h": 1, "dist/run_threads.cpp": 1, "dist/process_group.cpp": 1, "hooks/nan_guard.cpp": 1, "nn/module.h": 1, "tensor/hook_list.h": 2,
}
# Locks of the process that a child never takes, or that are registered by hand.
OF_THE_PROCESS = {
    "base/at_fork.h": "1 inside ProcessMutex", "base/at_fork.cpp": "1 held by the fork itself", "codegen/jit.cpp": "2 registered", "compile/cache.cpp": "1 registered",
    "codegen/llvm/compile.cpp": "1 taken inside the lock of jit.cpp", "codegen/llvm/link.cpp": "2 taken inside the lock of jit.cpp",
    "dist/init.cpp": "1 of MPI, which has no children", "dist/mpi_engine.h": "2 of MPI", "dist/mpi_ledger.h": "1 of MPI",
}
LOCK = re.compile(r"^\s*(?:static |mutable |constinit |inline )*(?:(?:std::(?:shared_|recursive_|timed_)?mutex|(?:base::)?SpinLock) \w+|std::atomic<bool> locked_|HookListLock \w+;)|.*new std::mutex")


def objects(build):
    """(path in grapnel/, object) of everything that the build makes now."""
    for command in json.loads((build / "compile_commands.json").read_text()):
        output = re.search(r" -o (\S+)", command["command"])[1]
        source = pathlib.Path(command["file"])
        if output.startswith("grapnel/") and (build / output).exists():
            yield str(source.relative_to(ROOT / "grapnel")), build / output


def in_objects(build):
    found = list(objects(build))
    if not found:
        yield f"{build} has no object files of the library; build it first."
    for name, path in found:
        table = subprocess.run(["nm", "--undefined-only", "--format=posix", str(path)], capture_output=True, check=True, text=True).stdout
        for symbol in {line.split()[0] for line in table.splitlines()} & set(SYMBOLS):
            what, allowed = SYMBOLS[symbol]
            if name not in allowed:
                yield f"grapnel/{name} has {what}."


def in_text():
    known = {**OF_AN_OBJECT, **{name: int(text.split()[0]) for name, text in OF_THE_PROCESS.items()}}
    for path in sorted((ROOT / "grapnel").rglob("*")):
        if path.suffix not in {".h", ".cpp"}:
            continue
        name = str(path.relative_to(ROOT / "grapnel"))
        count = sum(bool(LOCK.match(line)) for line in path.read_text().splitlines())
        if count != known.get(name, 0):
            yield (f"grapnel/{name} has {count} locks, {known.get(name, 0)} are listed in {pathlib.Path(__file__).name}.\nA lock of the whole "
                   "process is a base::ProcessMutex; one of a single object is added to the list.")


def main():
    checks = [list(in_objects(pathlib.Path(sys.argv[1]))), list(in_text())]
    for problems in checks:
        for problem in problems:
            print(problem)
    failed = sum(bool(problems) for problems in checks)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
