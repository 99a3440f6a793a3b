"""Files of torch.save: read as data, and never as code. The files are composed here, of what pickle and zipfile write."""
import collections
import io
import pickle
import sys
import types
import zipfile

import pytest

import grapnel as g


class Storage:
    """The memory of a tensor, as torch.save has it."""

    def __init__(self, kind, key, content):
        self.kind, self.key, self.content = kind, key, content


class Rebuilt:
    """Pickled as a call of a function by name."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.fixture
def torch(monkeypatch):
    """Stand-ins, so that pickle can write the names; nobody calls them."""
    utils, root, storage = types.ModuleType("torch._utils"), types.ModuleType("torch"), types.ModuleType("torch.storage")
    for module, names in ((utils, ["_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter"]),
                          (root, ["FloatStorage", "LongStorage", "CharStorage", "Size", "device"]), (storage, ["UntypedStorage"])):
        for name in names:
            made = type(name, (), {"__module__": module.__name__}) if name[0].isupper() else types.FunctionType((lambda *a: 1 / 0).__code__, {}, name)
            made.__module__, made.__qualname__ = module.__name__, name
            setattr(module, name, made)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    root.utils, root.storage = utils, storage
    return root


class Writer(pickle.Pickler):
    def persistent_id(self, obj):
        if isinstance(obj, Storage):
            self.memory[obj.key] = obj.content
            return "storage", obj.kind, obj.key, "cpu", len(obj.content)


def tensor(torch, kind, key, values, sizes, strides, offset=0, requires_grad=False):
    code = {"FloatStorage": "f", "LongStorage": "q", "CharStorage": "b"}[kind]
    import array

    storage = Storage(getattr(torch, kind), key, array.array(code, values).tobytes())
    return Rebuilt(torch.utils._rebuild_tensor_v2, storage, offset, sizes, strides, requires_grad, collections.OrderedDict())


def write(path, obj, protocol=2, files=()):
    file = io.BytesIO()
    writer = Writer(file, protocol)
    writer.memory = {}
    writer.dump(obj)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", file.getvalue())
        archive.writestr("net/byteorder", "little")
        for key, content in writer.memory.items():
            archive.writestr(f"net/data/{key}", content)
        for name, content in files:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_values_of_every_protocol(tmp_path, protocol):
    shared = [1, 2]
    value = {"none": None, "yes": True, "no": False, "small": 5, "big": 2**40, "minus": -3, "half": 0.5, "name": "näme", "raw": b"\x00\xff",
             "list": shared, "again": shared, "tuple": (1, ("x",), ()), "set": {3}, 7: "seven", "ordered": collections.OrderedDict(a=1)}
    found = g.load(write(tmp_path / "x.pt", value, protocol))
    assert found["list"] is found["again"]
    assert found == {**value, "set": [3]} and list(found) == list(value)
    assert type(found["yes"]) is bool and type(found["tuple"]) is tuple


def test_tensors_share_what_they_shared(tmp_path, torch):
    w = tensor(torch, "FloatStorage", "0", [0, 1, 2, 3, 4, 5], (2, 3), (3, 1), requires_grad=True)
    state = {"w": w, "same": w, "turned": tensor(torch, "FloatStorage", "0", [0, 1, 2, 3, 4, 5], (3, 2), (1, 3)),
             "ids": tensor(torch, "LongStorage", "1", [-1, 9], (1,), (1,), offset=1), "size": Rebuilt(torch.Size, (2, 3)),
             "param": Rebuilt(torch.utils._rebuild_parameter, w, True, collections.OrderedDict())}
    found = g.load(write(tmp_path / "x.pt", state))
    assert found["w"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["w"].requires_grad and found["w"].is_leaf
    assert found["w"] is found["same"] and found["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    found["turned"][0, 0] = 7
    assert found["w"][0, 0].item() == 7 and found["ids"].tolist() == [9] and found["size"] == (2, 3) and found["param"].requires_grad


def test_a_state_dict_goes_into_a_module(tmp_path, torch):
    net = g.nn.Linear(3, 1)
    state = collections.OrderedDict(weight=tensor(torch, "FloatStorage", "0", [1, 2, 3], (1, 3), (3, 1)), bias=tensor(torch, "FloatStorage", "1", [4], (1,), (1,)))
    state._metadata = {"": {"version": 1}}
    net.load_state_dict(g.load(write(tmp_path / "net.pth", state)))
    assert net(g.ones(1, 3)).item() == 10


class Evil:
    def __reduce__(self):
        return open, ("pwned", "w")


def test_code_is_an_error_and_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(g.Error, match="asks for '.*open', which is code"):
        g.load(write(tmp_path / "x.pt", [Evil()]))
    with pytest.raises(g.Error, match="asks for '.*print', which is code|holds '.*print', which is no data"):
        g.load(write(tmp_path / "x.pt", print))
    assert not (tmp_path / "pwned").exists()


def test_errors_name_the_file_and_what_is_wrong(tmp_path, torch):
    path = tmp_path / "x.pt"
    with pytest.raises(g.Error, match="x.pt: .*CharStorage, and Grapnel has no such type"):
        g.load(write(path, tensor(torch, "CharStorage", "0", [1], (1,), (1,))))
    with pytest.raises(g.Error, match="reaches beyond its memory"):
        g.load(write(path, tensor(torch, "FloatStorage", "0", [1], (2,), (1,))))
    ring = []
    ring.append(ring)
    with pytest.raises(g.Error, match="contains itself"):
        g.load(write(path, ring))
    with pytest.raises(g.Error, match="needs more than 64 bits"):
        g.load(write(path, 2**70))
    whole = write(path, {"a": [1] * 1000}).read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(g.Error, match="was cut off"):
        g.load(path)
    path.write_bytes(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19." + b"rest")
    with pytest.raises(g.Error, match="before version 1.6"):
        g.load(path)
    with pytest.raises(g.Error, match="none.pt"):
        g.load(tmp_path / "none.pt")


def test_open_files_and_torch_loads_arguments(tmp_path):
    path = write(tmp_path / "x.pt", {"a": 1})
    with open(path, "rb") as file:
        assert g.load(file, map_location="cpu", weights_only=True) == {"a": 1}
    g.save({"w": g.ones(2)}, tmp_path / "x.safetensors")
    assert g.load(io.BytesIO((tmp_path / "x.safetensors").read_bytes()))["w"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="never run as code"):
        g.load(path, weights_only=False)
    with pytest.raises(Exception, match="cuda"):
        g.load(path, map_location="cuda:7")


def test_safetensors_are_told_apart_by_content(tmp_path):
    g.save({"w": g.ones(2)}, tmp_path / "x.pt")
    assert g.load(tmp_path / "x.pt")["w"].tolist() == [1, 1]
