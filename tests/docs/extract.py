#!/usr/bin/env python3
"""Turns the code blocks of a document into a test program.

    extract.py ROOT DOCUMENT OUT.cpp

A section (from one ## heading to the next) becomes one test case, with its ```cpp blocks in their order. What a reader can imagine but a compiler
cannot stands in comments that no reader sees, between or before the blocks. Includes stand there, in a block, or in a sentence (`#include <iostream>`):

    <!-- given
    Tensor x = randn({8, 2});
    -->

A block that is a whole program has to be one of the examples, which other tests run; one that begins with the path of a file has to be in that file.
"""
import pathlib
import re
import sys

PIECE = re.compile(r"^## (?P<heading>.*?)$|^<!-- given\n(?P<given>.*?)^-->$|^```cpp\n(?P<code>.*?)^```$", re.M | re.S)
# A document shows values without using them.
RELAXED = ["unused-variable", "unused-but-set-variable", "unused-value", "unused-result", "shadow"]
HOISTED = re.compile(r"^#include .*$", re.M)
ASSUMED = re.compile(r"`(#include [^`]+)`")


def problem_with(root, document, code):
    """Blocks that are not compiled here but must be true elsewhere: None if that is none, else what is wrong or ''."""
    if "int main(" in code:
        examples = [path.read_text() for path in (root / "examples").glob("*.cpp")]
        return "" if code in examples else f"{document}: a whole program is not among the examples:\n{code}"
    quoted = re.match(r"// (\S+/\S+\.(?:h|cpp))\n", code)
    if quoted:
        source = (root / quoted[1]).read_text()
        return "" if code[quoted.end():].strip() in source else f"{document}: what is said to be in {quoted[1]} is not:\n{code}"
    return None


def main():
    root, document, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    name = document.relative_to(root)
    text = document.read_text()
    sections, heading, includes = {}, "the beginning", ASSUMED.findall(text)
    for piece in PIECE.finditer(text):
        if piece["heading"]:
            heading = piece["heading"]
            continue
        code = piece["given"] or piece["code"] or ""
        problem = problem_with(root, name, code) if piece["code"] else None
        if problem:
            sys.exit(problem)
        includes += HOISTED.findall(code)
        if problem is None:
            line = text.count("\n", 0, piece.start()) + 2
            # Compilers then name the line of the document.
            sections.setdefault(heading, []).append(f'#line {line} "{name}"\n' + HOISTED.sub("", code).replace("using namespace grapnel;", ""))
    cases = "".join(f'TEST_CASE("{name}: {title}") {{\n{"".join(parts)}}}\n\n' for title, parts in sections.items()
                    if any(line.strip() for part in parts for line in part.splitlines()[1:]))
    includes = "".join(f"{line}\n" for line in dict.fromkeys(includes) if "grapnel/grapnel.h" not in line)
    out.write_text(f"// Made from {name} by tests/docs/extract.py.\n#include <doctest/doctest.h>\n\n#include \"grapnel/grapnel.h\"\n{includes}\n"
                   "using namespace grapnel;\n" + "".join(f'#pragma GCC diagnostic ignored "-W{w}"\n' for w in RELAXED) + "\n" + cases)


if __name__ == "__main__":
    main()
