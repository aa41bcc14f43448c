"""Other libraries in LD_PRELOAD that stand between programs and the CUDA driver."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

_DYNSYM = 11
_SECTION = "IIQQQQIIQQ"
_SYMBOL = "IBBHQQ"


def others_with_dlsym(environment: Mapping[str, str], own: list[Path]) -> list[Path]:
    """Libraries of LD_PRELOAD that define ``dlsym``, as libraries do that set limits to the memory
    of containers. The shim asks the C library's past them, so they see no function of CUDA that a
    program looks up. ``own``: polypath's, which are left out, and so is what cannot be read."""
    entries = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    others = []
    for entry in entries:
        file = Path(entry)
        try:
            if file.resolve() not in own and "dlsym" in _defined(file.read_bytes()):
                others.append(file)
        except (OSError, struct.error, ValueError, IndexError):
            continue
    return others


def passed_over(file: Path) -> str:
    """What to say of one."""
    return (
        f"{file} in LD_PRELOAD replaces dlsym, and is passed over: it does not see the functions "
        "of CUDA that a program looks up"
    )


def _defined(elf: bytes) -> set[str]:
    """Names that a 64-bit library defines for others."""
    if elf[:5] != b"\x7fELF\x02":
        return set()
    order = "<" if elf[5] == 1 else ">"
    (table,) = struct.unpack_from(f"{order}Q", elf, 0x28)
    size, count = struct.unpack_from(f"{order}HH", elf, 0x3A)
    sections = [
        struct.unpack_from(f"{order}{_SECTION}", elf, table + at * size) for at in range(count)
    ]
    names = set()
    for _, kind, _, _, offset, length, link, _, _, _ in sections:
        if kind != _DYNSYM:
            continue
        strings = sections[link][4]
        for name, _, _, section, _, _ in struct.iter_unpack(
            f"{order}{_SYMBOL}", elf[offset : offset + length]
        ):
            if section != 0:  # else it is another library's
                begin = strings + name
                names.add(elf[begin : elf.index(b"\0", begin)].decode(errors="replace"))
    return names
