#!/usr/bin/env python3
"""README.md's first program is examples/first_hook.cpp, and it runs; the examples of docs/hooks.md are those of
tests/compile/guide_test.cpp, which runs them; docs/operations.md names all operations and docs/environment.md all variables; links in the documents
lead somewhere.

    check_readme.py <build folder>
"""
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = re.compile(r"^```cpp\n(.*?)^```$", re.M | re.S)
BLOCK = re.compile(r"<!--.*?-->|^```.*?^```$|^ {4}[^\n]*$|`[^`\n]+`", re.M | re.S)  # unseen, fenced, indented, or in a sentence
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def first_program():
    """The first code block equals the example, byte by byte."""
    block = CODE.search((ROOT / "README.md").read_text())
    example = (ROOT / "examples/first_hook.cpp").read_text()
    if not block or block[1] != example:
        yield "README.md: the first ```cpp block differs from examples/first_hook.cpp; copy the file there."


def output(build):
    """The program finds the line it was made for, and the hook was called."""
    program = build / "examples/first_hook"
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    match = re.fullmatch(r"w = (\S+), b = (\S+), clipped (\d+) times\n", result.stdout)
    if result.returncode or not match:
        yield f"{program}: ended with {result.returncode} and printed {result.stdout!r} {result.stderr!r}"
    elif abs(float(match[1]) - 3) > 0.05 or abs(float(match[2]) - 0.5) > 0.05 or int(match[3]) < 1:
        yield f"{program}: found {match[0]!r}; expected w near 3, b near 0.5 and some clipping."


def guide():
    """Every code block of the guide stands in its test program between "// guide" and "// end", in the same order."""
    blocks = CODE.findall((ROOT / "docs/hooks.md").read_text())
    source = (ROOT / "tests/compile/guide_test.cpp").read_text()
    tested = [textwrap.dedent(text) for text in re.findall(r"^  // guide\n(.*?)^  // end$", source, re.M | re.S)]
    for block in blocks:
        if block not in tested:
            yield f"docs/hooks.md: this block is not in tests/compile/guide_test.cpp:\n{block}"
    if len(blocks) != len(tested):
        yield f"docs/hooks.md has {len(blocks)} blocks, tests/compile/guide_test.cpp {len(tested)}."


def named(document):
    """Everything that a document sets in code."""
    text = (ROOT / document).read_text()
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))


def operations():
    """The page of operations has every free function on tensors and every method that makes or fills one."""
    function = re.compile(r"^(?:Tensor|bool|std::(?:vector|tuple)<[\w, ]+>) (\w+)\(", re.M)
    method = re.compile(r"^  (?:Tensor&?|TensorPair|std::vector<Tensor>) (\w+)\(", re.M)
    read = lambda name: (ROOT / "grapnel" / name).read_text()
    lists = re.sub(r"//.*", "", read("tensor/op_list.h") + read("functions/one_call.h"))
    wanted = set(re.findall(r"X\((\w+), \w+\)", lists))
    wanted |= set(function.findall(read("functions/functions.h") + read("functions/factories.h"))) | set(method.findall(read("tensor/tensor.h")))
    in_place = {name + "_" for name in wanted}  # x.exp_() follows from exp
    others = {"name", "set_requires_grad", "requires_grad_", "mutable_grad", "_base", "operator"}  # of macros, and about gradients
    for name in sorted(wanted - in_place - others - named("docs/operations.md")):
        yield f"docs/operations.md: the operation {name} is missing."


def variables():
    """The page of variables has every one that the library reads."""
    wanted = set()
    for path in (ROOT / "grapnel").rglob("*.cpp"):
        text = path.read_text()
        if "getenv" in text or "load_module" in text:
            wanted |= set(re.findall(r'"(GRAPNEL_[A-Z_]+)"', text))
    for name in sorted(wanted - named("docs/environment.md")):
        yield f"docs/environment.md: {name} is missing."


def links():
    """Every relative link of a document names a file or folder."""
    for document in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in LINK.findall(BLOCK.sub("", document.read_text())):
            if "://" not in target and not (document.parent / target).exists():
                yield f"{document.relative_to(ROOT)}: the link to {target} leads nowhere."


if __name__ == "__main__":
    results = [list(first_program()), list(output(pathlib.Path(sys.argv[1]))), list(guide()), list(operations()), list(variables()), list(links())]
    for problem in sum(results, []):
        print(problem)
    failed = sum(bool(found) for found in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
