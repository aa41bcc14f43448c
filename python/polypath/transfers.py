"""Transfers and requests as callers give them, checked and as the C API takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _api, _c_abi
from .buffers import Buffer, as_buffer, covered
from .errors import InvalidArgument, WrongType
from .integers import checked_size, integer
from .streams import stream_handle


class Transfer(NamedTuple):
    """One transfer of `Context.group_copy_async`; the fields are the arguments of `copy_async`."""

    dst: Any
    src: Any
    bytes: int | None = None
    stream: Any = None


class Request(NamedTuple):
    """A transfer without addresses, for plans, preparation and benchmarks."""

    src: str
    """"gpu0", "host0"; "host" is "host0"."""
    dst: str
    bytes: int | str
    """Bytes, or a size such as "64M"."""


def request_array(requests: Iterable[Request | tuple[str, str, int | str]]) -> ctypes.Array[Any]:
    """The requests for the C API. Raises `InvalidArgument` for what is no request, and for a size
    that none can have."""
    checked = []
    for request in requests:
        if isinstance(request, str) or len(request) != len(Request._fields):
            raise InvalidArgument(f"{request!r} is no request: (source, destination, bytes)")
        src, dst, size = request
        names = _api.encoded(src, "src"), _api.encoded(dst, "dst")
        checked.append(_c_abi.TransferRequest(*names, checked_size(size)))
    return (_c_abi.TransferRequest * len(checked))(*checked)


def as_transfer(transfer: Any, where: str) -> Transfer:
    """A transfer, or a tuple in its order. Raises `InvalidArgument` for anything else."""
    try:
        return Transfer(*transfer)
    except TypeError:
        raise WrongType(f"{where}{transfer!r} is no transfer: (dst, src, bytes, stream)") from None


def checked_transfer(transfer: Transfer, where: str) -> _c_abi.Transfer:
    """The transfer's addresses, size and stream, checked as far as can be told without a driver."""
    dst = as_buffer(transfer.dst, f"{where}dst")
    src = as_buffer(transfer.src, f"{where}src")
    size = _transfer_size(dst, src, transfer.bytes, where)
    to, _ = covered(dst, f"{where}dst", size, writes=True)
    start, _ = covered(src, f"{where}src", size)
    return _c_abi.Transfer(to, start, size, stream_handle(transfer.stream))


def block_arrays(
    dst: Any, src: Any, size: Any
) -> tuple[int, ctypes.Array[Any], ctypes.Array[Any], ctypes.Array[Any]]:
    """The number of blocks, and their addresses and sizes, of `Context.copy_batch_async`."""
    to, to_sizes = _addresses(dst, "dst", writes=True)
    start, start_sizes = _addresses(src, "src", writes=False)
    count = len(to)
    if len(start) != count:
        raise InvalidArgument(f"there are {count} of dst and {len(start)} of src")
    words = ctypes.c_size_t * count
    if size is None:
        sizes = [
            _transfer_size(Buffer(0, left), Buffer(0, right), None, f"copy {index}: ")
            for index, (left, right) in enumerate(
                zip(to_sizes or [None] * count, start_sizes or [None] * count, strict=True)
            )
        ]
        return count, to, start, words(*sizes)
    block_sizes = _words_of(size, ctypes.c_size_t)
    if block_sizes is None and not isinstance(size, Iterable):
        block_sizes = words(*[integer(size, ctypes.c_size_t, "bytes")] * count)
    if block_sizes is None:
        block_sizes = (ctypes.c_size_t * len(size))(
            *(integer(each, ctypes.c_size_t, f"bytes[{at}]") for at, each in enumerate(size))
        )
    if len(block_sizes) != count:
        raise InvalidArgument(f"there are {count} of dst and {len(block_sizes)} of bytes")
    for name, lengths in (("dst", to_sizes), ("src", start_sizes)):
        for at, length in enumerate(lengths or ()):
            if length is not None and block_sizes[at] > length:
                raise InvalidArgument(
                    f"copy {at}: {name} has {length} bytes, fewer than {block_sizes[at]}"
                )
    return count, to, start, block_sizes


def gpu_array(gpus: Iterable[Any]) -> ctypes.Array[Any]:
    """Numbers of GPUs."""
    if isinstance(gpus, str) or not isinstance(gpus, Iterable):
        raise WrongType(f"gpus is no sequence of numbers: {gpus!r}")
    numbers = [integer(gpu, ctypes.c_int, f"gpus[{at}]") for at, gpu in enumerate(gpus)]
    return (ctypes.c_int * len(numbers))(*numbers)


def spread_arrays(
    dst: Any, src: Any, size: int | None, streams: Any
) -> tuple[int, ctypes.Array[Any], int, int, ctypes.Array[Any]]:
    """The number of destinations, their addresses, the source, the size and the streams of
    `Context.spread_async`."""
    to, to_sizes = _addresses(dst, "dst", writes=True)
    source = as_buffer(src, "src")
    if size is None:
        sizes = {
            _transfer_size(Buffer(0, length), source, None, f"dst[{at}]: ")
            for at, length in enumerate(to_sizes or [None] * len(to))
        }
        if len(sizes) > 1:
            raise InvalidArgument(f"the destinations are not of one size: {sorted(sizes)}")
        size = sizes.pop() if sizes else 0
    size = integer(size, ctypes.c_size_t, "bytes")
    for at, length in enumerate(to_sizes or ()):
        if length is not None and size > length:
            raise InvalidArgument(f"dst[{at}] has {length} bytes, fewer than {size}")
    start, _ = covered(source, "src", size)
    if isinstance(streams, list | tuple):
        handles = [stream_handle(stream) for stream in streams]
    else:
        handles = [stream_handle(streams)] * len(to)
    if len(handles) != len(to):
        raise InvalidArgument(f"there are {len(to)} of dst and {len(handles)} of streams")
    return len(to), to, start, size, (ctypes.c_void_p * len(to))(*handles)


def _addresses(
    blocks: Any, name: str, *, writes: bool
) -> tuple[ctypes.Array[Any], list[int | None] | None]:
    """Addresses of the blocks, and their sizes as far as they are known."""
    words = _words_of(blocks, ctypes.c_void_p)
    if words is not None:
        return words, None
    if not isinstance(blocks, Iterable):
        raise WrongType(f"{name} is no sequence of blocks, and no array of addresses")
    buffers = [as_buffer(block, f"{name}[{at}]") for at, block in enumerate(blocks)]
    for at, buffer in enumerate(buffers):
        if writes and buffer.read_only:
            raise InvalidArgument(f"{name}[{at}] is read-only")
    addresses = (ctypes.c_void_p * len(buffers))(*(buffer.address for buffer in buffers))
    return addresses, [buffer.bytes for buffer in buffers]


def _words_of(values: Any, kind: type[Any]) -> ctypes.Array[Any] | None:
    """The values, as ``kind``, of an array of 64-bit integers in host memory: of NumPy, PyTorch,
    `array.array` or ctypes. None for anything else."""
    if hasattr(values, "data_ptr") and hasattr(values, "numpy") and not _is_on_gpu(values):
        values = values.numpy()
    try:
        view = memoryview(values)
    except TypeError:
        return None
    if (
        view.ndim != 1
        or view.itemsize != 8
        or view.format.lstrip("<@=") not in ("q", "Q", "l", "L")
    ):
        return None
    return (kind * len(view)).from_buffer_copy(view)


def _is_on_gpu(tensor: Any) -> bool:
    return bool(getattr(tensor, "is_cuda", False))


def _transfer_size(dst: Buffer, src: Buffer, size: int | None, where: str) -> int:
    if size is None:
        if dst.bytes is None and src.bytes is None:
            raise InvalidArgument(
                f"{where}bytes is needed: neither dst nor src says how long it is"
            )
        if dst.bytes is not None and src.bytes is not None and dst.bytes != src.bytes:
            raise InvalidArgument(
                f"{where}dst has {dst.bytes} bytes and src {src.bytes}: give bytes"
            )
        size = dst.bytes if dst.bytes is not None else src.bytes
        assert size is not None
    return integer(size, ctypes.c_size_t, f"{where}bytes")
