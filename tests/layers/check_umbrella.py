#!/usr/bin/env python3
"""What a program reads that includes grapnel.h: so many headers at most, and none of what only the library's sources need.

Fewer are better: every program, and every test, pays for them.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*"(grapnel/[^"]+)"', re.M)
MOST = 143
# Recorder, traces, sessions, locks, tables of hooks and what else programs never name.
INNER = {
    "grapnel/autograd/hook_table.h", "grapnel/autograd/meta.h", "grapnel/base/pool.h", "grapnel/base/spin_lock.h", "grapnel/base/versioned.h",
    "grapnel/capture/recorder.h", "grapnel/capture/run_log.h", "grapnel/capture/slot_table.h", "grapnel/capture/trace.h",
    "grapnel/compile/session.h", "grapnel/dist/communicator.h", "grapnel/dist/executor.h", "grapnel/dist/reducer.h", "grapnel/ops/evaluator.h",
    "grapnel/ops/record.h", "grapnel/tensor/device_memory.h",
}


def includers():
    """Every header that grapnel.h leads to, with the one that leads there."""
    found, todo = {}, [("grapnel/grapnel.h", None)]
    while todo:
        name, by = todo.pop()
        if name in found:
            continue
        found[name] = by
        todo += [(other, name) for other in INCLUDE.findall((ROOT / name).read_text())]
    return found


def main():
    found = includers()
    problems = [f"{by} includes {name}, which programs have no use for: declare what it needs, or move what uses it to a source."
                for name, by in sorted(found.items()) if name in INNER]
    problems += [f"{name} is gone; take it out of INNER." for name in sorted(INNER) if not (ROOT / name).exists()]
    if len(found) > MOST:
        problems.append(f"grapnel.h leads to {len(found)} headers, which are more than {MOST}.")
    print("\n".join(problems))
    print(f"{0 if problems else 1} passed, {1 if problems else 0} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
