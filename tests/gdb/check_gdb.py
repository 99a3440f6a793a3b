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


def main():
    program = pathlib.Path(sys.argv[1], "tests", "gdb_values")
    commands = ["set confirm off", f"source {ROOT / 'tools/gdb_printers.py'}", "break stop_here", "run"]
    for name in EXPECTED:
        commands += [f"output {name}", "echo \\n"]
    arguments = [argument for command in commands for argument in ("-ex", command)]
    output = subprocess.run(["gdb", "-nx", "-batch", *arguments, str(program)], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, check=False, timeout=120).stdout
    lines = output.splitlines()
    missing = [f"{name}: no line says {text}" for name, text in EXPECTED.items() if not any(line.endswith(text) for line in lines)]
    if missing:
        print(output)
    for problem in missing:
        print(problem)
    print(f"{len(EXPECTED) - len(missing)} passed, {len(missing)} failed")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
