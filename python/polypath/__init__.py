"""polypath: one transfer over every path of a node.

>>> import polypath
>>> with polypath.Context(node="narval") as context:
...     [route["route"] for route in context.plan("gpu0", "gpu1", "64M")["transfers"][0]["routes"]]

Units: bytes; GB/s = 1e9 bytes/s; microseconds. Memories are named "gpu0", "gpu1", "host0"; GPU
numbers are those of the CUDA driver.
"""

from __future__ import annotations

from .buffers import Buffer, as_buffer
from .comm import Communicator, SymmetricMemory
from .context import Context, settings
from .errors import (
    CommunicatorError,
    DriverError,
    FileError,
    InternalError,
    InvalidArgument,
    LibraryNotFound,
    NoDevice,
    NotSupported,
    PolypathError,
)
from .loading import load_file, load_sharded
from .sizes import format_size, parse_size
from .transfers import Request, Transfer

__all__ = [
    "Buffer",
    "Communicator",
    "CommunicatorError",
    "Context",
    "DriverError",
    "FileError",
    "InternalError",
    "InvalidArgument",
    "LibraryNotFound",
    "NoDevice",
    "NotSupported",
    "PolypathError",
    "Request",
    "SymmetricMemory",
    "Transfer",
    "as_buffer",
    "format_size",
    "load_file",
    "load_sharded",
    "parse_size",
    "settings",
    "version",
]


def version() -> str:
    """Version of libpolypath.so in use, e.g. "0.1.0". Raises `LibraryNotFound`."""
    from . import _api

    return _api.version()
