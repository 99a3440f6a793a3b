#!/usr/bin/env python3
"""gdb shows tensors by type, shape and values.

    check_gdb.py BUILD_DIR
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = {
    "small": "f32[2, 2] {1, 2.5, -3, 4}",
    "view": "f32[2, 2] {1, -3, 2.5, 4}",
    "leaf": "bf16[1] requires_grad {1.5}",
    "nothing": "undefined",
    "large": "i64[1000] {" + ", ".join(map(str, range(20))) + ", ...}",
    "shape": "[2, 2]",
}


def missing(program, way, *options):
    """What gdb does not show when it is told of the printers in this way."""
    commands = ["break stop_here", "run"]
    for name in EXPECTED:
        commands += [f"output {name}", "echo \\n"]
    arguments = [argument for command in commands for argument in ("-ex", command)]
    output = subprocess.run(["gdb", "-nx", "-batch", *options, *arguments, str(program)], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, check=False, timeout=120).stdout
    lines = output.splitlines()
    problems = [f"{way}, {name}: no line says {text}" for name, text in EXPECTED.items() if not any(line.endswith(text) for line in lines)]
    return [output, *problems] if problems else []


def main():
    build = pathlib.Path(sys.argv[1])
    program = build / "tests" / "gdb_values"
    ways = {"sourced": ["-ex", f"source {ROOT / 'tools/gdb_printers.py'}"]}
    if (build / "grapnel/libgrapnel.a").exists():  # a shared library has the printers beside it where it is installed
        ways["from the program"] = ["-iex", f"set auto-load safe-path {program.resolve()}"]
    results = [missing(program, way, *options) for way, options in ways.items()]
    for problem in sum(results, []):
        print(problem)
    failed = sum(bool(problems) for problems in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
