"""The C API (polypath.h) for ctypes: structures, signatures, and status codes turned into
exceptions."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, NoReturn

from . import _library
from .buffers import Buffer
from .errors import BY_STATUS, InvalidArgument, LibraryNotFound, PolypathError
from .integers import Checked, Integers


class Setting(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class Transfer(ctypes.Structure):
    _fields_ = [("dst", c_void_p), ("src", c_void_p), ("bytes", c_size_t), ("stream", c_void_p)]


class Request(Checked, ctypes.Structure):
    _fields_ = [("src", c_char_p), ("dst", c_char_p), ("bytes", c_size_t)]


class CollectiveRequest(Checked, ctypes.Structure):
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


class BenchRequest(Checked, ctypes.Structure):
    _fields_ = [
        ("transfers", POINTER(Request)),
        ("count", c_size_t),
        ("warmup", c_int),
        ("iterations", c_int),
        ("window", c_int),
        ("compare_executors", c_int),
    ]


class BenchBlocksRequest(Checked, ctypes.Structure):
    _fields_ = [
        ("src", c_char_p),
        ("dst", c_char_p),
        ("block_bytes", c_size_t),
        ("count", c_size_t),
        ("warmup", c_int),
        ("iterations", c_int),
        ("rounds", c_int),
    ]


class BenchFileRequest(Checked, ctypes.Structure):
    _fields_ = [
        ("dst", c_char_p),
        ("file", c_char_p),
        ("bytes", c_size_t),
        ("warmup", c_int),
        ("iterations", c_int),
        ("rounds", c_int),
    ]


class BenchSpreadRequest(Checked, ctypes.Structure):
    _fields_ = [
        ("src", c_char_p),
        ("gpus", POINTER(c_int)),
        ("count", c_size_t),
        ("bytes", c_size_t),
        ("pageable", c_int),
        ("warmup", c_int),
        ("iterations", c_int),
        ("rounds", c_int),
    ]


class BesideRequest(Checked, ctypes.Structure):
    _fields_ = [
        ("transfers", POINTER(Request)),
        ("count", c_size_t),
        ("warmup", c_int),
        ("iterations", c_int),
        ("rounds", c_int),
        ("own", POINTER(Request)),
        ("own_count", c_size_t),
        ("own_queue", c_int),
        ("own_on_us", c_double),
        ("own_off_us", c_double),
    ]


class TuneRequest(Checked, ctypes.Structure):
    _fields_ = [
        ("transfers", POINTER(Request)),
        ("count", c_size_t),
        ("sizes", POINTER(c_size_t)),
        ("size_count", c_size_t),
        ("budget_s", c_double),
        ("exhaustive", c_int),
        ("again", c_int),
    ]


TrafficSwitch = ctypes.CFUNCTYPE(c_int, c_int, c_void_p)
TuneProgress = ctypes.CFUNCTYPE(c_int, c_size_t, c_size_t, c_double, c_char_p, c_void_p)


class GraphPhasesRequest(Checked, ctypes.Structure):
    _fields_ = [
        ("src", c_char_p),
        ("dst", c_char_p),
        ("bytes", c_size_t),
        ("nodes", c_int),
        ("iterations", c_int),
    ]


class CommOptions(Checked, ctypes.Structure):
    _fields_ = [
        ("timeout_ms", c_uint32),
        ("port", c_uint32),
        ("network", c_void_p),
        ("max_blocks", c_uint32),
        ("reserved_sms", c_uint32),
        ("retries_buffers", c_uint64),
        ("reserved", c_uint64 * 3),
    ]


class QueueOptions(Checked, ctypes.Structure):
    _fields_ = [
        ("item_bytes", c_size_t),
        ("capacity", c_uint32),
        ("segment", c_uint32),
        ("kind", c_int),
        ("layout", c_int),
        ("timeout_ms", c_uint32),
        ("reserved", c_uint32 * 5),
    ]


class PoolOptions(Checked, ctypes.Structure):
    _fields_ = [
        ("bytes", c_size_t),
        ("slab_bytes", c_uint32),
        ("returns", c_uint32),
        ("reserved", c_uint32 * 4),
    ]


class Signal(Checked, ctypes.Structure):
    _fields_ = [("memory", c_void_p), ("offset", c_size_t), ("value", c_uint64)]


class CollectiveBenchRequest(Checked, ctypes.Structure):
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


class TuneCollectivesRequest(Checked, ctypes.Structure):
    _fields_ = [
        ("op", c_char_p),
        ("sizes", POINTER(c_size_t)),
        ("size_count", c_size_t),
        ("budget_s", c_double),
        ("again", c_int),
    ]


class MatcherOptions(Checked, ctypes.Structure):
    _fields_ = [
        ("order", c_int),
        ("capacity", c_uint32),
        ("launch_per_phase", c_uint64),
        ("reserved", c_uint64 * 3),
    ]


#: The numbers of the C API (polypath_data_type, polypath_reduce_op).
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
OPERATORS = {"sum": 0, "product": 1, "min": 2, "max": 3, "avg": 4}

Exchange = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
Progress = ctypes.CFUNCTYPE(None, c_size_t, c_size_t, c_char_p, c_void_p)

# The strings that the caller frees come as c_void_p: ctypes would turn a c_char_p into bytes and
# lose the address.
_STRING = POINTER(c_void_p)

# Signatures. A pair (name, type) is an integer argument of the caller, which `call` checks and
# names in its errors. Other arguments are created here, or checked where they come from.

_FUNCTIONS: dict[str, list[Any]] = {
    "polypath_context_create": [POINTER(Setting), c_size_t, POINTER(c_void_p)],
    "polypath_copy_async": [c_void_p, c_void_p, c_void_p, c_size_t, c_void_p],
    "polypath_group_copy_async": [c_void_p, POINTER(Transfer), c_size_t],
    "polypath_copy_batch_async": [
        *[c_void_p, c_size_t, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint64), c_void_p],
    ],
    "polypath_read_async": [
        *[c_void_p, ("file", c_int), ("offset", c_uint64), c_void_p, c_size_t, c_void_p],
    ],
    "polypath_prepare_batches": [c_void_p, POINTER(Request), c_size_t],
    "polypath_share_mapping": [c_void_p, c_void_p, c_size_t],
    "polypath_unshare_mapping": [c_void_p, c_void_p, c_size_t],
    "polypath_spread_async": [
        *[c_void_p, c_size_t, POINTER(c_uint64), c_void_p, c_size_t, POINTER(c_uint64)],
    ],
    "polypath_prepare_spread": [c_void_p, c_char_p, POINTER(c_int), c_size_t],
    "polypath_plan_spread": [c_void_p, c_char_p, POINTER(c_int), c_size_t, c_size_t, _STRING],
    "polypath_prepare": [c_void_p, POINTER(Request), c_size_t],
    "polypath_plan": [c_void_p, POINTER(Request), c_size_t, _STRING],
    "polypath_plan_collective": [c_void_p, POINTER(CollectiveRequest), _STRING],
    "polypath_topology": [c_void_p, _STRING],
    "polypath_load": [c_void_p, _STRING],
    "polypath_measure": [c_void_p, Progress, c_void_p],
    "polypath_settings": [c_void_p, _STRING],
    "polypath_device_info": [c_void_p, _STRING],
    "polypath_counters": [c_void_p, _STRING],
    "polypath_counters_reset": [c_void_p],
    "polypath_tuning_results": [c_void_p, _STRING],
}

_SPLIT = [("color", c_int), ("key", c_int)]
_COUNT = ("count", c_size_t)
_BYTES = ("bytes", c_size_t)
_TO = ("to", c_int)
_ROOT = ("root", c_int)
_COLLECTIVE = [c_void_p, c_void_p, c_void_p, _COUNT, c_int]
_PUT = [c_void_p, _TO, c_void_p, ("offset", c_size_t), c_void_p, _BYTES]

_COMM_FUNCTIONS: dict[str, list[Any]] = {
    "polypath_comm_create": [
        *[c_void_p, ("rank", c_int), ("size", c_int), ("gpu", c_int), Exchange, c_void_p],
        *[POINTER(CommOptions), POINTER(c_void_p)],
    ],
    "polypath_comm_create_all": [
        *[c_void_p, POINTER(c_int), c_int, POINTER(CommOptions), POINTER(c_void_p)],
    ],
    "polypath_comm_create_from_environment": [
        *[c_void_p, ("gpu", c_int), POINTER(CommOptions), POINTER(c_void_p)],
    ],
    "polypath_comm_split": [c_void_p, *_SPLIT, POINTER(c_void_p)],
    "polypath_comm_destroy": [c_void_p],
    "polypath_comm_abort": [c_void_p, c_char_p],
    "polypath_comm_check": [c_void_p],
    "polypath_comm_synchronize": [c_void_p, c_void_p],
    "polypath_comm_node_count": [c_void_p],
    "polypath_comm_rank": [c_void_p],
    "polypath_comm_size": [c_void_p],
    "polypath_comm_gpu": [c_void_p, c_int],
    "polypath_comm_host_all_gather": [c_void_p, c_char_p, c_void_p, c_size_t],
    "polypath_comm_alloc": [c_void_p, c_size_t, POINTER(c_void_p)],
    "polypath_comm_free": [c_void_p, c_void_p],
    "polypath_comm_put": [*_PUT, c_void_p],
    "polypath_comm_put_signal": [*_PUT, POINTER(Signal), c_void_p],
    "polypath_comm_signal": [c_void_p, _TO, POINTER(Signal), c_void_p],
    "polypath_comm_wait_signal": [c_void_p, POINTER(Signal), c_void_p],
    "polypath_comm_barrier": [c_void_p, c_void_p],
    "polypath_comm_wait_context": [c_void_p, c_void_p, c_size_t],
    "polypath_comm_prepare": [c_void_p],
    "polypath_comm_set_max_blocks": [c_void_p, ("blocks", c_int)],
    "polypath_comm_report": [c_void_p, _STRING],
    "polypath_all_reduce": [*_COLLECTIVE, c_int, c_void_p],
    "polypath_reduce_scatter": [*_COLLECTIVE, c_int, c_void_p],
    "polypath_all_gather": [*_COLLECTIVE, c_void_p],
    "polypath_broadcast": [*_COLLECTIVE, _ROOT, c_void_p],
    "polypath_comm_spread": [
        *[c_void_p, c_void_p, c_void_p, c_size_t, ("root", c_int), c_void_p],
    ],
    "polypath_reduce": [*_COLLECTIVE, c_int, _ROOT, c_void_p],
    "polypath_all_to_all": [*_COLLECTIVE, c_void_p],
}

_ENVELOPES = [c_void_p, c_size_t, c_void_p, c_size_t]

_MATCHING_FUNCTIONS: dict[str, list[Any]] = {
    "polypath_matcher_create": [c_void_p, POINTER(MatcherOptions), POINTER(c_void_p)],
    "polypath_matcher_destroy": [c_void_p],
    "polypath_match": [c_void_p, *_ENVELOPES, c_void_p, c_void_p, c_void_p],
    "polypath_match_batched": [c_void_p, c_size_t, *[c_void_p] * 7],
    "polypath_match_incremental": [c_void_p, *_ENVELOPES, c_void_p, c_void_p, c_void_p],
    "polypath_match_host": [c_int, *_ENVELOPES, c_void_p, c_void_p],
    "polypath_matcher_reset": [c_void_p, c_void_p],
    "polypath_matcher_report": [c_void_p, _STRING],
}

_QUEUE_OPTIONS = POINTER(QueueOptions)
_QUEUES = ("count", c_int)
_INDEX = ("index", c_int)

_MESSAGING_FUNCTIONS: dict[str, list[Any]] = {
    "polypath_queue_create": [c_void_p, _QUEUE_OPTIONS, _QUEUES, POINTER(c_void_p)],
    "polypath_queue_connect": [
        *[c_void_p, _QUEUE_OPTIONS, ("source", c_int), ("destination", c_int), _QUEUES],
        POINTER(c_void_p),
    ],
    "polypath_queue_connect_mesh": [c_void_p, _QUEUE_OPTIONS, POINTER(c_void_p)],
    "polypath_queue_create_host": [
        *[c_void_p, _QUEUE_OPTIONS, c_int, _QUEUES, POINTER(c_void_p)],
    ],
    "polypath_queue_destroy": [c_void_p],
    "polypath_queue_count": [c_void_p],
    "polypath_queue_view": [c_void_p, _INDEX, c_int, c_void_p, c_size_t],
    "polypath_queue_report": [c_void_p, _STRING],
    "polypath_queue_push": [c_void_p, _INDEX, c_void_p, c_size_t],
    "polypath_queue_try_push": [c_void_p, _INDEX, c_void_p, c_size_t, POINTER(c_size_t)],
    "polypath_queue_pop": [c_void_p, _INDEX, c_void_p, c_size_t, POINTER(c_size_t)],
    "polypath_queue_try_pop": [
        *[c_void_p, _INDEX, c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_int)],
    ],
    "polypath_queue_close": [c_void_p, _INDEX],
    "polypath_pool_create": [c_void_p, POINTER(PoolOptions), POINTER(c_void_p)],
    "polypath_pool_create_shared": [c_void_p, POINTER(PoolOptions), POINTER(c_void_p)],
    "polypath_pool_destroy": [c_void_p],
    "polypath_pool_view": [c_void_p, c_void_p, c_size_t],
    "polypath_pool_report": [c_void_p, _STRING],
}

_COORDINATOR = [c_void_p]
_BUFFERS = [c_void_p, c_void_p]
_SIGNAL = [c_void_p, ("value", c_uint64)]
_LISTS = [POINTER(c_size_t), POINTER(c_size_t)]

_UNICONN_FUNCTIONS: dict[str, list[Any]] = {
    "polypath_bootstrap_threads": [c_int, ("timeout_ms", c_uint32), POINTER(c_void_p)],
    "polypath_uniconn_env_create": [
        *[("rank", c_int), ("size", c_int), Exchange, c_void_p, c_int, POINTER(c_void_p)],
    ],
    "polypath_uniconn_env_create_from_environment": [POINTER(c_void_p)],
    "polypath_plan_backend": [
        *[c_void_p, c_char_p, c_size_t, POINTER(c_int), ("ranks", c_int), c_int, _STRING],
    ],
    "polypath_uniconn_set_device": [c_void_p, ("gpu", c_int)],
    "polypath_uniconn_world_rank": [c_void_p],
    "polypath_uniconn_world_size": [c_void_p],
    "polypath_uniconn_node_rank": [c_void_p],
    "polypath_uniconn_node_size": [c_void_p],
    "polypath_uniconn_alloc": [c_size_t, POINTER(c_void_p)],
    "polypath_uniconn_free": [c_void_p],
    "polypath_uniconn_comm_create": [POINTER(c_void_p)],
    "polypath_uniconn_comm_split": [c_void_p, *_SPLIT, POINTER(c_void_p)],
    "polypath_uniconn_comm_rank": [c_void_p],
    "polypath_uniconn_comm_size": [c_void_p],
    "polypath_uniconn_barrier": [c_void_p, c_void_p],
    "polypath_uniconn_coordinator_create": [c_void_p, POINTER(c_void_p)],
    "polypath_uniconn_start": _COORDINATOR,
    "polypath_uniconn_end": _COORDINATOR,
    "polypath_uniconn_wait": _COORDINATOR,
    "polypath_uniconn_post": [*_COORDINATOR, *_BUFFERS, _BYTES, *_SIGNAL, _TO, c_void_p],
    "polypath_uniconn_acknowledge": [
        *[*_COORDINATOR, c_void_p, _BYTES, *_SIGNAL, ("source", c_int), c_void_p],
    ],
    "polypath_uniconn_all_gather": [*_COORDINATOR, *_BUFFERS, _BYTES, c_void_p],
    "polypath_uniconn_all_gatherv": [*_COORDINATOR, *_BUFFERS, *_LISTS, c_void_p],
    "polypath_uniconn_all_to_all": [*_COORDINATOR, *_BUFFERS, _BYTES, c_void_p],
    "polypath_uniconn_all_to_allv": [
        *[*_COORDINATOR, c_void_p, *_LISTS, c_void_p, *_LISTS, c_void_p],
    ],
    "polypath_uniconn_broadcast": [*_COORDINATOR, c_void_p, _BYTES, _ROOT, c_void_p],
    "polypath_uniconn_gather": [*_COORDINATOR, *_BUFFERS, _BYTES, _ROOT, c_void_p],
    "polypath_uniconn_gatherv": [*_COORDINATOR, *_BUFFERS, *_LISTS, _ROOT, c_void_p],
    "polypath_uniconn_scatter": [*_COORDINATOR, *_BUFFERS, _BYTES, _ROOT, c_void_p],
    "polypath_uniconn_scatterv": [*_COORDINATOR, *_BUFFERS, *_LISTS, _ROOT, c_void_p],
    "polypath_uniconn_all_reduce": [
        *[*_COORDINATOR, *_BUFFERS, _COUNT, c_int, c_int, c_void_p],
    ],
    "polypath_uniconn_reduce": [
        *[*_COORDINATOR, *_BUFFERS, _COUNT, c_int, c_int, _ROOT, c_void_p],
    ],
}

_OF_THE_LABORATORY: dict[str, list[Any]] = {
    "polypath_bench": [c_void_p, POINTER(BenchRequest), _STRING],
    "polypath_bench_beside": [c_void_p, POINTER(BesideRequest), TrafficSwitch, c_void_p, _STRING],
    "polypath_bench_blocks": [
        *[c_void_p, POINTER(BenchBlocksRequest), TrafficSwitch, c_void_p, _STRING],
    ],
    "polypath_bench_file": [
        *[c_void_p, POINTER(BenchFileRequest), TrafficSwitch, c_void_p, _STRING],
    ],
    "polypath_bench_spread": [
        *[c_void_p, POINTER(BenchSpreadRequest), TrafficSwitch, c_void_p, _STRING],
    ],
    "polypath_tune": [c_void_p, POINTER(TuneRequest), TuneProgress, c_void_p, _STRING],
    "polypath_graph_phases": [c_void_p, POINTER(GraphPhasesRequest), _STRING],
    "polypath_collective_bench_create": [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)],
    "polypath_collective_bench_run": [c_void_p, POINTER(CollectiveBenchRequest), _STRING],
    "polypath_tune_collectives": [
        *[c_void_p, POINTER(TuneCollectivesRequest), TuneProgress, c_void_p, _STRING],
    ],
}

_SIGNATURES = {
    **_FUNCTIONS,
    **_COMM_FUNCTIONS,
    **_MATCHING_FUNCTIONS,
    **_MESSAGING_FUNCTIONS,
    **_UNICONN_FUNCTIONS,
    **_OF_THE_LABORATORY,
}
_INTEGERS = {name: Integers(parameters) for name, parameters in _SIGNATURES.items()}


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
    opened.polypath_version.argtypes = []
    opened.polypath_version.restype = c_char_p
    opened.polypath_last_error.argtypes = []
    opened.polypath_last_error.restype = c_char_p
    opened.polypath_free_string.argtypes = [c_void_p]
    opened.polypath_free_string.restype = None
    opened.polypath_driver_function.argtypes = [c_void_p, c_char_p]
    opened.polypath_driver_function.restype = c_void_p
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
    for name in ("bootstrap", "uniconn_env", "uniconn_comm", "uniconn_coordinator"):
        destroy = getattr(opened, f"polypath_{name}_destroy")
        destroy.argtypes = [c_void_p]
        destroy.restype = None
    for name in ("backend", "reason"):
        symbol = getattr(opened, f"polypath_uniconn_{name}")
        symbol.argtypes = [c_void_p]
        symbol.restype = c_char_p
    measures = hasattr(opened, "polypath_bench")
    if measures:
        opened.polypath_collective_bench_destroy.argtypes = [c_void_p]
        opened.polypath_collective_bench_destroy.restype = None
    for name, parameters in _SIGNATURES.items():
        if name in _OF_THE_LABORATORY and not measures:
            continue
        function: Callable[..., int] = getattr(opened, name)
        function.argtypes = [  # type: ignore[attr-defined]
            parameter[1] if isinstance(parameter, tuple) else parameter for parameter in parameters
        ]
        function.restype = c_int  # type: ignore[attr-defined]
    return opened


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status; raises the status's exception with the message, and
    `InvalidArgument` for an integer that C would not take as it is."""
    opened = library()
    if name in _OF_THE_LABORATORY and not hasattr(opened, name):
        raise LibraryNotFound("libpolypath_lab.so, which measures, is not beside libpolypath.so")
    status = getattr(opened, name)(*_INTEGERS[name].checked(arguments))
    if status != 0:
        fail(status)


def fail(status: int) -> NoReturn:
    """Raises the exception of the status of this thread's last call, with its message."""
    raise BY_STATUS.get(status, PolypathError)(decoded(library().polypath_last_error()))


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
