#!/usr/bin/env python3
"""Every rule of the eager hook specification has a test that carries its id, as in "eager.T4: ...".

The rules are numbered by subject: tensor hooks T, results R, handles H, in-place changes P, retain-grad G, undefined
gradients U, throwing hooks E, grad mode M, explicit inputs X, further vectors C, node hooks N, post-accumulate hooks A and
their vectors V, multi-gradient hooks K, saved-tensor hooks S, anomaly mode Y, points settled Q, re-entrancy Z, threads W, module hooks F and B,
optimiser and state hooks O; 6 is the order of everything in one pass.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = {"T": 12, "R": 6, "H": 12, "P": 7, "G": 10, "U": 3, "E": 6, "M": 4, "X": 11, "C": 7, "N": 16, "A": 18, "V": 3, "K": 7,
         "S": 12, "Y": 4, "Q": 1, "Z": 6, "W": 4, "F": 9, "B": 11, "O": 5}
# W2 orders streams of accelerators; there are none yet.
NOT_HERE = {"W2"}


def main():
    wanted = {f"{letter}{i}" for letter, count in RULES.items() for i in range(1, count + 1)} | {"6"}
    found = set()
    for path in (ROOT / "tests").rglob("*_test.cpp"):
        found |= set(re.findall(r'TEST_CASE\("eager\.(\w+)', path.read_text()))
    missing = sorted(wanted - NOT_HERE - found)
    unknown = sorted(found - wanted)
    for rule in missing:
        print(f"no test is named eager.{rule}")
    for rule in unknown:
        print(f"a test is named eager.{rule}, but there is no such rule")
    bad = len(missing) + len(unknown)
    print(f"{len(wanted - NOT_HERE) - len(missing)} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
