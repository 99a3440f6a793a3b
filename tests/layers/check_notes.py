#!/usr/bin/env python3
"""Every citation `Note [Name]` resolves to exactly one definition, and no file names a home directory.

A Note is a rule that several files rely on, written once where it is enforced. Its definition is a
comment line that begins with the name, followed by a colon and the text or by nothing:

    // Note [One visit per node]: only the last producer of a gradient enqueues ...

    // Note [One visit per node]
    // -------------------------

Anything else is a citation, as is every mention in a Markdown file.
"""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTE = re.compile(r"\bNote \[([^\]\n]+)\]")
DEFINITION = re.compile(r"^\s*(?://[/!]?|\*|#)\s*Note \[([^\]\n]+)\]\s*(?::.*)?$")
HOME = re.compile(r"(?<![\w.])/(?:home|root|Users)/\w")
SCRIPTS = pathlib.Path(__file__).resolve().parent  # These files talk about the convention itself.


def names():
    """Tracked files and new ones that git would not ignore; all files where there is no git."""
    git = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         cwd=ROOT, capture_output=True, check=False, text=True)
    if git.returncode == 0:
        return set(git.stdout.split("\0")) - {""}
    return {str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if ROOT / "build" not in path.parents}


def files():
    for name in sorted(names()):
        path = ROOT / name
        if path.is_file() and SCRIPTS not in path.parents:
            try:
                yield name, path.read_text().splitlines()
            except UnicodeDecodeError:
                pass  # Data, not text.


def main():
    definitions, citations = collections.defaultdict(list), []
    homes = []
    for name, lines in files():
        for number, line in enumerate(lines, 1):
            where = f"{name}:{number}"
            if HOME.search(line):
                homes.append(f"{where}: names a directory of one machine: {line.strip()}")
            defined = None if name.endswith(".md") else DEFINITION.match(line)
            if defined:
                definitions[defined[1]].append(where)
            else:
                citations += [(where, note) for note in NOTE.findall(line)]

    dangling = [f"{where}: Note [{note}] is defined nowhere." for where, note in citations if note not in definitions]
    twice = [f"Note [{note}] is defined more than once: {', '.join(places)}."
             for note, places in definitions.items() if len(places) > 1]

    checks = [dangling, twice, homes]
    for found in checks:
        for problem in found:
            print(problem)
    failed = sum(bool(found) for found in checks)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
