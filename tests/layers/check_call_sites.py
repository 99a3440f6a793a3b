#!/usr/bin/env python3
"""Every public op function begins with GRAPNEL_CALL_SITE, so that nodes, traces and errors know the user's line.

A public function is one that is declared in a header of the list below. Functions that only make memory without values, and those that hand
on to another one with the same name, need no place.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2] / "grapnel"
FUNCTIONS = "functions", "arranging", "factories", "geometry", "padding", "pointwise", "random", "resizing", "sampling", "statistics"
HEADERS = [f"functions/{name}.h" for name in FUNCTIONS] + ["nn/functional.h", "nn/utils.h", "tensor/tensor.h"]
SOURCES = sorted(ROOT.glob("functions/*.cpp")) + [ROOT / "nn/functional.cpp", ROOT / "nn/utils.cpp"]
WITHOUT = {"tensor", "empty", "empty_strided", "empty_like", "from_blob", "reduced", "Tensor::to"}
FUNCTION = re.compile(r"^(?:Tensor&?|std::tuple<[^\n]*>|std::vector<Tensor>|variable_list|void) "
                      r"((?:Tensor::)?\w+)\(([^;{]*?)\)(?: const)? \{(.*?)(?:^| )\}$", re.M | re.S)


def main():
    declared = "".join((ROOT / h).read_text() for h in HEADERS if (ROOT / h).exists())
    checked, missing = 0, []
    for path in SOURCES:
        text = path.read_text()
        for match in FUNCTION.finditer(text):
            name, body = match.group(1), match.group(3)
            before = text[:match.start()]
            private = before.rfind("namespace {") > before.rfind("}  // namespace\n")
            if private or name in WITHOUT or not re.search(rf"\b{name.split('::')[-1]}\(", declared):
                continue
            checked += 1
            if "GRAPNEL_CALL_SITE;" not in body:
                missing.append(f"{path.relative_to(ROOT.parent)}:{before.count(chr(10)) + 1}: {name} has no GRAPNEL_CALL_SITE.")
    print("\n".join(missing))
    if checked < 100:
        missing.append("")
        print(f"Only {checked} functions were found; the pattern no longer fits the sources.")
    print(f"{checked - len(missing)} passed, {len(missing)} failed")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
