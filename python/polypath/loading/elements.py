"""Element types of safetensors files: their widths, and their names elsewhere."""

from __future__ import annotations

from typing import NamedTuple


class Element(NamedTuple):
    """One element type."""

    bits: int
    name: str
    """As NumPy, PyTorch or DLPack name it."""
    torch: str | None
    """The attribute of ``torch``; None: PyTorch has no such type."""
    is_floating: bool = False


def _floating(bits: int, name: str, torch: str | None = "") -> Element:
    return Element(bits, name, name if torch == "" else torch, True)


def _other(bits: int, name: str) -> Element:
    return Element(bits, name, name)


#: By the names of the format.
ELEMENTS = {
    "BOOL": _other(8, "bool"),
    "F4": _floating(4, "float4_e2m1fn", "float4_e2m1fn_x2"),
    "F6_E2M3": _floating(6, "float6_e2m3fn", None),
    "F6_E3M2": _floating(6, "float6_e3m2fn", None),
    "U8": _other(8, "uint8"),
    "I8": _other(8, "int8"),
    "F8_E5M2": _floating(8, "float8_e5m2"),
    "F8_E4M3": _floating(8, "float8_e4m3fn"),
    "F8_E8M0": _floating(8, "float8_e8m0fnu"),
    "F8_E4M3FNUZ": _floating(8, "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": _floating(8, "float8_e5m2fnuz"),
    "I16": _other(16, "int16"),
    "U16": _other(16, "uint16"),
    "F16": _floating(16, "float16"),
    "BF16": _floating(16, "bfloat16"),
    "I32": _other(32, "int32"),
    "U32": _other(32, "uint32"),
    "F32": _floating(32, "float32"),
    "C64": _other(64, "complex64"),
    "F64": _floating(64, "float64"),
    "I64": _other(64, "int64"),
    "U64": _other(64, "uint64"),
}
