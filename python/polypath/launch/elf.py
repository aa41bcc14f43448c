"""What the header of an ELF file says about how the program is loaded."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

_PT_INTERP = 3
_MACHINES = {
    3: "x86",
    20: "ppc",
    21: "ppc64",
    40: "arm",
    62: "x86-64",
    183: "aarch64",
    243: "riscv",
    258: "loongarch",
}


class Elf(NamedTuple):
    bits: int
    """32 or 64."""
    byte_order: str
    """ "<" or ">", as `struct` has it."""
    machine: int
    """e_machine of the ELF specification."""
    loader: str | None
    """Path of the dynamic loader (PT_INTERP); None for libraries and statically linked programs."""

    @property
    def architecture(self) -> str:
        """For people: "64-bit aarch64"."""
        return f"{self.bits}-bit {_MACHINES.get(self.machine, f'machine {self.machine}')}"

    def can_load(self, library: Elf) -> bool:
        """Whether a process of this program can load this library, as far as headers tell."""
        return self[:3] == library[:3]


def read_elf(file: Path) -> Elf | None:
    """The header of ``file``; None when it is no ELF file, or a damaged one. Raises `OSError`."""
    with file.open("rb") as stream:
        identity = stream.read(16)
        if identity[:4] != b"\x7fELF" or len(identity) < 16:
            return None
        bits = {1: 32, 2: 64}.get(identity[4])
        order = {1: "<", 2: ">"}.get(identity[5])
        if bits is None or order is None:
            return None
        address = "Q" if bits == 64 else "I"
        header = struct.Struct(f"{order}HHI{address}{address}{address}IHHH")
        # p_flags follows p_type in the 64-bit form, and comes near the end in the other.
        segment = struct.Struct(f"{order}I{'I' if bits == 64 else ''}{address * 4}")
        try:
            (_, machine, _, _, table, _, _, _, entry_size, entries) = header.unpack(
                stream.read(header.size)
            )
            loader = None
            for index in range(entries):
                stream.seek(table + index * entry_size)
                kind, *fields = segment.unpack(stream.read(segment.size))
                if kind == _PT_INTERP:
                    offset, _, _, size = fields[-4:]
                    stream.seek(offset)
                    loader = stream.read(size).rstrip(b"\0").decode()
                    break
        except (struct.error, UnicodeDecodeError):
            return None
    return Elf(bits, order, machine, loader)
