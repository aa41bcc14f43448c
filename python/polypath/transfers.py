"""Transfers and requests as callers give them, checked and as the C API takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _api
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
        checked.append(_api.Request(*names, checked_size(size)))
    return (_api.Request * len(checked))(*checked)


def as_transfer(transfer: Any, where: str) -> Transfer:
    """A transfer, or a tuple in its order. Raises `InvalidArgument` for anything else."""
    try:
        return Transfer(*transfer)
    except TypeError:
        raise WrongType(f"{where}{transfer!r} is no transfer: (dst, src, bytes, stream)") from None


def checked_transfer(transfer: Transfer, where: str) -> _api.Transfer:
    """The transfer's addresses, size and stream, checked as far as can be told without a driver."""
    dst = as_buffer(transfer.dst, f"{where}dst")
    src = as_buffer(transfer.src, f"{where}src")
    size = _transfer_size(dst, src, transfer.bytes, where)
    to, _ = covered(dst, f"{where}dst", size, writes=True)
    start, _ = covered(src, f"{where}src", size)
    return _api.Transfer(to, start, size, stream_handle(transfer.stream))


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
