"""What parent and workers of a loader send each other: any object that can be pickled, with its tensors in memory that both can see."""
import io
import os
import pickle
from multiprocessing import reduction

from grapnel import _core
from grapnel._core import Tensor


class _Pickler(pickle.Pickler):
    def __init__(self, file):
        super().__init__(file, 5)
        self.tensors, self._numbers = [], {}

    def persistent_id(self, obj):
        # What has a history, or attributes of its own, is pickled like anything else.
        if type(obj) is not Tensor or obj.requires_grad or obj.__dict__:
            return None
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self.tensors)
            self.tensors.append(obj)
        return self._numbers[id(obj)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, tensors):
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, number):
        return self._tensors[number]


class Packed:
    """An object on its way: bytes, and a descriptor of memory for its tensors."""

    def __init__(self, content, memory, described):
        self.content, self.memory, self.described = content, memory, described

    @classmethod
    def of(cls, obj):
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(obj)
        memory, described = _core._to_shared(pickler.tensors) if pickler.tensors else (None, None)
        return cls(file.getvalue(), memory, described)

    def unpacked(self, private=False):
        """The object again. With `private`, what is written to its tensors is not seen by others that have the same memory."""
        tensors = () if self.memory is None else _core._from_shared(self.memory, self.described, private)
        return _Unpickler(io.BytesIO(self.content), tensors).load()

    def close(self):
        if self.memory is not None:
            os.close(self.memory)
            self.memory = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def send(connection, packed):
    """Sends it, and keeps it."""
    connection.send_bytes(pickle.dumps((packed.content, packed.described)))
    if packed.memory is not None:
        reduction.send_handle(connection, packed.memory, None)


def receive(connection):
    content, described = pickle.loads(connection.recv_bytes())
    return Packed(content, None if described is None else reduction.recv_handle(connection), described)
