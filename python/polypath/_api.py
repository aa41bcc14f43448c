"""Calls of the C API by ctypes, as `_c_abi` declares it, and status codes turned into
exceptions."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from ctypes import c_void_p
from typing import Any, NoReturn

from . import _c_abi, _library
from .buffers import Buffer
from .errors import BY_STATUS_NAME, InvalidArgument, LibraryNotFound, PolypathError
from .integers import Integers

_LABORATORY = _c_abi.FUNCTIONS["lab.h"]
#: The headers whose functions only one of libpolypath.so and libpolypath_lab.so has.
_OPTIONAL = ("lab.h", "offload.h")
_FUNCTIONS = {name: entry for table in _c_abi.FUNCTIONS.values() for name, entry in table.items()}
_INTEGERS = {name: Integers(parameters) for name, (_, parameters) in _FUNCTIONS.items()}


def enumerators(enum: str, prefix: str = "POLYPATH_") -> dict[str, int]:
    """The values of an enum of the C API by their names in small letters, without the prefix."""
    return {name.removeprefix(prefix).lower(): value for name, value in _c_abi.ENUMS[enum].items()}


_ERRORS = {
    value: BY_STATUS_NAME[name]
    for name, value in _c_abi.ENUMS["polypath_status"].items()
    if name != "POLYPATH_SUCCESS"
}
TYPES = enumerators("polypath_data_type")
OPERATORS = enumerators("polypath_reduce_op")
SUM_ORDERS = {
    name.removeprefix("sum_order_"): number
    for name, number in enumerators("polypath_sum_order").items()
}


@functools.cache
def _parameter(kind: Any) -> Any:
    """The type for ``argtypes``: a pointer also accepts an integer, e.g. an address of GPU
    memory."""
    if not hasattr(kind, "contents"):
        return kind

    class Address:
        @classmethod
        def from_param(cls, value: Any) -> Any:
            return c_void_p(value) if isinstance(value, int) else kind.from_param(value)

    return Address


@functools.cache
def library() -> ctypes.CDLL:
    """libpolypath.so with its signatures declared. Raises `LibraryNotFound`, also for a library
    that is another one."""
    opened = _library.load()
    try:
        return _declared(opened)
    except AttributeError as error:
        what = "of another version" if hasattr(opened, "polypath_version") else "no libpolypath.so"
        raise LibraryNotFound(f"{opened._name} is {what}: {error}") from error


def _declared(opened: ctypes.CDLL) -> ctypes.CDLL:
    for header, functions in _c_abi.FUNCTIONS.items():
        if header in _OPTIONAL and not any(hasattr(opened, name) for name in functions):
            continue
        for name, (result, parameters) in functions.items():
            function = getattr(opened, name)
            function.argtypes = [_parameter(kind) for _, kind in parameters]
            function.restype = result
    return opened


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status; raises the status's exception with the message, and
    `InvalidArgument` for an integer that C would not take as it is."""
    opened = library()
    if name in _LABORATORY and not hasattr(opened, name):
        raise LibraryNotFound("libpolypath_lab.so, which measures, is not beside libpolypath.so")
    status = getattr(opened, name)(*_INTEGERS[name].checked(arguments))
    if status != 0:
        fail(status)


def fail(status: int) -> NoReturn:
    """Raises the exception of the status of this thread's last call, with its message."""
    raise _ERRORS.get(status, PolypathError)(decoded(library().polypath_last_error()))


def call_json(name: str, *arguments: Any) -> Any:
    """Calls a function whose last parameter is ``char **json``, and returns the value."""
    text = c_void_p()
    call(name, *arguments, ctypes.byref(text))
    try:
        return json.loads(ctypes.string_at(text.value or 0))
    finally:
        library().polypath_free_string(text)


def version() -> str:
    """Version of the library in use, e.g. "0.1.0"."""
    return str(library().polypath_version().decode())


def decoded(text: bytes) -> str:
    """Text of the library, in which names may be no UTF-8."""
    return text.decode(errors="backslashreplace")


def encoded(text: Any, name: str) -> bytes:
    """The caller's text as bytes for C. Raises `InvalidArgument` with ``name`` for any other type,
    and for a null character, where C would end the text."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{name}: {text!r} is no text")
    if "\0" in text:
        raise InvalidArgument(f"{name}: {text!r} has a null character")
    return os.fsencode(text)


def item_bytes(type: str) -> int:
    """Bytes of an element."""
    return int(type.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8


def elements(memory: Buffer | None, type: str, parts: int = 1) -> int:
    """How many of each part are in what is sent. Raises `InvalidArgument` unless that is a whole
    number."""
    if memory is None or memory.bytes is None:
        raise InvalidArgument("send has no size, so count is wanted")
    count, rest = divmod(memory.bytes, item_bytes(type) * parts)
    if rest:
        of_each = "" if parts == 1 else f" for each of {parts} ranks"
        raise InvalidArgument(
            f"send: {memory.bytes} bytes are no whole number of {type}{of_each}: give count"
        )
    return count
