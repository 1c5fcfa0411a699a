"""Read the architecture and the dynamic loader of a binary from its ELF header.

An image packed from one binary has no dynamic loader. The kernel would report this as "no such file or
directory", which is misleading, so dynamic binaries are rejected when the image is built.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from croupier_lab.errors import LabError

_MAGIC = b"\x7fELF"
_PT_INTERP = 3
_ARCHITECTURES = {62: "amd64", 183: "arm64", 243: "riscv64", 3: "386", 40: "arm"}


@dataclass(frozen=True, slots=True)
class Binary:
    """`architecture` as in image platforms; `interpreter` is empty for static binaries."""

    architecture: str
    interpreter: str = ""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Offsets of the header fields for one word size."""

    header: str  # e_machine .. e_phnum, from byte 18
    segment: str
    offset: int  # index of the segment field with its file offset
    size: int  # index of the segment field with its file size


_WIDE = _Layout(header="H I Q Q Q I H H H", segment="I I Q Q Q Q", offset=2, size=5)
_NARROW = _Layout(header="H I I I I I H H H", segment="I I I I I", offset=1, size=4)


def static(path: Path) -> Binary:
    """The binary at `path`; raises a LabError unless it is a static ELF binary."""
    binary = read(path.read_bytes())
    if binary is None:
        raise LabError(f"{path} is not an ELF binary: use a folder or a statically linked Linux binary.")
    if binary.interpreter:
        raise LabError(
            f"{path} is linked dynamically (it needs {binary.interpreter}): link it statically, "
            "or use a folder that also contains its loader and libraries."
        )
    return binary


def read(data: bytes) -> Binary | None:
    """Parse the header in `data`; None if it is not ELF or is truncated."""
    if len(data) < 20 or data[:4] != _MAGIC:
        return None
    layout = _WIDE if data[4] == 2 else _NARROW
    try:
        return _parse(data, layout, order="<" if data[5] == 1 else ">")
    except struct.error:
        return None


def _parse(data: bytes, layout: _Layout, *, order: str) -> Binary:
    fields = struct.unpack_from(order + layout.header, data, 18)
    machine, table, entry_size, entries = fields[0], fields[3], fields[7], fields[8]
    interpreter = ""
    for index in range(entries):
        segment = struct.unpack_from(order + layout.segment, data, table + index * entry_size)
        if segment[0] == _PT_INTERP:
            begin = segment[layout.offset]
            interpreter = data[begin : begin + segment[layout.size]].rstrip(b"\0").decode(errors="replace")
    return Binary(_ARCHITECTURES.get(machine, f"machine-{machine}"), interpreter)
