"""From an object that holds memory to its address and size.

Accepted, in the order in which they are tried:

* `Buffer`, ``int`` (an address) and ``ctypes.c_void_p``: as they are; an address has no size
* ctypes arrays, structures and scalars: their own memory
* objects with ``data_ptr`` (PyTorch tensors, storages and their like)
* ``__cuda_array_interface__`` (CuPy, Numba, RMM, JAX on GPUs)
* ``__array_interface__`` (NumPy; pin the memory to have it split over several routes)
* ``__dlpack__`` (everything else)

No element is converted: a buffer is bytes, and two arrays of any shapes and types may be copied
into each other when they have as many bytes. So an array has to be C-contiguous: its elements lie
in one block, the last index running fastest.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _dlpack
from .errors import InvalidArgument, WrongType
from .integers import integer


class Buffer(NamedTuple):
    """Memory: where it starts, and how long it is."""

    address: int
    """First byte, as the CUDA driver or the operating system numbers it."""
    bytes: int | None
    """Length in bytes; None when the object does not say (a bare address)."""
    read_only: bool = False


def as_buffer(memory: Any, name: str = "memory") -> Buffer:
    """The memory that ``memory`` holds. The caller keeps the object alive while copies use it.

    ``name`` stands for the object in messages, as in "dst". Raises `WrongType` when it holds no
    memory in any of the accepted ways, `InvalidArgument` when an array is not C-contiguous or has a
    mask or elements that are objects, and for an address past 64 bits.
    """
    if isinstance(memory, Buffer):
        return memory
    if isinstance(memory, int) and not isinstance(memory, bool):
        return Buffer(integer(memory, ctypes.c_uint64, name), None)
    if isinstance(memory, ctypes.c_void_p):
        return Buffer(memory.value or 0, None)
    if isinstance(memory, (ctypes.Array, ctypes.Structure, ctypes.Union, ctypes._SimpleCData)):
        return Buffer(ctypes.addressof(memory), ctypes.sizeof(memory))
    if hasattr(memory, "data_ptr"):
        return _from_data_ptr(memory, name)
    for interface in ("__cuda_array_interface__", "__array_interface__"):
        if hasattr(memory, interface):
            return _from_array_interface(getattr(memory, interface), name)
    if hasattr(memory, "__dlpack__"):
        return _from_dlpack(memory, name)
    raise WrongType(
        f"{name}: {type(memory).__name__} holds no memory that polypath can use; give an "
        "address (int), a ctypes object, or an array with data_ptr, __cuda_array_interface__, "
        "__array_interface__ or __dlpack__"
    )


def covered(
    memory: Any, name: str, bytes: int | None = None, *, writes: bool = False
) -> tuple[int, int]:
    """Which bytes of the memory a call uses: the first one's address, and how many, default all of
    them. ``writes``: the call stores into them.

    Raises as `as_buffer`, and `InvalidArgument`, with nothing done, for memory that is read-only
    and would be written, that is shorter, or that does not say how long it is where ``bytes`` is
    None.
    """
    buffer = as_buffer(memory, name)
    if writes and buffer.read_only:
        raise InvalidArgument(f"{name} is read-only")
    if bytes is None:
        if buffer.bytes is None:
            raise InvalidArgument(f"{name} has no size, so bytes is wanted")
        return buffer.address, buffer.bytes
    bytes = integer(bytes, ctypes.c_size_t, "bytes")
    if buffer.bytes is not None and bytes > buffer.bytes:
        raise InvalidArgument(f"{name} has {buffer.bytes} bytes, fewer than {bytes}")
    return buffer.address, bytes


def require_contiguous(
    shape: Sequence[int], strides: Sequence[int] | None, unit: int, name: str
) -> None:
    """Raises `InvalidArgument` unless an array of this shape is C-contiguous.

    ``strides``: one step a dimension, in the unit in which one element is ``unit`` long (bytes, or
    elements with ``unit`` 1); None means contiguous.
    """
    if strides is None or 0 in shape:
        return
    expected = unit
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            raise InvalidArgument(
                f"{name}: not C-contiguous (shape {tuple(shape)}, strides {tuple(strides)}, "
                f"element {unit}); copy it into a contiguous array first"
            )
        expected *= length


def _from_data_ptr(memory: Any, name: str) -> Buffer:
    contiguous = getattr(memory, "is_contiguous", None)
    if contiguous is not None and not contiguous():
        raise InvalidArgument(f"{name}: not C-contiguous; call .contiguous() first")
    address = memory.data_ptr() if callable(memory.data_ptr) else memory.data_ptr
    if hasattr(memory, "nbytes"):  # of a storage it is a method
        size = memory.nbytes() if callable(memory.nbytes) else memory.nbytes
        return Buffer(int(address), int(size))
    if hasattr(memory, "numel"):
        return Buffer(int(address), int(memory.numel()) * int(memory.element_size()))
    return Buffer(int(address), None)


def _from_array_interface(interface: Mapping[str, Any], name: str) -> Buffer:
    if interface.get("mask") is not None:
        raise InvalidArgument(f"{name}: a masked array; give the array without its mask")
    for key in ("shape", "typestr", "data"):
        if interface.get(key) is None:
            raise InvalidArgument(f"{name}: its array interface has no {key}")
    shape, kind = interface["shape"], interface["typestr"]
    # typestr is byte order, kind, bytes of one element: "<f4"; numpy's objects are "|O".
    if kind[1:2] == "O" or not kind[2:].isdecimal():
        raise InvalidArgument(f"{name}: elements of type '{kind}' are no bytes to copy")
    # For kind "U" the number counts characters of four bytes.
    item = int(kind[2:]) * (4 if kind[1] == "U" else 1)
    require_contiguous(shape, interface.get("strides"), item, name)
    address, read_only = interface["data"]
    size = item
    for length in shape:
        size *= length
    return Buffer(int(address or 0), size, bool(read_only))


def _from_dlpack(memory: Any, name: str) -> Buffer:
    tensor = _dlpack.describe(memory)
    require_contiguous(tensor.shape, tensor.strides, 1, name)
    count = 1
    for length in tensor.shape:
        count *= length
    return Buffer(tensor.address, (count * tensor.bits + 7) // 8, tensor.read_only)
