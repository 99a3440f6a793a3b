#!/usr/bin/env python3
"""The API reference is complete: Doxygen has nothing to complain about; the headers that the umbrella includes are in it, and so are the names
that the documents use; and every class, enum and free function has a description. (Methods need none where their names say enough.)

    tests/docs/check_reference.py [build folder]

What is made by a macro from the lists of ops cannot carry a comment of its own; it has to stand on the page docs/operations.md. LibTorch's names have
the page docs/porting-from-libtorch.md.
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Names whose owner is what has to be described: a holder and its module, options and state.
OWNED = re.compile(r"(Impl|Options|ParamState)$")
LIBTORCH = re.compile(r"(torch|at|c10|grapnel::compat)::")
# Included for templates; users reach what is in there through Tensor.
INSIDE = {"grapnel/autograd/meta.h"}
# Pages about the inside, and what headers of the inside declare and a page means otherwise.
ABOUT_INSIDE = {"architecture.md", "adding-an-op.md", "glossary.md"}
WORDS = {"Reading"}
DECLARED = re.compile(r"^(?:class|struct|enum class) (\w+)\b(?!;)|^using (\w+) =|^(?:inline |constexpr |\[\[nodiscard\]\] )*[A-Za-z][\w:<>, ]*[&*]* (\w+)\(", re.M)
CODE = re.compile(r"^```cpp\n(.*?)^```|`([^`\n]+)`", re.M | re.S)
NAME = re.compile(r"\b[A-Z]\w*[a-z]\w*|\b\w+(?=\()")


def text_of(element):
    return "".join(element.itertext()).strip() if element is not None else ""


def described(element):
    return bool(text_of(element.find("briefdescription")) or text_of(element.find("detaileddescription")))


def compounds(folder):
    for path in folder.glob("*.xml"):
        yield from ElementTree.parse(path).getroot().iter("compounddef")


def entries(folder):
    """(kind, name) -> whether any of its declarations has a description."""
    found = collections.defaultdict(bool)
    for compound in compounds(folder):
        name = compound.findtext("compoundname")
        if compound.get("kind") in ("class", "struct"):
            found["class", re.sub(r"<.*", "", name).strip()] |= described(compound)
        if compound.get("kind") == "namespace":
            for member in compound.iter("memberdef"):
                if member.get("kind") in ("function", "enum"):
                    found[member.get("kind"), f"{name}::{member.findtext('name')}"] |= described(member)
    return found


def missing(folder):
    """Headers and names that have to be in the reference, and are not."""
    files, names = set(), set()
    for compound in compounds(folder):
        if compound.get("kind") == "file":
            files.add(str((ROOT / compound.find("location").get("file")).relative_to(ROOT)))
        names.add(re.sub(r"<.*", "", compound.findtext("compoundname")).rsplit("::", 1)[-1].strip())
        names |= {name.text for member in compound.iter("memberdef") for name in member.iter("name")}
    for header in re.findall(r'^#include "(.+)"', (ROOT / "grapnel/grapnel.h").read_text(), re.M):
        if header not in files | INSIDE:
            yield f"{header} is left out by docs/Doxyfile"
    declared = {}
    for path in (ROOT / "grapnel").rglob("*.h"):
        for found in DECLARED.findall(path.read_text()):
            declared["".join(found)] = path.relative_to(ROOT)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if page.name in ABOUT_INSIDE:
            continue
        used = {name for code in CODE.findall(page.read_text()) for name in NAME.findall("".join(code))}
        for name in sorted((used & set(declared)) - names - WORDS):
            yield f"{page.relative_to(ROOT)} names {name} of {declared[name]}, which has no entry"


def listed_ops():
    """Names that the macros of op_list.h and one_call.h make functions of."""
    texts = [(ROOT / "grapnel" / name).read_text() for name in ("tensor/op_list.h", "functions/one_call.h")]
    return set(re.findall(r"X\((\w+), \w+[,)]", re.sub(r"//.*", "", "".join(texts))))


def main():
    with tempfile.TemporaryDirectory() as folder:
        config = (ROOT / "docs/Doxyfile").read_text() + f"\nOUTPUT_DIRECTORY = {folder}\nWARN_LOGFILE = {folder}/warnings\nGENERATE_HTML = NO\n"
        subprocess.run(["doxygen", "-"], input=config, text=True, cwd=ROOT, check=True)
        problems = pathlib.Path(folder, "warnings").read_text().splitlines()
        found = entries(pathlib.Path(folder, "xml"))
        problems += missing(pathlib.Path(folder, "xml"))

    page = set(re.findall(r"`(\w+)`", (ROOT / "docs/operations.md").read_text()))
    ops = listed_ops()
    problems += [f"docs/operations.md does not name {op}" for op in sorted(ops - page)]
    names = {name.rsplit("::", 1)[-1] for _, name in found}
    problems += [f"{op} has no entry" for op in sorted(ops - names)]
    good = 0
    for (kind, name), is_described in sorted(found.items()):
        owner = OWNED.sub("", name)
        last = name.rsplit("::", 1)[-1]
        if (is_described or LIBTORCH.match(name) or found.get((kind, owner)) or found.get((kind, owner + "Impl")) or last.startswith("operator")
                or (kind == "function" and last in ops | {owner.rsplit("::", 1)[-1] for k, owner in found if k == "class"})):
            good += 1
        else:
            problems.append(f"{kind} {name} has no description")
    if len(found) < 400:
        problems.append(f"only {len(found)} entries were found")
    for problem in problems:
        print(problem)
    print(f"{good} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
