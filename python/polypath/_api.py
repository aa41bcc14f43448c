"""The C API (polypath.h) for ctypes: structures, signatures, and status codes turned into
exceptions."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, NoReturn

from . import _library
from .errors import BY_STATUS, InvalidArgument, LibraryNotFound, PolypathError


class Setting(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class Transfer(ctypes.Structure):
    _fields_ = [("dst", c_void_p), ("src", c_void_p), ("bytes", c_size_t), ("stream", c_void_p)]


class Request(ctypes.Structure):
    _fields_ = [("src", c_char_p), ("dst", c_char_p), ("bytes", c_size_t)]


class CollectiveRequest(ctypes.Structure):
    _fields_ = [
        ("op", c_char_p),
        ("type", c_char_p),
        ("operation", c_char_p),
        ("bytes", c_size_t),
        ("gpus", POINTER(c_int)),
        ("ranks", c_int),
        ("root", c_int),
        ("nodes", c_int),
        ("network_gbps", c_double),
        ("algorithm", c_char_p),
        ("max_blocks", c_int),
        ("compare", c_int),
    ]


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


class CommOptions(ctypes.Structure):
    _fields_ = [
        ("time_limit_ms", c_uint32),
        ("port", c_uint32),
        ("network", c_void_p),
        ("max_blocks", c_uint32),
        ("spared_multiprocessors", c_uint32),
        ("reserved", c_uint64 * 4),
    ]


class QueueOptions(ctypes.Structure):
    _fields_ = [
        ("item_bytes", c_size_t),
        ("capacity", c_uint32),
        ("segment", c_uint32),
        ("kind", c_int),
        ("layout", c_int),
        ("time_limit_ms", c_uint32),
        ("reserved", c_uint32 * 5),
    ]


class PoolOptions(ctypes.Structure):
    _fields_ = [
        ("bytes", c_size_t),
        ("slab_bytes", c_uint32),
        ("returns", c_uint32),
        ("reserved", c_uint32 * 4),
    ]


class Signal(ctypes.Structure):
    _fields_ = [("memory", c_void_p), ("offset", c_size_t), ("value", c_uint64)]


class CollectiveBenchRequest(ctypes.Structure):
    _fields_ = [
        ("op", c_char_p),
        ("type", c_char_p),
        ("operation", c_char_p),
        ("bytes", c_size_t),
        ("warmup", c_int),
        ("iterations", c_int),
        ("calls", c_int),
        ("choice", c_char_p),
    ]


class TuneCollectivesRequest(ctypes.Structure):
    _fields_ = [
        ("op", c_char_p),
        ("sizes", POINTER(c_size_t)),
        ("size_count", c_size_t),
        ("budget_s", c_double),
        ("again", c_int),
    ]


class MatcherOptions(ctypes.Structure):
    _fields_ = [("order", c_int), ("capacity", c_uint32), ("reserved", c_uint64 * 4)]


#: The numbers of the C API (polypath_type, polypath_operator).
TYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "bfloat16": 7,
    "float32": 8,
    "float64": 9,
}
TYPE_BYTES = {name: int(name.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8 for name in TYPES}
OPERATORS = {"sum": 0, "product": 1, "min": 2, "max": 3, "avg": 4}

Exchange = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
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
    "polypath_plan_collective": [c_void_p, POINTER(CollectiveRequest), _STRING],
    "polypath_topology": [c_void_p, _STRING],
    "polypath_measure": [c_void_p, Progress, c_void_p],
    "polypath_settings": [c_void_p, _STRING],
    "polypath_devices": [c_void_p, _STRING],
    "polypath_counters": [c_void_p, _STRING],
    "polypath_counters_reset": [c_void_p],
    "polypath_tuned": [c_void_p, _STRING],
}

_COMM_FUNCTIONS: dict[str, list[Any]] = {
    "polypath_comm_create": [
        *[c_void_p, c_int, c_int, c_int, Exchange, c_void_p],
        *[POINTER(CommOptions), POINTER(c_void_p)],
    ],
    "polypath_comm_create_all": [
        *[c_void_p, POINTER(c_int), c_int, POINTER(CommOptions), POINTER(c_void_p)],
    ],
    "polypath_comm_create_from_environment": [
        *[c_void_p, c_int, POINTER(CommOptions), POINTER(c_void_p)],
    ],
    "polypath_comm_split": [c_void_p, c_int, c_int, POINTER(c_void_p)],
    "polypath_comm_destroy": [c_void_p],
    "polypath_comm_abort": [c_void_p, c_char_p],
    "polypath_comm_check": [c_void_p],
    "polypath_comm_synchronize": [c_void_p, c_void_p],
    "polypath_comm_nodes": [c_void_p],
    "polypath_comm_rank": [c_void_p],
    "polypath_comm_size": [c_void_p],
    "polypath_comm_gpu": [c_void_p, c_int],
    "polypath_comm_exchange": [c_void_p, c_char_p, c_void_p, c_size_t],
    "polypath_comm_alloc": [c_void_p, c_size_t, POINTER(c_void_p)],
    "polypath_comm_free": [c_void_p, c_void_p],
    "polypath_comm_put": [
        *[c_void_p, c_int, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p],
    ],
    "polypath_comm_put_signal": [
        *[c_void_p, c_int, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(Signal), c_void_p],
    ],
    "polypath_comm_signal": [c_void_p, c_int, POINTER(Signal), c_void_p],
    "polypath_comm_wait_signal": [c_void_p, POINTER(Signal), c_void_p],
    "polypath_comm_barrier": [c_void_p, c_void_p],
    "polypath_comm_patience": [c_void_p, c_void_p, c_size_t],
    "polypath_comm_prepare": [c_void_p],
    "polypath_comm_limit_blocks": [c_void_p, c_int],
    "polypath_comm_report": [c_void_p, _STRING],
    "polypath_allreduce": [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "polypath_reduce_scatter": [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "polypath_all_gather": [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "polypath_broadcast": [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "polypath_reduce": [
        *[c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p],
    ],
    "polypath_all_to_all": [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p],
}

_ENVELOPES = [c_void_p, c_size_t, c_void_p, c_size_t]

_MATCHING_FUNCTIONS: dict[str, list[Any]] = {
    "polypath_matcher_create": [c_void_p, POINTER(MatcherOptions), POINTER(c_void_p)],
    "polypath_matcher_destroy": [c_void_p],
    "polypath_match": [c_void_p, *_ENVELOPES, c_void_p, c_void_p, c_void_p],
    "polypath_match_many": [c_void_p, c_size_t, *[c_void_p] * 7],
    "polypath_match_next": [c_void_p, *_ENVELOPES, c_void_p, c_void_p, c_void_p],
    "polypath_match_on_host": [c_int, *_ENVELOPES, c_void_p, c_void_p],
    "polypath_matcher_reset": [c_void_p, c_void_p],
    "polypath_matcher_report": [c_void_p, _STRING],
}

_QUEUE_OPTIONS = POINTER(QueueOptions)

_MESSAGING_FUNCTIONS: dict[str, list[Any]] = {
    "polypath_queue_create": [c_void_p, _QUEUE_OPTIONS, c_int, POINTER(c_void_p)],
    "polypath_queue_connect": [c_void_p, _QUEUE_OPTIONS, c_int, c_int, c_int, POINTER(c_void_p)],
    "polypath_queue_connect_each": [c_void_p, _QUEUE_OPTIONS, POINTER(c_void_p)],
    "polypath_queue_create_host": [c_void_p, _QUEUE_OPTIONS, c_int, c_int, POINTER(c_void_p)],
    "polypath_queue_destroy": [c_void_p],
    "polypath_queue_count": [c_void_p],
    "polypath_queue_view": [c_void_p, c_int, c_int, c_void_p, c_size_t],
    "polypath_queue_report": [c_void_p, _STRING],
    "polypath_queue_push": [c_void_p, c_int, c_void_p, c_size_t],
    "polypath_queue_try_push": [c_void_p, c_int, c_void_p, c_size_t, POINTER(c_size_t)],
    "polypath_queue_pop": [c_void_p, c_int, c_void_p, c_size_t, POINTER(c_size_t)],
    "polypath_queue_try_pop": [
        *[c_void_p, c_int, c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_int)],
    ],
    "polypath_queue_close": [c_void_p, c_int],
    "polypath_pool_create": [c_void_p, POINTER(PoolOptions), POINTER(c_void_p)],
    "polypath_pool_create_shared": [c_void_p, POINTER(PoolOptions), POINTER(c_void_p)],
    "polypath_pool_destroy": [c_void_p],
    "polypath_pool_view": [c_void_p, c_void_p, c_size_t],
    "polypath_pool_report": [c_void_p, _STRING],
}

_COORDINATOR = [c_void_p]
_BUFFERS = [c_void_p, c_void_p]
_LISTS = [POINTER(c_size_t), POINTER(c_size_t)]

_UNICONN_FUNCTIONS: dict[str, list[Any]] = {
    "polypath_meeting_all": [c_int, c_uint32, POINTER(c_void_p)],
    "polypath_uniconn_env_create": [c_int, c_int, Exchange, c_void_p, c_int, POINTER(c_void_p)],
    "polypath_uniconn_env_create_from_environment": [POINTER(c_void_p)],
    "polypath_plan_backend": [
        *[c_void_p, c_char_p, c_size_t, POINTER(c_int), c_int, c_int, _STRING],
    ],
    "polypath_uniconn_set_device": [c_void_p, c_int],
    "polypath_uniconn_world_rank": [c_void_p],
    "polypath_uniconn_world_size": [c_void_p],
    "polypath_uniconn_node_rank": [c_void_p],
    "polypath_uniconn_node_size": [c_void_p],
    "polypath_uniconn_alloc": [c_size_t, POINTER(c_void_p)],
    "polypath_uniconn_free": [c_void_p],
    "polypath_uniconn_comm_create": [POINTER(c_void_p)],
    "polypath_uniconn_comm_split": [c_void_p, c_int, c_int, POINTER(c_void_p)],
    "polypath_uniconn_comm_rank": [c_void_p],
    "polypath_uniconn_comm_size": [c_void_p],
    "polypath_uniconn_barrier": [c_void_p, c_void_p],
    "polypath_uniconn_coordinator_create": [c_void_p, POINTER(c_void_p)],
    "polypath_uniconn_start": _COORDINATOR,
    "polypath_uniconn_end": _COORDINATOR,
    "polypath_uniconn_wait": _COORDINATOR,
    "polypath_uniconn_post": [
        *[*_COORDINATOR, *_BUFFERS, c_size_t, c_void_p, c_uint64, c_int, c_void_p],
    ],
    "polypath_uniconn_acknowledge": [
        *[*_COORDINATOR, c_void_p, c_size_t, c_void_p, c_uint64, c_int, c_void_p],
    ],
    "polypath_uniconn_all_gather": [*_COORDINATOR, *_BUFFERS, c_size_t, c_void_p],
    "polypath_uniconn_all_gatherv": [*_COORDINATOR, *_BUFFERS, *_LISTS, c_void_p],
    "polypath_uniconn_all_to_all": [*_COORDINATOR, *_BUFFERS, c_size_t, c_void_p],
    "polypath_uniconn_all_to_allv": [
        *[*_COORDINATOR, c_void_p, *_LISTS, c_void_p, *_LISTS, c_void_p],
    ],
    "polypath_uniconn_broadcast": [*_COORDINATOR, c_void_p, c_size_t, c_int, c_void_p],
    "polypath_uniconn_gather": [*_COORDINATOR, *_BUFFERS, c_size_t, c_int, c_void_p],
    "polypath_uniconn_gatherv": [*_COORDINATOR, *_BUFFERS, *_LISTS, c_int, c_void_p],
    "polypath_uniconn_scatter": [*_COORDINATOR, *_BUFFERS, c_size_t, c_int, c_void_p],
    "polypath_uniconn_scatterv": [*_COORDINATOR, *_BUFFERS, *_LISTS, c_int, c_void_p],
    "polypath_uniconn_all_reduce": [
        *[*_COORDINATOR, *_BUFFERS, c_size_t, c_int, c_int, c_void_p],
    ],
    "polypath_uniconn_reduce": [
        *[*_COORDINATOR, *_BUFFERS, c_size_t, c_int, c_int, c_int, c_void_p],
    ],
}

_OF_THE_LABORATORY: dict[str, list[Any]] = {
    "polypath_bench": [c_void_p, POINTER(BenchRequest), _STRING],
    "polypath_tune": [c_void_p, POINTER(TuneRequest), TuneProgress, c_void_p, _STRING],
    "polypath_graph_phases": [c_void_p, POINTER(GraphPhasesRequest), _STRING],
    "polypath_collective_bench_create": [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)],
    "polypath_collective_bench_run": [c_void_p, POINTER(CollectiveBenchRequest), _STRING],
    "polypath_tune_collectives": [
        *[c_void_p, POINTER(TuneCollectivesRequest), TuneProgress, c_void_p, _STRING],
    ],
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
    opened.polypath_network_nccl.argtypes = []
    opened.polypath_network_nccl.restype = c_void_p
    opened.polypath_symmetric_address.argtypes = [c_void_p, c_int]
    opened.polypath_symmetric_address.restype = c_void_p
    opened.polypath_symmetric_bytes.argtypes = [c_void_p]
    opened.polypath_symmetric_bytes.restype = c_size_t
    opened.polypath_queue_view_bytes.argtypes = [c_void_p]
    opened.polypath_queue_view_bytes.restype = c_size_t
    opened.polypath_pool_view_bytes.argtypes = [c_int]
    opened.polypath_pool_view_bytes.restype = c_size_t
    for name in ("meeting", "uniconn_env", "uniconn_comm", "uniconn_coordinator"):
        destroy = getattr(opened, f"polypath_{name}_destroy")
        destroy.argtypes = [c_void_p]
        destroy.restype = None
    for name in ("backend", "reason"):
        told = getattr(opened, f"polypath_uniconn_{name}")
        told.argtypes = [c_void_p]
        told.restype = c_char_p
    laboratory = _OF_THE_LABORATORY if hasattr(opened, "polypath_bench") else {}
    if laboratory:
        opened.polypath_collective_bench_destroy.argtypes = [c_void_p]
        opened.polypath_collective_bench_destroy.restype = None
    for name, arguments in {
        **_FUNCTIONS,
        **_COMM_FUNCTIONS,
        **_MATCHING_FUNCTIONS,
        **_MESSAGING_FUNCTIONS,
        **_UNICONN_FUNCTIONS,
        **laboratory,
    }.items():
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
        fail(status)


def fail(status: int) -> NoReturn:
    """Raises the exception of the status of this thread's last call, with its message."""
    raise BY_STATUS.get(status, PolypathError)(library().polypath_last_error().decode())


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


def comm_options(time_limit_ms: int, network: str | None, port: int = 0) -> CommOptions:
    """What a communicator is created with. Raises `InvalidArgument` for a network that there is
    not."""
    if network not in (None, "nccl"):
        raise InvalidArgument(f"network: there is no '{network}': nccl, or None")
    nccl = library().polypath_network_nccl() if network else None
    return CommOptions(time_limit_ms, port, nccl)
