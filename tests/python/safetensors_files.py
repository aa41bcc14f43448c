"""Safetensors files for tests, made by the documented format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

#: Bytes of an element, by the format's names.
ITEM = {
    **{"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1},
    **{"I64": 8, "U8": 1, "BOOL": 1},
}


def header_bytes(entries: dict[str, object], pad: int = 0) -> bytes:
    text = json.dumps(entries).encode() + b" " * pad
    return len(text).to_bytes(8, "little") + text


def make_file(
    path: Path,
    tensors: dict[str, tuple[str, tuple[int, ...]]],
    seed: int = 1,
    metadata: dict[str, str] | None = None,
    pad: int = 0,
) -> dict[str, bytes]:
    """Writes random tensors of these types and shapes; their bytes by names."""
    random = np.random.default_rng(seed)
    entries: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    contents: dict[str, bytes] = {}
    place = 0
    for name, (dtype, shape) in tensors.items():
        size = ITEM[dtype]
        for length in shape:
            size *= length
        contents[name] = random.bytes(size)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    path.write_bytes(header_bytes(entries, pad) + b"".join(contents.values()))
    return contents
