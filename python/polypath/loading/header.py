"""The header of a safetensors file, checked before anything is loaded.

A file is: 8 bytes, the length N of the header as a little-endian integer; N bytes of UTF-8 JSON,
which may end in spaces; the data. The header is an object with an entry for each tensor,
``{"dtype", "shape", "data_offsets": [begin, end]}``, offsets from the begin of the data, and
perhaps ``"__metadata__"``, texts by names. The tensors cover the data without gaps or overlaps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import FileError
from .elements import ELEMENTS, Element

#: The format's own bound.
MAX_HEADER_BYTES = 100_000_000
_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_KEYS = {"dtype", "shape", "data_offsets"}
_LIMIT = 1 << 63


class Entry(NamedTuple):
    """One tensor of a file."""

    name: str
    dtype: str
    """As the format names it: "BF16"."""
    shape: tuple[int, ...]
    begin: int
    """First byte, from the begin of the data."""
    end: int

    @property
    def element(self) -> Element:
        return ELEMENTS[self.dtype]

    @property
    def bytes(self) -> int:
        return self.end - self.begin


class Header(NamedTuple):
    entries: tuple[Entry, ...]
    """In the order of their data."""
    metadata: dict[str, str]
    data_offset: int
    """Where the data begin in the file."""
    data_bytes: int
    text: bytes
    """The JSON as it is in the file."""


#: Bytes [offset, offset + count) of a file, or fewer at its end.
Read = Callable[[int, int], bytes]


def read_header(descriptor: int, name: str) -> Header:
    """The header of an open file. Raises `FileError` with ``name`` and what is wrong."""
    try:
        size = os.fstat(descriptor).st_size
        return parse_header(lambda offset, count: _read(descriptor, offset, count), size, name)
    except OSError as error:
        raise FileError(f"{name}: {error.strerror}") from error


def parse_header(read: Read, size: int, name: str) -> Header:
    """The header of a file of ``size`` bytes. Raises `FileError`."""
    try:
        return _parse(read, size)
    except _Malformed as error:
        raise FileError(f"{name}: no valid safetensors file: {error}") from None


class _Malformed(Exception):
    """What is wrong with a file."""


def _read(descriptor: int, offset: int, count: int) -> bytes:
    parts = []
    while count > 0 and (part := os.pread(descriptor, count, offset)):
        parts.append(part)
        offset += len(part)
        count -= len(part)
    return b"".join(parts)


def _parse(read: Read, size: int) -> Header:
    if size < _LENGTH_BYTES:
        raise _Malformed(f"it has {size} bytes, fewer than the {_LENGTH_BYTES} of the length")
    length = int.from_bytes(read(0, _LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES:
        raise _Malformed(f"its header would have {length} bytes, more than {MAX_HEADER_BYTES}")
    data_offset = _LENGTH_BYTES + length
    if data_offset > size:
        raise _Malformed(f"its header would end at byte {data_offset}, and the file at {size}")
    text = read(_LENGTH_BYTES, length)
    if len(text) != length:
        raise _Malformed("it became shorter while its header was read")
    content = _json(text)
    metadata = _metadata(content.pop(_METADATA, {}))
    entries = sorted(
        (_entry(name, value) for name, value in content.items()),
        key=lambda entry: (entry.begin, entry.end),
    )
    data_bytes = size - data_offset
    _check_places(entries, data_bytes)
    return Header(tuple(entries), metadata, data_offset, data_bytes, text)


def _json(text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise _Malformed("its header does not begin with '{'")
    try:
        content = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise _Malformed(f"its header is no UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise _Malformed(f"its header is no JSON: {error}") from None
    assert isinstance(content, dict)  # it begins so
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Malformed(f"'{twice}' is twice in its header")
    return values


def _metadata(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _Malformed(f"its {_METADATA} are no texts by names")
    return value


def _entry(name: str, value: Any) -> Entry:
    if not isinstance(value, dict) or not value.keys() >= _KEYS:
        raise _Malformed(f"tensor '{name}' lacks dtype, shape or data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ELEMENTS:
        raise _Malformed(f"tensor '{name}' has dtype {dtype!r}, which the format does not know")
    if not _are_counts(shape):
        raise _Malformed(f"tensor '{name}': its shape {shape!r} is no list of lengths")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _Malformed(f"tensor '{name}': data_offsets {offsets!r} are no range")
    bits = ELEMENTS[dtype].bits
    for length in shape:
        bits *= length
    if bits % 8:
        raise _Malformed(f"tensor '{name}': {dtype} of shape {shape} is no whole number of bytes")
    begin, end = offsets
    if bits // 8 != end - begin:
        raise _Malformed(
            f"tensor '{name}' has {end - begin} bytes, and {dtype} of shape {shape} {bits // 8}"
        )
    return Entry(name, dtype, tuple(shape), begin, end)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < _LIMIT for value in values
    )


def _check_places(entries: list[Entry], data_bytes: int) -> None:
    """Raises unless the tensors cover the data, each byte once."""
    place = 0
    for entry in entries:
        if entry.begin != place:
            what = "overlaps the one before it" if entry.begin < place else "leaves a gap before it"
            raise _Malformed(f"tensor '{entry.name}' at byte {entry.begin} {what}")
        place = entry.end
    if place > data_bytes:
        raise _Malformed(f"its tensors end at byte {place} of the data, which has {data_bytes}")
    if place < data_bytes:
        raise _Malformed(f"{data_bytes - place} bytes after its tensors belong to none")
