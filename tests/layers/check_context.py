#!/usr/bin/env python3
"""What changes the meaning of code on a thread stands in one struct (Note [One context] in base/context.h).

    check_context.py BUILD_DIR

Every other thread_local of the library is listed below, with the reason why it is no part of the Context: it keeps memory or
objects ready, it counts, or it belongs to the thread and not to what code means there. The next one needs a reason, too.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRATCH = "scratch memory"
REASONS = {
    "base/allocator.cpp": {"thread_cache": "memory kept ready", "thread_ended": "of the thread", "fault": "a test's, of one allocation"},
    "base/at_fork.cpp": {"called": "of the fork under way"},
    "base/context.cpp": {"this_context": "the Context"},
    "base/context.h": {"own": "lists that the Context points to"},
    "base/interrupt.cpp": {"last_asked": "a clock"},
    "base/per_thread.cpp": {"ends": "of the thread"},
    "base/pool.cpp": {"thread_ended": "of the thread", "pool_lists": "memory kept ready"},
    "base/thread_pool.cpp": {"inside_piece": "whether the pool may be had, which changes no result"},
    "autograd/node.cpp": {"graveyard": "what waits to be freed"},
    "capture/declared.cpp": {"own_words": SCRATCH},
    "capture/recorder_end.cpp": {"thread_spare": "memory kept ready"},
    "codegen/llvm/guard.cpp": {"escape": "where LLVM's fatal errors end, in the module only", "reason": "their text"},
    "codegen/llvm/ir_value.h": {"current_": "of the kernel being made, in the module only"},
    "codegen/llvm/link.cpp": {"reported": "where LLVM's linker reports to, in the module only"},
    "compile/cpu/group_run.cpp": {"thread_own": SCRATCH},
    "cpu/kernels/attention.cpp": {"own_memory": SCRATCH},
    "cpu/kernels/conv_im2col.cpp": {"own_scratch": SCRATCH},
    "cpu/kernels/conv_onednn.cpp": {"own_scratch": SCRATCH, "own_src_scratch": SCRATCH, "own_dst_scratch": SCRATCH},
    "cpu/kernels/gemm.cpp": {"own_scratch": SCRATCH},
    "cpu/kernels/onednn.cpp": {"stream": "an object of oneDNN's kept ready"},
    "dist/executor.cpp": {"running": "of the executor whose thread it is"},
    "dist/executor.h": {"running": "declared there"},
    "dist/future.cpp": {"progress_while_waiting": "who drives communication while the thread waits, which changes no result"},
    "functions/assign.cpp": {"innermost": "what the expressions of the thread copied, found by tensor"},
    "ops/apply.cpp": {"spare_number": "an object kept ready"},
    "tensor/tensor.cpp": {"registered": "a count"},
}
def names(path):
    for line in path.read_text().splitlines():
        code = line.split("//")[0].strip()
        if "thread_local" not in code or code.startswith("extern "):
            continue
        declaration = re.split(r"\[\[|[;={]", code.split("thread_local", 1)[1])[0]
        yield re.findall(r"\w+", re.sub(r"\[.*", "", declaration))[-1]


def main():
    found = {}
    for path in sorted((ROOT / "grapnel").rglob("*")):
        if path.suffix in {".h", ".cpp"} and (here := set(names(path))):
            found[str(path.relative_to(ROOT / "grapnel"))] = here
    problems = []
    for name in sorted(set(found) | set(REASONS)):
        listed = set(REASONS.get(name, {}))
        for extra in sorted(found.get(name, set()) - listed):
            problems.append(f"grapnel/{name}: '{extra}' is thread_local and not listed in {pathlib.Path(__file__).name}.\n"
                            "If it changes what code means, it is a member of Context; else list it with the reason.")
        for gone in sorted(listed - found.get(name, set())):
            problems.append(f"grapnel/{name}: '{gone}' is listed in {pathlib.Path(__file__).name} and not thread_local any more.")
    for problem in problems:
        print(problem)
    print(f"{0 if problems else 1} passed, {1 if problems else 0} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
