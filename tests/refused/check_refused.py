#!/usr/bin/env python3
"""Misuse that must not compile, and the sentence the compiler must say about it.

    check_refused.py BUILD     BUILD is a configured build directory; its compiler is used
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# (what, a statement with a tensor x, a node n and a data-parallel model d, a part of the message; None: it must compile)
CASES = [
    ("a well-formed hook", "x.register_hook([](const Tensor& g) { return g * 2; });", None),
    ("eager.R3: a tensor hook that returns a number", "x.register_hook([](const Tensor&) { return 1.0; });",
     "a tensor hook returns nothing, a Tensor or std::optional<Tensor>"),
    ("a tensor hook that takes nothing", "x.register_hook([] {});", "a tensor hook is called as hook(const Tensor& grad)"),
    ("eager.A5: a post-accumulate hook that returns a gradient",
     "x.register_post_accumulate_grad_hook([](const Tensor& leaf) { return leaf.grad(); });",
     "a post-accumulate hook gets the leaf, not its gradient, and returns nothing"),
    ("eager.N4: a node pre-hook that returns one tensor", "n->register_prehook([](const variable_list& g) { return g[0]; });",
     "a node hook returns nothing, a variable_list or std::optional<variable_list>"),
    ("a node post-hook with one argument", "n->register_hook([](const variable_list&) {});",
     "a node post-hook is called as hook(const variable_list& grad_inputs"),
    ("eager.S8: an unpack hook that returns no tensor",
     "autograd::SavedTensorHooks s([](const Tensor& t) { return t; }, [](const Tensor&) { return 1; });", "unpack must return a tensor"),
    ("a well-formed comm hook", "d.register_comm_hook([](dist::GradBucket& b) { return dist::Future<Tensor>(b.buffer()); });", None),
    ("comm.E2: a comm hook that cannot be called", "d.register_comm_hook(7);", "a comm hook is called as hook(dist::GradBucket&)"),
    ("comm.E3: a comm hook that takes a tensor", "d.register_comm_hook([](const Tensor& t) { return dist::Future<Tensor>(t); });",
     "a comm hook is called as hook(dist::GradBucket&)"),
    ("comm.E4: a comm hook that returns no future", "d.register_comm_hook([](dist::GradBucket& b) { return b.buffer(); });",
     "a comm hook returns dist::Future<Tensor>"),
    ("the state of a comm hook as a plain variable", "int s = 0; d.register_comm_hook(s, [](int&, dist::GradBucket& b) { return dist::Future<Tensor>(b.buffer()); });",
     "pass the state of a comm hook as std::shared_ptr, std::ref or a value"),
    ("an optimiser without step_param", "dist::hooks::hook_then_optimizer(dist::hooks::allreduce, std::make_shared<int>(1));",
     "the optimiser must offer step_param(param, grad)"),
    ("K4: a tensor among the constants of a declared hook", "CompiledNodeArgs a; a.declare(\"mine\", x);", "tensors are lifted with args.lift(tensor)"),
    ("a branch on a lifted number", "Lifted k; if (k > 1) {}", "deleted function"),
    ("a tensor in a condition", "if (x) {}", "deleted function"),
]
# What programs include first.
HEADERS = ["grapnel/grapnel.h", "grapnel/compat/torch.h"]
PROGRAM = """#include <grapnel/grapnel.h>
using namespace grapnel;
void use(Tensor x, NodePtr n, dist::DataParallelModule& d) {{ (void)n; (void)d; {} }}
"""


def compiler(build):
    cache = pathlib.Path(build, "CMakeCache.txt").read_text()
    return re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.M).group(1)


def main():
    command = [compiler(sys.argv[1]), "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", str(ROOT), "-"]
    failed = 0
    for what, statement, message in CASES:
        run = subprocess.run(command, input=PROGRAM.format(statement), capture_output=True, text=True, check=False)
        if message is None:
            good = run.returncode == 0
        else:
            good = run.returncode != 0 and message in run.stderr
        if not good:
            failed += 1
            print(f"{what}: expected {message or 'no error'}, got\n{run.stderr[:2000]}")
    # An older standard is the first thing the compiler speaks of, not the hundredth.
    command[1] = "-std=c++17"
    for header in HEADERS:
        run = subprocess.run(command, input=f"#include <{header}>\n", capture_output=True, text=True, check=False)
        errors = [line for line in run.stderr.splitlines() if "error" in line]
        if not errors or "Grapnel needs C++20" not in errors[0]:
            failed += 1
            print(f"{header} below C++20: {errors[:2]}")
    print(f"{len(CASES) + len(HEADERS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
