"""The C API for ctypes, from the public headers. Written by scripts/generate_c_abi.py: not by hand.

``CONSTANTS``: macros and enumerators without a type. ``ENUMS``: the enumerators of each enum.
``FUNCTIONS``: of each header, the result and the parameters (name, type) of each function. The
string that a caller frees is a c_void_p, since ctypes turns a c_char_p into bytes.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)

from .integers import Checked

CONSTANTS = {
    "POLYPATH_VERSION_MAJOR": 0,
    "POLYPATH_VERSION_MINOR": 1,
    "POLYPATH_VERSION_PATCH": 0,
    "POLYPATH_SPREAD_SHARED": -1,
    "POLYPATH_ANY_TAG": 4294967295,
    "POLYPATH_ANY_SOURCE": 65535,
    "POLYPATH_NO_MATCH": 4294967295,
    "POLYPATH_MATCH_BATCHED_MAX": 1024,
    "POLYPATH_UNICONN_INT16": 10,
    "POLYPATH_UNICONN_UINT16": 11,
    "POLYPATH_UNICONN_LAND": 5,
    "POLYPATH_UNICONN_LOR": 6,
    "POLYPATH_UNICONN_LXOR": 7,
    "POLYPATH_UNICONN_BAND": 8,
    "POLYPATH_UNICONN_BOR": 9,
    "POLYPATH_UNICONN_BXOR": 10,
    "POLYPATH_BACKEND_POLYPATH": 0,
    "POLYPATH_BACKEND_GPUCCL": 1,
    "POLYPATH_BACKEND_GPUSHMEM": 2,
    "POLYPATH_BACKEND_MPI": 3,
    "POLYPATH_BACKEND_COUNT": 4,
    "POLYPATH_COMM_POST": 0,
    "POLYPATH_COMM_ALLREDUCE": 1,
    "POLYPATH_COMM_REDUCE": 2,
    "POLYPATH_COMM_ALL_GATHER": 3,
    "POLYPATH_COMM_ALL_TO_ALL": 4,
    "POLYPATH_COMM_BROADCAST": 5,
    "POLYPATH_BACKEND_OP_COUNT": 6,
}


ENUMS = {
    "polypath_status": {
        "POLYPATH_SUCCESS": 0,
        "POLYPATH_INVALID_ARGUMENT": 1,
        "POLYPATH_NO_DEVICE": 2,
        "POLYPATH_NOT_SUPPORTED": 3,
        "POLYPATH_DRIVER_ERROR": 4,
        "POLYPATH_INTERNAL_ERROR": 5,
        "POLYPATH_COMMUNICATOR_ERROR": 6,
        "POLYPATH_FILE_ERROR": 7,
    },
    "polypath_data_type": {
        "POLYPATH_INT8": 0,
        "POLYPATH_UINT8": 1,
        "POLYPATH_INT32": 2,
        "POLYPATH_UINT32": 3,
        "POLYPATH_INT64": 4,
        "POLYPATH_UINT64": 5,
        "POLYPATH_FLOAT16": 6,
        "POLYPATH_BFLOAT16": 7,
        "POLYPATH_FLOAT32": 8,
        "POLYPATH_FLOAT64": 9,
    },
    "polypath_reduce_op": {
        "POLYPATH_SUM": 0,
        "POLYPATH_PRODUCT": 1,
        "POLYPATH_MIN": 2,
        "POLYPATH_MAX": 3,
        "POLYPATH_AVG": 4,
    },
    "polypath_sum_order": {
        "POLYPATH_SUM_ORDER_SETTING": 0,
        "POLYPATH_SUM_ORDER_RANK": 1,
        "POLYPATH_SUM_ORDER_TREE": 2,
    },
    "polypath_match_order": {
        "POLYPATH_ORDER_MPI": 0,
        "POLYPATH_ORDER_NO_ANY_SOURCE": 1,
        "POLYPATH_ORDER_UNORDERED": 2,
        "POLYPATH_ORDER_UNORDERED_UNIQUE": 3,
    },
    "polypath_match_status": {
        "POLYPATH_MATCH_DONE": 0,
        "POLYPATH_MATCH_FULL": 1,
        "POLYPATH_MATCH_MESSAGE_TAG": 2,
        "POLYPATH_MATCH_MESSAGE_SOURCE": 3,
        "POLYPATH_MATCH_RECEIVE_TAG": 4,
        "POLYPATH_MATCH_WILDCARD": 5,
        "POLYPATH_MATCH_DUPLICATE_MESSAGE": 6,
        "POLYPATH_MATCH_DUPLICATE_RECEIVE": 7,
    },
    "polypath_queue_kind": {"POLYPATH_QUEUE_MPMC": 0, "POLYPATH_QUEUE_SPSC": 1},
    "polypath_queue_protocol": {"POLYPATH_PROTOCOL_LL": 0, "POLYPATH_PROTOCOL_LL128": 1},
    "polypath_queue_side": {"POLYPATH_QUEUE_PRODUCER": 0, "POLYPATH_QUEUE_CONSUMER": 1},
    "polypath_offload_op": {
        "POLYPATH_OFFLOAD_ALL_REDUCE": 0,
        "POLYPATH_OFFLOAD_REDUCE_SCATTER": 1,
        "POLYPATH_OFFLOAD_REDUCE": 2,
        "POLYPATH_OFFLOAD_ALL_GATHER": 3,
        "POLYPATH_OFFLOAD_BROADCAST": 4,
        "POLYPATH_OFFLOAD_ALL_TO_ALL": 5,
    },
}


class Setting(Checked, Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_char_p),
    ]


class Thresholds(Checked, Structure):
    _fields_ = [
        ("gpu_to_gpu", c_size_t),
        ("host_to_gpu", c_size_t),
        ("gpu_to_host", c_size_t),
        ("pageable_to_gpu", c_size_t),
        ("gpu_to_pageable", c_size_t),
    ]


class Transfer(Checked, Structure):
    _fields_ = [
        ("dst", c_void_p),
        ("src", c_void_p),
        ("bytes", c_size_t),
        ("stream", c_void_p),
    ]


class TransferRequest(Checked, Structure):
    _fields_ = [
        ("src", c_char_p),
        ("dst", c_char_p),
        ("bytes", c_size_t),
    ]


class CollectiveRequest(Checked, Structure):
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
        ("order", c_char_p),
    ]


Progress = CFUNCTYPE(None, c_size_t, c_size_t, c_char_p, c_void_p)


AllGatherFn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)


class Network(Checked, Structure):
    _fields_ = [
        ("progress_in_caller", c_uint32),
        ("reserved", c_uint32),
        ("user", c_void_p),
        ("begin", CFUNCTYPE(c_int, c_void_p)),
        ("send", CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_void_p, c_size_t, POINTER(c_uint64))),
        (
            "receive",
            CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_void_p, c_size_t, POINTER(c_uint64)),
        ),
        ("test", CFUNCTYPE(c_int, c_void_p, POINTER(c_uint64), POINTER(c_int))),
        ("end", CFUNCTYPE(None, c_void_p)),
    ]


class CommOptions(Checked, Structure):
    _fields_ = [
        ("timeout_ms", c_uint32),
        ("port", c_uint32),
        ("network", POINTER(Network)),
        ("max_blocks", c_uint32),
        ("reserved_sms", c_uint32),
        ("retries_buffers", c_uint64),
        ("sum_order", c_uint64),
        ("reserved", c_uint64 * 2),
    ]


class Signal(Checked, Structure):
    _fields_ = [
        ("memory", c_void_p),
        ("offset", c_size_t),
        ("value", c_uint64),
    ]


class Put(Checked, Structure):
    _fields_ = [
        ("to", c_int),
        ("memory", c_void_p),
        ("offset", c_size_t),
        ("src", c_void_p),
        ("bytes", c_size_t),
        ("signal", POINTER(Signal)),
    ]


class Norm(Checked, Structure):
    _fields_ = [
        ("rows", c_size_t),
        ("hidden", c_size_t),
        ("type", c_int),
        ("epsilon", c_float),
        ("residual", c_void_p),
        ("residual_out", c_void_p),
        ("weight", c_void_p),
        ("scale", POINTER(c_float)),
    ]


class BenchRequest(Checked, Structure):
    _fields_ = [
        ("transfers", POINTER(TransferRequest)),
        ("count", c_size_t),
        ("warmup", c_int),
        ("iterations", c_int),
        ("window", c_int),
        ("compare_executors", c_int),
    ]


TrafficSwitch = CFUNCTYPE(c_int, c_int, c_void_p)


class BenchBesideRequest(Checked, Structure):
    _fields_ = [
        ("transfers", POINTER(TransferRequest)),
        ("count", c_size_t),
        ("warmup", c_int),
        ("iterations", c_int),
        ("rounds", c_int),
        ("own", POINTER(TransferRequest)),
        ("own_count", c_size_t),
        ("own_queue", c_int),
        ("own_on_us", c_double),
        ("own_off_us", c_double),
    ]


class BenchBlocksRequest(Checked, Structure):
    _fields_ = [
        ("src", c_char_p),
        ("dst", c_char_p),
        ("block_bytes", c_size_t),
        ("count", c_size_t),
        ("warmup", c_int),
        ("iterations", c_int),
        ("rounds", c_int),
    ]


class BenchFileRequest(Checked, Structure):
    _fields_ = [
        ("dst", c_char_p),
        ("file", c_char_p),
        ("bytes", c_size_t),
        ("warmup", c_int),
        ("iterations", c_int),
        ("rounds", c_int),
    ]


class BenchSpreadRequest(Checked, Structure):
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


class GraphPhasesRequest(Checked, Structure):
    _fields_ = [
        ("src", c_char_p),
        ("dst", c_char_p),
        ("bytes", c_size_t),
        ("nodes", c_int),
        ("iterations", c_int),
    ]


class CollectiveBenchRequest(Checked, Structure):
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


class TuneRequest(Checked, Structure):
    _fields_ = [
        ("transfers", POINTER(TransferRequest)),
        ("count", c_size_t),
        ("sizes", POINTER(c_size_t)),
        ("size_count", c_size_t),
        ("budget_s", c_double),
        ("exhaustive", c_int),
        ("again", c_int),
    ]


TuneProgress = CFUNCTYPE(c_int, c_size_t, c_size_t, c_double, c_char_p, c_void_p)


class TuneCollectivesRequest(Checked, Structure):
    _fields_ = [
        ("op", c_char_p),
        ("sizes", POINTER(c_size_t)),
        ("size_count", c_size_t),
        ("budget_s", c_double),
        ("again", c_int),
    ]


class ChannelOptions(Checked, Structure):
    _fields_ = [
        ("contexts", c_uint32),
        ("ring_bytes", c_uint32),
        ("requests", c_uint32),
        ("unexpected", c_uint32),
        ("eager_bytes", c_uint32),
        ("timeout_ms", c_uint32),
        ("reserved", c_uint32 * 4),
    ]


class ActiveMessagesOptions(Checked, Structure):
    _fields_ = [
        ("argument_bytes", c_size_t),
        ("shards", c_uint32),
        ("capacity", c_uint32),
        ("timeout_ms", c_uint32),
        ("reserved", c_uint32 * 5),
    ]


class Envelope(Checked, Structure):
    _fields_ = [
        ("tag", c_uint32),
        ("source", c_uint16),
        ("communicator", c_uint16),
    ]


class MatchResult(Checked, Structure):
    _fields_ = [
        ("status", c_uint32),
        ("index", c_uint32),
        ("matches", c_uint32),
        ("unmatched_messages", c_uint32),
        ("unmatched_receives", c_uint32),
        ("reserved", c_uint32),
    ]


class MatchPair(Checked, Structure):
    _fields_ = [
        ("receive", c_uint64),
        ("message", c_uint64),
    ]


class MatcherOptions(Checked, Structure):
    _fields_ = [
        ("order", c_uint32),
        ("capacity", c_uint32),
        ("launch_per_phase", c_uint64),
        ("reserved", c_uint64 * 3),
    ]


class PoolOptions(Checked, Structure):
    _fields_ = [
        ("bytes", c_size_t),
        ("slab_bytes", c_uint32),
        ("returns", c_uint32),
        ("reserved", c_uint32 * 4),
    ]


class QueueOptions(Checked, Structure):
    _fields_ = [
        ("item_bytes", c_size_t),
        ("capacity", c_uint32),
        ("segment", c_uint32),
        ("kind", c_uint32),
        ("layout", c_uint32),
        ("timeout_ms", c_uint32),
        ("reserved", c_uint32 * 5),
    ]


class OffloadCall(Checked, Structure):
    _fields_ = [
        ("op", c_int),
        ("type", c_int),
        ("reduction", c_int),
        ("root", c_int),
        ("send", c_void_p),
        ("recv", c_void_p),
        ("count", c_size_t),
        ("stream", c_void_p),
    ]


class BackendEntry(Checked, Structure):
    _fields_ = [
        ("op", c_int),
        ("backend", c_int),
        ("bytes", c_size_t),
        ("us", c_double * 4),
        ("edited", c_int),
    ]


class BackendSamples(Checked, Structure):
    _fields_ = [
        ("op", c_int),
        ("gpus", POINTER(c_int)),
        ("ranks", c_int),
        ("bytes", c_size_t),
        ("backends", POINTER(c_int)),
        ("backend_count", c_int),
        ("us", POINTER(c_double)),
        ("turns", c_int),
    ]


FUNCTIONS = {
    "polypath.h": {
        "polypath_version": (c_char_p, []),
        "polypath_status_name": (c_char_p, [("status", c_int)]),
        "polypath_last_error": (c_char_p, []),
        "polypath_last_cuda_result": (c_int, []),
        "polypath_free_string": (None, [("string", c_void_p)]),
        "polypath_context_create": (
            c_int,
            [("settings", POINTER(Setting)), ("count", c_size_t), ("context", POINTER(c_void_p))],
        ),
        "polypath_context_destroy": (None, [("context", c_void_p)]),
        "polypath_driver_function": (c_void_p, [("context", c_void_p), ("name", c_char_p)]),
        "polypath_copy_async": (
            c_int,
            [
                ("context", c_void_p),
                ("dst", c_void_p),
                ("src", c_void_p),
                ("bytes", c_size_t),
                ("stream", c_void_p),
            ],
        ),
        "polypath_try_copy_async": (
            c_int,
            [
                ("context", c_void_p),
                ("dst", c_void_p),
                ("src", c_void_p),
                ("bytes", c_size_t),
                ("stream", c_void_p),
                ("issued", POINTER(c_int)),
            ],
        ),
        "polypath_try_copy_sequenced_async": (
            c_int,
            [
                ("context", c_void_p),
                ("dst", c_void_p),
                ("src", c_void_p),
                ("bytes", c_size_t),
                ("stream", c_void_p),
                ("issued", POINTER(c_int)),
            ],
        ),
        "polypath_split_thresholds": (
            c_int,
            [("context", c_void_p), ("thresholds", POINTER(Thresholds))],
        ),
        "polypath_group_copy_async": (
            c_int,
            [("context", c_void_p), ("transfers", POINTER(Transfer)), ("count", c_size_t)],
        ),
        "polypath_try_group_copy_async": (
            c_int,
            [
                ("context", c_void_p),
                ("transfers", POINTER(Transfer)),
                ("count", c_size_t),
                ("issued", POINTER(c_int)),
            ],
        ),
        "polypath_copy_batch_async": (
            c_int,
            [
                ("context", c_void_p),
                ("count", c_size_t),
                ("dst", POINTER(c_void_p)),
                ("src", POINTER(c_void_p)),
                ("bytes", POINTER(c_size_t)),
                ("stream", c_void_p),
            ],
        ),
        "polypath_try_copy_batch_async": (
            c_int,
            [
                ("context", c_void_p),
                ("count", c_size_t),
                ("dst", POINTER(c_void_p)),
                ("src", POINTER(c_void_p)),
                ("bytes", POINTER(c_size_t)),
                ("stream", c_void_p),
                ("issued", POINTER(c_int)),
            ],
        ),
        "polypath_read_async": (
            c_int,
            [
                ("context", c_void_p),
                ("file", c_int),
                ("offset", c_uint64),
                ("dst", c_void_p),
                ("bytes", c_size_t),
                ("stream", c_void_p),
            ],
        ),
        "polypath_spread_async": (
            c_int,
            [
                ("context", c_void_p),
                ("count", c_size_t),
                ("dst", POINTER(c_void_p)),
                ("src", c_void_p),
                ("bytes", c_size_t),
                ("streams", POINTER(c_void_p)),
            ],
        ),
        "polypath_prepare_spread": (
            c_int,
            [
                ("context", c_void_p),
                ("src", c_char_p),
                ("gpus", POINTER(c_int)),
                ("count", c_size_t),
            ],
        ),
        "polypath_prepare": (
            c_int,
            [("context", c_void_p), ("requests", POINTER(TransferRequest)), ("count", c_size_t)],
        ),
        "polypath_prepare_batches": (
            c_int,
            [("context", c_void_p), ("requests", POINTER(TransferRequest)), ("count", c_size_t)],
        ),
        "polypath_ipc_register_export": (
            c_int,
            [("context", c_void_p), ("handle", c_void_p), ("address", c_void_p)],
        ),
        "polypath_ipc_register_import": (
            c_int,
            [("context", c_void_p), ("handle", c_void_p), ("address", c_void_p)],
        ),
        "polypath_ipc_unregister_import": (c_int, [("context", c_void_p), ("address", c_void_p)]),
        "polypath_share_mapping": (
            c_int,
            [("context", c_void_p), ("address", c_void_p), ("bytes", c_size_t)],
        ),
        "polypath_unshare_mapping": (
            c_int,
            [("context", c_void_p), ("address", c_void_p), ("bytes", c_size_t)],
        ),
        "polypath_plan": (
            c_int,
            [
                ("context", c_void_p),
                ("requests", POINTER(TransferRequest)),
                ("count", c_size_t),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_plan_spread": (
            c_int,
            [
                ("context", c_void_p),
                ("src", c_char_p),
                ("gpus", POINTER(c_int)),
                ("count", c_size_t),
                ("bytes", c_size_t),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_plan_collective": (
            c_int,
            [
                ("context", c_void_p),
                ("request", POINTER(CollectiveRequest)),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_topology": (c_int, [("context", c_void_p), ("json", POINTER(c_void_p))]),
        "polypath_note_copy": (
            c_int,
            [
                ("context", c_void_p),
                ("dst", c_void_p),
                ("src", c_void_p),
                ("bytes", c_size_t),
                ("stream", c_void_p),
            ],
        ),
        "polypath_load": (c_int, [("context", c_void_p), ("json", POINTER(c_void_p))]),
        "polypath_measure": (
            c_int,
            [("context", c_void_p), ("progress", Progress), ("user", c_void_p)],
        ),
        "polypath_settings": (c_int, [("context", c_void_p), ("json", POINTER(c_void_p))]),
        "polypath_device_info": (c_int, [("context", c_void_p), ("json", POINTER(c_void_p))]),
        "polypath_counters": (c_int, [("context", c_void_p), ("json", POINTER(c_void_p))]),
        "polypath_counters_text": (c_int, [("context", c_void_p), ("text", POINTER(c_void_p))]),
        "polypath_counters_reset": (c_int, [("context", c_void_p)]),
        "polypath_tuning_results": (c_int, [("context", c_void_p), ("json", POINTER(c_void_p))]),
    },
    "comm.h": {
        "polypath_bootstrap_from_environment": (
            c_int,
            [("port", c_uint32), ("timeout_ms", c_uint32), ("meeting", POINTER(c_void_p))],
        ),
        "polypath_bootstrap_threads": (
            c_int,
            [("size", c_int), ("timeout_ms", c_uint32), ("meetings", POINTER(c_void_p))],
        ),
        "polypath_bootstrap_all_gather": (
            c_int,
            [("local", c_void_p), ("all", c_void_p), ("bytes", c_size_t), ("meeting", c_void_p)],
        ),
        "polypath_bootstrap_rank": (c_int, [("meeting", c_void_p)]),
        "polypath_bootstrap_size": (c_int, [("meeting", c_void_p)]),
        "polypath_bootstrap_destroy": (None, [("meeting", c_void_p)]),
        "polypath_network_nccl": (POINTER(Network), []),
        "polypath_comm_create": (
            c_int,
            [
                ("context", c_void_p),
                ("rank", c_int),
                ("size", c_int),
                ("gpu", c_int),
                ("exchange", AllGatherFn),
                ("user", c_void_p),
                ("options", POINTER(CommOptions)),
                ("comm", POINTER(c_void_p)),
            ],
        ),
        "polypath_comm_create_all": (
            c_int,
            [
                ("context", c_void_p),
                ("gpus", POINTER(c_int)),
                ("size", c_int),
                ("options", POINTER(CommOptions)),
                ("comms", POINTER(c_void_p)),
            ],
        ),
        "polypath_comm_create_from_environment": (
            c_int,
            [
                ("context", c_void_p),
                ("gpu", c_int),
                ("options", POINTER(CommOptions)),
                ("comm", POINTER(c_void_p)),
            ],
        ),
        "polypath_comm_split": (
            c_int,
            [("comm", c_void_p), ("color", c_int), ("key", c_int), ("part", POINTER(c_void_p))],
        ),
        "polypath_comm_destroy": (c_int, [("comm", c_void_p)]),
        "polypath_comm_abandon": (c_int, [("comm", c_void_p)]),
        "polypath_gpu_reset": (None, [("gpu", c_int)]),
        "polypath_comm_abort": (c_int, [("comm", c_void_p), ("reason", c_char_p)]),
        "polypath_comm_check": (c_int, [("comm", c_void_p)]),
        "polypath_comm_synchronize": (c_int, [("comm", c_void_p), ("stream", c_void_p)]),
        "polypath_comm_rank": (c_int, [("comm", c_void_p)]),
        "polypath_comm_size": (c_int, [("comm", c_void_p)]),
        "polypath_comm_node_count": (c_int, [("comm", c_void_p)]),
        "polypath_comm_gpu": (c_int, [("comm", c_void_p), ("rank", c_int)]),
        "polypath_comm_host_all_gather": (
            c_int,
            [("comm", c_void_p), ("local", c_void_p), ("all", c_void_p), ("bytes", c_size_t)],
        ),
        "polypath_comm_alloc": (
            c_int,
            [("comm", c_void_p), ("bytes", c_size_t), ("memory", POINTER(c_void_p))],
        ),
        "polypath_comm_alloc_all": (
            c_int,
            [
                ("comms", POINTER(c_void_p)),
                ("count", c_int),
                ("bytes", c_size_t),
                ("memories", POINTER(c_void_p)),
            ],
        ),
        "polypath_comm_free": (c_int, [("comm", c_void_p), ("memory", c_void_p)]),
        "polypath_comm_free_all": (
            c_int,
            [("comms", POINTER(c_void_p)), ("count", c_int), ("memories", POINTER(c_void_p))],
        ),
        "polypath_symmetric_address": (c_void_p, [("memory", c_void_p), ("rank", c_int)]),
        "polypath_symmetric_bytes": (c_size_t, [("memory", c_void_p)]),
        "polypath_comm_put": (
            c_int,
            [
                ("comm", c_void_p),
                ("to", c_int),
                ("memory", c_void_p),
                ("offset", c_size_t),
                ("src", c_void_p),
                ("bytes", c_size_t),
                ("stream", c_void_p),
            ],
        ),
        "polypath_comm_put_signal": (
            c_int,
            [
                ("comm", c_void_p),
                ("to", c_int),
                ("memory", c_void_p),
                ("offset", c_size_t),
                ("src", c_void_p),
                ("bytes", c_size_t),
                ("signal", POINTER(Signal)),
                ("stream", c_void_p),
            ],
        ),
        "polypath_comm_put_group": (
            c_int,
            [("comm", c_void_p), ("puts", POINTER(Put)), ("count", c_size_t), ("stream", c_void_p)],
        ),
        "polypath_comm_put_and_wait": (
            c_int,
            [
                ("comm", c_void_p),
                ("puts", POINTER(Put)),
                ("count", c_size_t),
                ("awaited", POINTER(Signal)),
                ("awaited_count", c_size_t),
                ("stream", c_void_p),
            ],
        ),
        "polypath_comm_signal": (
            c_int,
            [("comm", c_void_p), ("to", c_int), ("signal", POINTER(Signal)), ("stream", c_void_p)],
        ),
        "polypath_comm_wait_signal": (
            c_int,
            [("comm", c_void_p), ("signal", POINTER(Signal)), ("stream", c_void_p)],
        ),
        "polypath_comm_barrier": (c_int, [("comm", c_void_p), ("stream", c_void_p)]),
        "polypath_comm_wait_context": (
            c_int,
            [("comm", c_void_p), ("wait_ctx", c_void_p), ("bytes", c_size_t)],
        ),
        "polypath_load_kernels": (c_int, [("context", c_void_p), ("gpu", c_int)]),
        "polypath_comm_prepare": (c_int, [("comm", c_void_p)]),
        "polypath_comm_prepare_all": (c_int, [("comms", POINTER(c_void_p)), ("count", c_int)]),
        "polypath_comm_set_max_blocks": (c_int, [("comm", c_void_p), ("blocks", c_int)]),
        "polypath_comm_release_sms": (c_int, [("comm", c_void_p)]),
        "polypath_all_reduce": (
            c_int,
            [
                ("comm", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("count", c_size_t),
                ("type", c_int),
                ("op", c_int),
                ("stream", c_void_p),
            ],
        ),
        "polypath_reduce_scatter": (
            c_int,
            [
                ("comm", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("count", c_size_t),
                ("type", c_int),
                ("op", c_int),
                ("stream", c_void_p),
            ],
        ),
        "polypath_reduce_scatterv": (
            c_int,
            [
                ("comm", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("counts", POINTER(c_size_t)),
                ("type", c_int),
                ("op", c_int),
                ("stream", c_void_p),
            ],
        ),
        "polypath_all_gather": (
            c_int,
            [
                ("comm", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("count", c_size_t),
                ("type", c_int),
                ("stream", c_void_p),
            ],
        ),
        "polypath_all_gatherv": (
            c_int,
            [
                ("comm", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("counts", POINTER(c_size_t)),
                ("type", c_int),
                ("stream", c_void_p),
            ],
        ),
        "polypath_broadcast": (
            c_int,
            [
                ("comm", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("count", c_size_t),
                ("type", c_int),
                ("root", c_int),
                ("stream", c_void_p),
            ],
        ),
        "polypath_reduce": (
            c_int,
            [
                ("comm", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("count", c_size_t),
                ("type", c_int),
                ("op", c_int),
                ("root", c_int),
                ("stream", c_void_p),
            ],
        ),
        "polypath_all_to_all": (
            c_int,
            [
                ("comm", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("count", c_size_t),
                ("type", c_int),
                ("stream", c_void_p),
            ],
        ),
        "polypath_all_reduce_norm": (
            c_int,
            [
                ("comm", c_void_p),
                ("input", c_void_p),
                ("output", c_void_p),
                ("norm", POINTER(Norm)),
                ("stream", c_void_p),
            ],
        ),
        "polypath_comm_spread": (
            c_int,
            [
                ("comm", c_void_p),
                ("src", c_void_p),
                ("recv", c_void_p),
                ("bytes", c_size_t),
                ("root", c_int),
                ("stream", c_void_p),
            ],
        ),
        "polypath_comm_report": (c_int, [("comm", c_void_p), ("json", POINTER(c_void_p))]),
    },
    "lab.h": {
        "polypath_bench": (
            c_int,
            [
                ("context", c_void_p),
                ("request", POINTER(BenchRequest)),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_bench_beside": (
            c_int,
            [
                ("context", c_void_p),
                ("request", POINTER(BenchBesideRequest)),
                ("traffic", TrafficSwitch),
                ("user", c_void_p),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_bench_blocks": (
            c_int,
            [
                ("context", c_void_p),
                ("request", POINTER(BenchBlocksRequest)),
                ("traffic", TrafficSwitch),
                ("user", c_void_p),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_bench_file": (
            c_int,
            [
                ("context", c_void_p),
                ("request", POINTER(BenchFileRequest)),
                ("traffic", TrafficSwitch),
                ("user", c_void_p),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_bench_spread": (
            c_int,
            [
                ("context", c_void_p),
                ("request", POINTER(BenchSpreadRequest)),
                ("traffic", TrafficSwitch),
                ("user", c_void_p),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_graph_phases": (
            c_int,
            [
                ("context", c_void_p),
                ("request", POINTER(GraphPhasesRequest)),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_collective_bench_create": (
            c_int,
            [
                ("comm", c_void_p),
                ("nccl", c_char_p),
                ("choice", c_char_p),
                ("bench", POINTER(c_void_p)),
            ],
        ),
        "polypath_collective_bench_destroy": (None, [("bench", c_void_p)]),
        "polypath_collective_bench_run": (
            c_int,
            [
                ("bench", c_void_p),
                ("request", POINTER(CollectiveBenchRequest)),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_tune": (
            c_int,
            [
                ("context", c_void_p),
                ("request", POINTER(TuneRequest)),
                ("progress", TuneProgress),
                ("user", c_void_p),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_tune_collectives": (
            c_int,
            [
                ("bench", c_void_p),
                ("request", POINTER(TuneCollectivesRequest)),
                ("progress", TuneProgress),
                ("user", c_void_p),
                ("json", POINTER(c_void_p)),
            ],
        ),
    },
    "messaging/channel.h": {
        "polypath_channel_create": (
            c_int,
            [
                ("comm", c_void_p),
                ("options", POINTER(ChannelOptions)),
                ("windows", POINTER(c_void_p)),
                ("count", c_int),
                ("channel", POINTER(c_void_p)),
            ],
        ),
        "polypath_channel_create_all": (
            c_int,
            [
                ("comms", POINTER(c_void_p)),
                ("ranks", c_int),
                ("options", POINTER(ChannelOptions)),
                ("windows", POINTER(c_void_p)),
                ("count", c_int),
                ("channels", POINTER(c_void_p)),
            ],
        ),
        "polypath_channel_destroy": (c_int, [("channel", c_void_p)]),
        "polypath_channel_destroy_all": (
            c_int,
            [("channels", POINTER(c_void_p)), ("ranks", c_int)],
        ),
        "polypath_channel_view": (
            c_int,
            [("channel", c_void_p), ("view", c_void_p), ("bytes", c_size_t)],
        ),
        "polypath_active_messages_create": (
            c_int,
            [
                ("comm", c_void_p),
                ("options", POINTER(ActiveMessagesOptions)),
                ("messages", POINTER(c_void_p)),
            ],
        ),
        "polypath_active_messages_create_all": (
            c_int,
            [
                ("comms", POINTER(c_void_p)),
                ("ranks", c_int),
                ("options", POINTER(ActiveMessagesOptions)),
                ("messages", POINTER(c_void_p)),
            ],
        ),
        "polypath_active_messages_destroy": (c_int, [("messages", c_void_p)]),
        "polypath_active_messages_destroy_all": (
            c_int,
            [("messages", POINTER(c_void_p)), ("ranks", c_int)],
        ),
        "polypath_active_messages_view": (
            c_int,
            [("messages", c_void_p), ("view", c_void_p), ("bytes", c_size_t)],
        ),
    },
    "messaging/device_collectives.h": {
        "polypath_device_collectives_create": (
            c_int,
            [("comm", c_void_p), ("handle", POINTER(c_void_p))],
        ),
        "polypath_device_collectives_create_all": (
            c_int,
            [("comms", POINTER(c_void_p)), ("ranks", c_int), ("handles", POINTER(c_void_p))],
        ),
        "polypath_device_collectives_destroy": (c_int, [("handle", c_void_p)]),
        "polypath_device_collectives_destroy_all": (
            c_int,
            [("handles", POINTER(c_void_p)), ("ranks", c_int)],
        ),
        "polypath_device_collectives_view": (
            c_int,
            [("handle", c_void_p), ("view", c_void_p), ("bytes", c_size_t)],
        ),
    },
    "messaging/matching.h": {
        "polypath_matcher_create": (
            c_int,
            [
                ("comm", c_void_p),
                ("options", POINTER(MatcherOptions)),
                ("matcher", POINTER(c_void_p)),
            ],
        ),
        "polypath_matcher_destroy": (c_int, [("matcher", c_void_p)]),
        "polypath_match": (
            c_int,
            [
                ("matcher", c_void_p),
                ("messages", POINTER(Envelope)),
                ("message_count", c_size_t),
                ("receives", POINTER(Envelope)),
                ("receive_count", c_size_t),
                ("matched_message", POINTER(c_uint32)),
                ("outcome", POINTER(MatchResult)),
                ("stream", c_void_p),
            ],
        ),
        "polypath_match_batched": (
            c_int,
            [
                ("matcher", c_void_p),
                ("queues", c_size_t),
                ("messages", POINTER(Envelope)),
                ("message_begins", POINTER(c_uint32)),
                ("receives", POINTER(Envelope)),
                ("receive_begins", POINTER(c_uint32)),
                ("matched_message", POINTER(c_uint32)),
                ("outcomes", POINTER(MatchResult)),
                ("stream", c_void_p),
            ],
        ),
        "polypath_match_incremental": (
            c_int,
            [
                ("matcher", c_void_p),
                ("messages", POINTER(Envelope)),
                ("message_count", c_size_t),
                ("receives", POINTER(Envelope)),
                ("receive_count", c_size_t),
                ("pairs", POINTER(MatchPair)),
                ("outcome", POINTER(MatchResult)),
                ("stream", c_void_p),
            ],
        ),
        "polypath_matcher_reset": (c_int, [("matcher", c_void_p), ("stream", c_void_p)]),
        "polypath_match_host": (
            c_int,
            [
                ("order", c_int),
                ("messages", POINTER(Envelope)),
                ("message_count", c_size_t),
                ("receives", POINTER(Envelope)),
                ("receive_count", c_size_t),
                ("matched_message", POINTER(c_uint32)),
                ("outcome", POINTER(MatchResult)),
            ],
        ),
        "polypath_matcher_report": (c_int, [("matcher", c_void_p), ("json", POINTER(c_void_p))]),
    },
    "messaging/pool.h": {
        "polypath_pool_create": (
            c_int,
            [("comm", c_void_p), ("options", POINTER(PoolOptions)), ("pool", POINTER(c_void_p))],
        ),
        "polypath_pool_create_shared": (
            c_int,
            [("comm", c_void_p), ("options", POINTER(PoolOptions)), ("pool", POINTER(c_void_p))],
        ),
        "polypath_pool_create_shared_all": (
            c_int,
            [
                ("comms", POINTER(c_void_p)),
                ("ranks", c_int),
                ("options", POINTER(PoolOptions)),
                ("pools", POINTER(c_void_p)),
            ],
        ),
        "polypath_pool_destroy": (c_int, [("pool", c_void_p)]),
        "polypath_pool_destroy_all": (c_int, [("pools", POINTER(c_void_p)), ("ranks", c_int)]),
        "polypath_pool_view": (
            c_int,
            [("pool", c_void_p), ("view", c_void_p), ("bytes", c_size_t)],
        ),
        "polypath_pool_view_bytes": (c_size_t, [("shared", c_int)]),
        "polypath_pool_report": (c_int, [("pool", c_void_p), ("json", POINTER(c_void_p))]),
    },
    "messaging/queue.h": {
        "polypath_queue_create": (
            c_int,
            [
                ("comm", c_void_p),
                ("options", POINTER(QueueOptions)),
                ("count", c_int),
                ("queue", POINTER(c_void_p)),
            ],
        ),
        "polypath_queue_connect": (
            c_int,
            [
                ("comm", c_void_p),
                ("options", POINTER(QueueOptions)),
                ("from", c_int),
                ("to", c_int),
                ("count", c_int),
                ("queue", POINTER(c_void_p)),
            ],
        ),
        "polypath_queue_connect_mesh": (
            c_int,
            [("comm", c_void_p), ("options", POINTER(QueueOptions)), ("queue", POINTER(c_void_p))],
        ),
        "polypath_queue_connect_all": (
            c_int,
            [
                ("comms", POINTER(c_void_p)),
                ("ranks", c_int),
                ("options", POINTER(QueueOptions)),
                ("from", c_int),
                ("to", c_int),
                ("count", c_int),
                ("queues", POINTER(c_void_p)),
            ],
        ),
        "polypath_queue_connect_mesh_all": (
            c_int,
            [
                ("comms", POINTER(c_void_p)),
                ("ranks", c_int),
                ("options", POINTER(QueueOptions)),
                ("queues", POINTER(c_void_p)),
            ],
        ),
        "polypath_queue_create_host": (
            c_int,
            [
                ("comm", c_void_p),
                ("options", POINTER(QueueOptions)),
                ("host", c_int),
                ("count", c_int),
                ("queue", POINTER(c_void_p)),
            ],
        ),
        "polypath_queue_destroy": (c_int, [("queue", c_void_p)]),
        "polypath_queue_destroy_all": (c_int, [("queues", POINTER(c_void_p)), ("ranks", c_int)]),
        "polypath_queue_count": (c_int, [("queue", c_void_p)]),
        "polypath_queue_view_bytes": (c_size_t, [("queue", c_void_p)]),
        "polypath_queue_view": (
            c_int,
            [
                ("queue", c_void_p),
                ("index", c_int),
                ("side", c_int),
                ("view", c_void_p),
                ("bytes", c_size_t),
            ],
        ),
        "polypath_queue_report": (c_int, [("queue", c_void_p), ("json", POINTER(c_void_p))]),
        "polypath_queue_push": (
            c_int,
            [("queue", c_void_p), ("index", c_int), ("items", c_void_p), ("count", c_size_t)],
        ),
        "polypath_queue_try_push": (
            c_int,
            [
                ("queue", c_void_p),
                ("index", c_int),
                ("items", c_void_p),
                ("count", c_size_t),
                ("pushed", POINTER(c_size_t)),
            ],
        ),
        "polypath_queue_pop": (
            c_int,
            [
                ("queue", c_void_p),
                ("index", c_int),
                ("items", c_void_p),
                ("count", c_size_t),
                ("popped", POINTER(c_size_t)),
            ],
        ),
        "polypath_queue_try_pop": (
            c_int,
            [
                ("queue", c_void_p),
                ("index", c_int),
                ("items", c_void_p),
                ("count", c_size_t),
                ("popped", POINTER(c_size_t)),
                ("closed", POINTER(c_int)),
            ],
        ),
        "polypath_queue_close": (c_int, [("queue", c_void_p), ("index", c_int)]),
    },
    "offload.h": {
        "polypath_offload_acquire_context": (c_int, [("context", POINTER(c_void_p))]),
        "polypath_offload_release_context": (None, [("context", c_void_p)]),
        "polypath_offload_retire_context": (None, []),
        "polypath_offload_collective": (
            c_int,
            [("comm", c_void_p), ("call", POINTER(OffloadCall)), ("may_wait", c_int)],
        ),
    },
    "uniconn.h": {
        "polypath_uniconn_env_create": (
            c_int,
            [
                ("rank", c_int),
                ("size", c_int),
                ("exchange", AllGatherFn),
                ("user", c_void_p),
                ("is_thread", c_int),
                ("env", POINTER(c_void_p)),
            ],
        ),
        "polypath_uniconn_env_create_from_environment": (c_int, [("env", POINTER(c_void_p))]),
        "polypath_uniconn_env_destroy": (None, [("env", c_void_p)]),
        "polypath_uniconn_set_device": (c_int, [("env", c_void_p), ("gpu", c_int)]),
        "polypath_uniconn_backend": (c_char_p, [("env", c_void_p)]),
        "polypath_uniconn_reason": (c_char_p, [("env", c_void_p)]),
        "polypath_uniconn_world_rank": (c_int, [("env", c_void_p)]),
        "polypath_uniconn_world_size": (c_int, [("env", c_void_p)]),
        "polypath_uniconn_node_rank": (c_int, [("env", c_void_p)]),
        "polypath_uniconn_node_size": (c_int, [("env", c_void_p)]),
        "polypath_uniconn_alloc": (c_int, [("bytes", c_size_t), ("address", POINTER(c_void_p))]),
        "polypath_uniconn_free": (c_int, [("address", c_void_p)]),
        "polypath_uniconn_comm_create": (c_int, [("comm", POINTER(c_void_p))]),
        "polypath_uniconn_comm_split": (
            c_int,
            [("comm", c_void_p), ("color", c_int), ("key", c_int), ("part", POINTER(c_void_p))],
        ),
        "polypath_uniconn_comm_destroy": (None, [("comm", c_void_p)]),
        "polypath_uniconn_comm_rank": (c_int, [("comm", c_void_p)]),
        "polypath_uniconn_comm_size": (c_int, [("comm", c_void_p)]),
        "polypath_uniconn_barrier": (c_int, [("comm", c_void_p), ("stream", c_void_p)]),
        "polypath_uniconn_coordinator_create": (
            c_int,
            [("stream", c_void_p), ("coordinator", POINTER(c_void_p))],
        ),
        "polypath_uniconn_coordinator_destroy": (None, [("coordinator", c_void_p)]),
        "polypath_uniconn_start": (c_int, [("coordinator", c_void_p)]),
        "polypath_uniconn_end": (c_int, [("coordinator", c_void_p)]),
        "polypath_uniconn_wait": (c_int, [("coordinator", c_void_p)]),
        "polypath_uniconn_post": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("src", c_void_p),
                ("dest", c_void_p),
                ("bytes", c_size_t),
                ("signal", POINTER(c_uint64)),
                ("value", c_uint64),
                ("to", c_int),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_acknowledge": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("dest", c_void_p),
                ("bytes", c_size_t),
                ("signal", POINTER(c_uint64)),
                ("value", c_uint64),
                ("from", c_int),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_all_gather": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("bytes", c_size_t),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_all_gatherv": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("counts", POINTER(c_size_t)),
                ("displs", POINTER(c_size_t)),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_all_to_all": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("bytes", c_size_t),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_all_to_allv": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("send", c_void_p),
                ("send_counts", POINTER(c_size_t)),
                ("send_displs", POINTER(c_size_t)),
                ("recv", c_void_p),
                ("recv_counts", POINTER(c_size_t)),
                ("recv_displs", POINTER(c_size_t)),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_broadcast": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("buffer", c_void_p),
                ("bytes", c_size_t),
                ("root", c_int),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_gather": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("bytes", c_size_t),
                ("root", c_int),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_gatherv": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("counts", POINTER(c_size_t)),
                ("displs", POINTER(c_size_t)),
                ("root", c_int),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_scatter": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("bytes", c_size_t),
                ("root", c_int),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_scatterv": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("counts", POINTER(c_size_t)),
                ("displs", POINTER(c_size_t)),
                ("root", c_int),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_all_reduce": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("count", c_size_t),
                ("type", c_int),
                ("op", c_int),
                ("comm", c_void_p),
            ],
        ),
        "polypath_uniconn_reduce": (
            c_int,
            [
                ("coordinator", c_void_p),
                ("send", c_void_p),
                ("recv", c_void_p),
                ("count", c_size_t),
                ("type", c_int),
                ("op", c_int),
                ("root", c_int),
                ("comm", c_void_p),
            ],
        ),
        "polypath_backend_entries": (
            c_int,
            [
                ("context", c_void_p),
                ("gpus", POINTER(c_int)),
                ("ranks", c_int),
                ("rows", POINTER(BackendEntry)),
                ("capacity", c_size_t),
                ("count", POINTER(c_size_t)),
            ],
        ),
        "polypath_backend_save": (
            c_int,
            [
                ("context", c_void_p),
                ("measured", POINTER(BackendSamples)),
                ("json", POINTER(c_void_p)),
            ],
        ),
        "polypath_plan_backend": (
            c_int,
            [
                ("context", c_void_p),
                ("op", c_char_p),
                ("bytes", c_size_t),
                ("gpus", POINTER(c_int)),
                ("ranks", c_int),
                ("with_mpi", c_int),
                ("json", POINTER(c_void_p)),
            ],
        ),
    },
}
