#!/usr/bin/env python3
"""Every row of the specification of hooks has a test that carries its id, as in "eager.T4: ..." or "compiled.17 compiled.18 ...".

The rows are read from docs/specification: a row's id is the first cell of a table row, or stands in the text as "row id `6`".
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = {"eager": "eager.md", "compiled": "compiled.md", "comm": "communication.md"}
# Rows without a test, and why.
NOT_HERE = {
    "comm.F4": "is about streams of accelerators; there are none yet",
    "eager.W2": "orders streams of accelerators; there are none yet",
}
ROW = re.compile(r"^\| ([A-Z]?\d+(?:\.\d+)?) \|", re.M)
IN_TEXT = re.compile(r"\brow id `([^`]+)`", re.I)


def rows_of(page):
    text = (ROOT / "docs" / "specification" / page).read_text()
    return ROW.findall(text) + IN_TEXT.findall(text)


def main():
    problems = []
    rows = set()
    for kind, page in PAGES.items():
        listed = rows_of(page)
        problems += [f"{page} has two rows {row}" for row in sorted({r for r in listed if listed.count(r) > 1})]
        rows |= {f"{kind}.{row}" for row in listed}
    found = set()
    for path in (ROOT / "tests").rglob("*_test.cpp"):
        for name in re.findall(r'TEST_CASE\(\s*"([^"]*)"', path.read_text()):
            found |= set(re.findall(r"\b(?:eager|compiled)\.\w+|\bcomm\.\w+(?:\.\d+)?", name))
    problems += [f"no test is named {row}" for row in sorted(rows - set(NOT_HERE) - found)]
    problems += [f"a test is named {row}, but there is no such row in docs/specification" for row in sorted(found - rows)]
    problems += [f"{row} has a test now, so it is not missing any more: {NOT_HERE[row]}" for row in sorted(found & set(NOT_HERE))]
    for problem in problems:
        print(problem)
    print(f"{len(rows & found)} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
