#!/usr/bin/env python3
"""Every row of the hook specifications has a test that carries its id, as in "eager.T4: ..." or "compiled.17 compiled.18 ...".

The rules of eager hooks are numbered by subject: tensor hooks T, results R, handles H, in-place changes P, retain-grad G, undefined
gradients U, throwing hooks E, grad mode M, explicit inputs X, further vectors C, node hooks N, post-accumulate hooks A and
their vectors V, multi-gradient hooks K, saved-tensor hooks S, anomaly mode Y, points settled Q, re-entrancy Z, threads W, module hooks F and B,
optimiser and state hooks O; 6 is the order of everything in one pass. The rows of compiled hooks are 1 to 88, and vectors X1 to X12.

Communication hooks: buckets V, what a hook is given G, the contract of hooks H, futures F, 16-bit compression C, quantisation Q, PowerSGD P,
local SGD L, noop N, optimiser O, saving S, errors E, vectors of the wrapper D; plain numbers are sections.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EAGER = {"T": 12, "R": 6, "H": 12, "P": 7, "G": 10, "U": 3, "E": 6, "M": 4, "X": 11, "C": 7, "N": 16, "A": 18, "V": 3, "K": 7,
         "S": 12, "Y": 4, "Q": 1, "Z": 6, "W": 4, "F": 9, "B": 11, "O": 5}
COMPILED = {"": 88, "X": 12}
COMM = {"V": 6, "G": 4, "H": 5, "F": 6, "C": 6, "Q": 4, "P": 8, "L": 2, "N": 1, "O": 1, "S": 1, "E": 18, "D": 14, "5.": 7, "6.": 9, "10.": 5}
COMM_SECTIONS = {f"comm.{section}" for section in ["1", "2.2", "2.4", "7", "9.1", "9.2", "11"]}
# Rows without a test, and why.
NOT_HERE = {
    "comm.F4": "is about streams of accelerators; there are none yet",
    "eager.W2": "orders streams of accelerators; there are none yet",
}


def ids(kind, letters):
    return {f"{kind}.{letter}{i}" for letter, count in letters.items() for i in range(1, count + 1)}


def main():
    rows = ids("eager", EAGER) | {"eager.6"} | ids("compiled", COMPILED) | ids("comm", COMM) | COMM_SECTIONS
    found = set()
    for path in (ROOT / "tests").rglob("*_test.cpp"):
        for name in re.findall(r'TEST_CASE\(\s*"([^"]*)"', path.read_text()):
            found |= set(re.findall(r"\b(?:eager|compiled)\.\w+|\bcomm\.\w+(?:\.\d+)?", name))
    problems = [f"no test is named {row}" for row in sorted(rows - set(NOT_HERE) - found)]
    problems += [f"a test is named {row}, but there is no such row" for row in sorted(found - rows)]
    problems += [f"{row} has a test now, so it is not missing any more: {NOT_HERE[row]}" for row in sorted(found & set(NOT_HERE))]
    for problem in problems:
        print(problem)
    print(f"{len(rows & found)} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
