#!/usr/bin/env python3
"""A checkpoint is a safetensors file: the format is checked here byte by byte, and with Python's package where it is installed.

    check_python.py <build folder>
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1])


def by_hand(data):
    """The file as its specification says, read without any library."""
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    if (8 + size) % 8 or data[8:9] != b"{":
        yield "the header does not begin with { or the elements are not aligned to 8 bytes"
    at = 0
    for name, entry in sorted((e for e in header.items() if e[0] != "__metadata__"), key=lambda e: e[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if begin != at:
            yield f"{name} begins at {begin} instead of {at}"
        at = end
    if at != len(data) - 8 - size:
        yield f"the tensors end at {at} of {len(data) - 8 - size} bytes"
    begin, end = header["model.weight"]["data_offsets"]
    weights = struct.unpack("<3f", data[8 + size + begin:8 + size + end])
    if header["model.weight"]["shape"] != [1, 3] or max(abs(w - t) for w, t in zip(weights, (1, -2, 0.5))) > 0.5:
        yield f"model.weight is {header['model.weight']} {weights}"
    values = json.loads(header["__metadata__"]["grapnel"])["values"]
    if values["step.value"] != 50 or values["optimizer.kind"] != "grapnel::optim::Adam":
        yield f"the values are {values}"


def with_package(path, data):
    """The same with the package, if it is there."""
    try:
        from safetensors import safe_open
        from safetensors.numpy import load_file
    except ImportError:
        return
    tensors = load_file(path)
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if tensors[name].tobytes() != data[8 + size + begin:8 + size + end] or list(tensors[name].shape) != entry["shape"]:
            yield f"safetensors reads another {name}"
    with safe_open(path, framework="numpy") as file:
        if json.loads(file.metadata()["grapnel"])["version"] != 1:
            yield "safetensors reads other metadata"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "checkpoint.safetensors")
        run = subprocess.run([BUILD / "examples/checkpoint", path], capture_output=True, text=True, check=False)
        if run.returncode or "the same bits after the restart" not in run.stdout:
            results = [[f"examples/checkpoint ended with {run.returncode}: {run.stdout}{run.stderr}"]]
        else:
            data = path.read_bytes()
            results = [list(by_hand(data)), list(with_package(path, data))]
    for problem in sum(results, []):
        print(problem)
    failed = sum(bool(found) for found in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
