"""Reads the description of an array out of a DLPack capsule, without consuming it; makes capsules
of memory of a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

# The structures of dlpack.h.


class _Device(ctypes.Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("elements", c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _ManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


_READ_ONLY = 1
_CPU = 1
_NO_SYNCHRONISATION = -1

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_valid.restype = ctypes.c_int
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_get_pointer.restype = c_void_p


class Description(NamedTuple):
    """What a capsule says of its array."""

    address: int
    """First element, in bytes."""
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    """In elements; None: C-contiguous."""
    bits: int
    """Bits of one element."""
    read_only: bool


def describe(array: Any) -> Description:
    """Asks ``array`` for a capsule, reads it, and gives it back: the capsule's own destructor ends
    the export, since it was not marked as used. Errors of the array's own ``__dlpack__`` pass
    through."""
    capsule = _export(array)
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _ManagedTensorVersioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        return _read(managed.tensor, bool(managed.flags & _READ_ONLY))
    # The unversioned structure begins with the tensor.
    return _read(_Tensor.from_address(_get_pointer(capsule, b"dltensor")), False)


def _export(array: Any) -> Any:
    # No stream is told to wait for another: the caller's stream already carries the order.
    on_cpu = array.__dlpack_device__()[0] == _CPU
    stream = None if on_cpu else _NO_SYNCHRONISATION
    try:
        return array.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # a producer from before DLPack 1.0
        return array.__dlpack__(stream=stream)


def _read(tensor: _Tensor, read_only: bool) -> Description:
    dimensions = tensor.ndim
    return Description(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=tuple(tensor.shape[:dimensions]),
        strides=tuple(tensor.strides[:dimensions]) if tensor.strides else None,
        bits=tensor.dtype.bits * tensor.dtype.elements,
        read_only=read_only,
    )


#: Device type: memory of a CUDA GPU.
CUDA = 2


class _ManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("manager", c_void_p), ("deleter", c_void_p)]


_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5}
#: Types whose names do not end in their bits: code and bits.
_NAMED = {
    "bool": (6, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
    "float6_e2m3fn": (15, 6),
    "float6_e3m2fn": (16, 6),
    "float4_e2m1fn": (17, 4),
}

#: What capsules speak of, and what holds its memory, by the address of the structure.
_exported: dict[int, tuple[_ManagedTensor, Any, Any]] = {}


@ctypes.CFUNCTYPE(None, c_void_p)
def _delete(managed: int) -> None:
    _exported.pop(managed, None)


# Destructor of a capsule. Under its first name, no consumer has taken the tensor.
@ctypes.PYFUNCTYPE(None, c_void_p)
def _end_capsule(capsule: int) -> None:
    if _is_valid_at(capsule, b"dltensor"):
        _delete(_get_pointer_at(capsule, b"dltensor"))


_is_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer_at = ctypes.PYFUNCTYPE(c_void_p, c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, ctypes.c_char_p, c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def _code_of(type: str) -> tuple[int, int]:
    if type in _NAMED:
        return _NAMED[type]
    kind = type.rstrip("0123456789")
    return _CODES[kind], int(type[len(kind) :])


def export(address: int, lengths: Sequence[int], type: str, device: int, owner: Any) -> Any:
    """A capsule of a C-contiguous array of elements ("float32") in a GPU's memory, which ``owner``
    holds until the capsule's consumer lets it go, or it ends without one."""
    shape = (c_int64 * max(1, len(lengths)))(*lengths)
    managed = _ManagedTensor(
        _Tensor(
            address,
            _Device(CUDA, device),
            len(lengths),
            _DataType(*_code_of(type), 1),
            shape,
            None,
            0,
        ),
        None,
        ctypes.cast(_delete, c_void_p),
    )
    at = ctypes.addressof(managed)
    _exported[at] = (managed, shape, owner)
    return _new_capsule(at, b"dltensor", ctypes.cast(_end_capsule, c_void_p))
