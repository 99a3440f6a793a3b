"""The blocks of docs/python.md and the example run as they stand."""
import pathlib
import re
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_blocks_of_the_page_run():
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "python.md").read_text(), re.S | re.M)
    assert len(blocks) >= 3
    page = sys.modules["page"] = types.ModuleType("page")  # where pickles find its classes
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), page.__dict__)


def test_the_first_program_finds_the_line():
    done = subprocess.run([sys.executable, ROOT / "examples" / "python" / "first_hook.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"w = ([\d.]+), b = ([\d.]+), clipped (\d+) times\n", done.stdout)
    assert found, done.stdout
    assert abs(float(found[1]) - 3) < 1e-2 and abs(float(found[2]) - 0.5) < 1e-2 and int(found[3]) > 5


def test_the_readme_shows_the_first_program():
    shown = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M)[1]
    assert shown == (ROOT / "examples" / "python" / "first_hook.py").read_text().split("\n", 1)[1].lstrip("\n")
