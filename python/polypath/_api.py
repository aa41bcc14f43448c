"""The C API (polypath.h) for ctypes: structures, signatures, and status codes turned into
exceptions."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_void_p
from typing import Any

from . import _library
from .errors import BY_STATUS, LibraryNotFound, PolypathError


class Setting(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class Transfer(ctypes.Structure):
    _fields_ = [("dst", c_void_p), ("src", c_void_p), ("bytes", c_size_t), ("stream", c_void_p)]


class Request(ctypes.Structure):
    _fields_ = [("src", c_char_p), ("dst", c_char_p), ("bytes", c_size_t)]


class BenchRequest(ctypes.Structure):
    _fields_ = [
        ("transfers", POINTER(Request)),
        ("count", c_size_t),
        ("warmup", c_int),
        ("iterations", c_int),
        ("window", c_int),
        ("compare_executors", c_int),
    ]


class TuneRequest(ctypes.Structure):
    _fields_ = [
        ("transfers", POINTER(Request)),
        ("count", c_size_t),
        ("sizes", POINTER(c_size_t)),
        ("size_count", c_size_t),
        ("budget_s", c_double),
        ("exhaustive", c_int),
        ("again", c_int),
    ]


TuneProgress = ctypes.CFUNCTYPE(c_int, c_size_t, c_size_t, c_double, c_char_p, c_void_p)


class GraphPhasesRequest(ctypes.Structure):
    _fields_ = [
        ("src", c_char_p),
        ("dst", c_char_p),
        ("bytes", c_size_t),
        ("nodes", c_int),
        ("iterations", c_int),
    ]


Progress = ctypes.CFUNCTYPE(None, c_size_t, c_size_t, c_char_p, c_void_p)

# The strings that the caller frees come as c_void_p: ctypes would turn a c_char_p into bytes and
# lose the address.
_STRING = POINTER(c_void_p)

_FUNCTIONS: dict[str, list[Any]] = {
    "polypath_context_create": [POINTER(Setting), c_size_t, POINTER(c_void_p)],
    "polypath_copy_async": [c_void_p, c_void_p, c_void_p, c_size_t, c_void_p],
    "polypath_group_copy_async": [c_void_p, POINTER(Transfer), c_size_t],
    "polypath_prepare": [c_void_p, POINTER(Request), c_size_t],
    "polypath_plan": [c_void_p, POINTER(Request), c_size_t, _STRING],
    "polypath_topology": [c_void_p, _STRING],
    "polypath_measure": [c_void_p, Progress, c_void_p],
    "polypath_settings": [c_void_p, _STRING],
    "polypath_devices": [c_void_p, _STRING],
    "polypath_counters": [c_void_p, _STRING],
    "polypath_counters_reset": [c_void_p],
    "polypath_tuned": [c_void_p, _STRING],
}

_OF_THE_LABORATORY: dict[str, list[Any]] = {
    "polypath_bench": [c_void_p, POINTER(BenchRequest), _STRING],
    "polypath_tune": [c_void_p, POINTER(TuneRequest), TuneProgress, c_void_p, _STRING],
    "polypath_graph_phases": [c_void_p, POINTER(GraphPhasesRequest), _STRING],
}


@functools.cache
def library() -> ctypes.CDLL:
    """libpolypath.so with its signatures declared. Raises `LibraryNotFound`."""
    opened = _library.load()
    opened.polypath_version.argtypes = []
    opened.polypath_version.restype = c_char_p
    opened.polypath_last_error.argtypes = []
    opened.polypath_last_error.restype = c_char_p
    opened.polypath_free.argtypes = [c_void_p]
    opened.polypath_free.restype = None
    opened.polypath_context_destroy.argtypes = [c_void_p]
    opened.polypath_context_destroy.restype = None
    laboratory = _OF_THE_LABORATORY if hasattr(opened, "polypath_bench") else {}
    for name, arguments in {**_FUNCTIONS, **laboratory}.items():
        function: Callable[..., int] = getattr(opened, name)
        function.argtypes = arguments  # type: ignore[attr-defined]
        function.restype = c_int  # type: ignore[attr-defined]
    return opened


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status; raises the status's exception with the message."""
    opened = library()
    if name in _OF_THE_LABORATORY and not hasattr(opened, name):
        raise LibraryNotFound("libpolypath_lab.so, which measures, is not beside libpolypath.so")
    status = getattr(opened, name)(*arguments)
    if status != 0:
        raise BY_STATUS.get(status, PolypathError)(opened.polypath_last_error().decode())


def call_json(name: str, *arguments: Any) -> Any:
    """Calls a function whose last parameter is ``char **json``, and returns the value."""
    text = c_void_p()
    call(name, *arguments, ctypes.byref(text))
    try:
        return json.loads(ctypes.string_at(text.value or 0))
    finally:
        library().polypath_free(text)


def version() -> str:
    """Version of the library in use, e.g. "0.1.0"."""
    return str(library().polypath_version().decode())
