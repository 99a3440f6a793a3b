"""Shows Grapnel's values in gdb: `print x` says `f32[2, 3] {1, 2, 3, 4, 5, 6}` instead of a pointer.

gdb loads this file by itself, out of a program that contains the static library or from beside a shared one, if it trusts the folder. Otherwise:

    (gdb) source <prefix>/share/grapnel/gdb_printers.py

It reads memory only and calls nothing, so it works on core files, too.
"""
import itertools
import struct

import gdb
import gdb.printing

# How an element is stored and shown: bytes, and what turns them into a number.
SHORT = {"Float32": "f32", "Float64": "f64", "Half": "f16", "Float16": "f16", "BFloat16": "bf16", "Int64": "i64", "Int32": "i32",
         "UInt8": "u8", "Bool": "bool"}
READ = {
    "f32": (4, lambda b: "%g" % struct.unpack("<f", b)),
    "f64": (8, lambda b: "%g" % struct.unpack("<d", b)),
    "f16": (2, lambda b: "%g" % struct.unpack("<e", b)),
    "bf16": (2, lambda b: "%g" % struct.unpack("<f", b"\0\0" + b)),
    "i64": (8, lambda b: "%d" % struct.unpack("<q", b)),
    "i32": (4, lambda b: "%d" % struct.unpack("<i", b)),
    "u8": (1, lambda b: "%d" % b[0]),
    "bool": (1, lambda b: "true" if b[0] else "false"),
}
SHOWN = 20  # elements


def numbers(shape):
    return [int(shape["values_"][i]) for i in range(int(shape["size_"]))]


def pointer_of(intrusive):
    return intrusive["object_"]


class ShapePrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return "[" + ", ".join(map(str, numbers(self.value))) + "]"


def describe(impl):
    """What stands behind a tensor, as one line."""
    name = str(impl["dtype"]).rsplit("::", 1)[-1]
    dtype = SHORT.get(name, name)
    sizes, strides = numbers(impl["sizes"]), numbers(impl["strides"])
    head = f"{dtype}[{', '.join(map(str, sizes))}]"
    if impl["requires_grad"]:
        head += " requires_grad"
    storage = pointer_of(impl["storage"]).dereference()
    if int(storage["pending_"]):
        return head + " (recorded, not computed yet)"
    data = int(storage["data_"])
    if not data:
        return head + " (no memory yet)"
    if dtype not in READ:
        return head
    size, show = READ[dtype]
    memory = gdb.selected_inferior()
    shown = []
    for position in itertools.product(*map(range, sizes)):
        if len(shown) == SHOWN:
            shown.append("...")
            break
        element = int(impl["offset"]) + sum(i * s for i, s in zip(position, strides))
        shown.append(show(bytes(memory.read_memory(data + element * size, size))))
    return f"{head} {{{', '.join(shown)}}}"


class TensorPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        impl = pointer_of(self.value["impl_"])
        if not int(impl):
            return "undefined"
        try:
            return describe(impl.dereference())
        except gdb.error as problem:  # a handle that was never initialised, say
            return f"unreadable ({problem})"


def build():
    printers = gdb.printing.RegexpCollectionPrettyPrinter("grapnel")
    printers.add_printer("Tensor", "^grapnel::Tensor$", TensorPrinter)
    printers.add_printer("Shape", "^grapnel::Shape$", ShapePrinter)
    return printers


gdb.printing.register_pretty_printer(gdb.current_objfile(), build(), replace=True)
