"""What to do about each reason for which a copy, or a part of it, goes one way and not another.

The reasons are those of plans and of the library's counters (`native_by_reason`,
`left_out_by_reason`).
"""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    wrong: bool
    """Whether the copies could go over more routes if the user followed the advice."""
    text: str


_NOTHING = "nothing to do: one copy is the fastest way"
_WAIT = "only first transfers; POLYPATH_PREPARE=wait makes them wait until all routes are ready"
_BUSY = "nothing to do: the routes are kept for transfers that may start before this one"
_REACH = (
    "memory of a pool, or imported mapped memory: let every GPU access it (cuMemPoolSetAccess, "
    "cuMemSetAccess), or take it from cuMemAlloc; in PyTorch, no cudaMallocAsync backend; mapped "
    "memory of the program's own: the setting share_mappings is off, or the driver refused access"
)

#: Why a transfer went as the native copy.
NATIVE = {
    "small": Advice(False, _NOTHING),
    "no gain": Advice(
        False, "nothing to do: the plan says so; `polypath plan` shows why for each route"
    ),
    "links used by concurrent transfers": Advice(
        False,
        "nothing to do: transfers of other streams, or of other processes of this user, use the "
        "other routes' links at the same time",
    ),
    "links loaded": Advice(
        False, "nothing to do: other copies occupy the other routes' links (`polypath topo --load`)"
    ),
    "copy threads slow": Advice(
        True,
        "the CPUs are busy, so that threads copy pageable memory slower than the driver: leave the "
        "process CPUs, or pin the host memory",
    ),
    "pageable memory": Advice(
        True,
        "give the process more CPUs (POLYPATH_COPY_THREADS), or pin the host memory: "
        "cuMemHostAlloc, cudaHostRegister; in PyTorch pin_memory()",
    ),
    "managed memory": Advice(True, "use cuMemAlloc instead of cuMemAllocManaged"),
    "stream in capture": Advice(
        False, "nothing to do: copies in a captured graph stay as the program made them"
    ),
    "same memory": Advice(False, "nothing to do: source and destination are one memory"),
    "not a primary context": Advice(
        True, "let the program use the primary contexts (cuDevicePrimaryCtxRetain), as cudart does"
    ),
    "several allocations": Advice(True, "copy each allocation by a call of its own"),
    "routes not ready": Advice(False, _WAIT),
    "routes busy": Advice(False, _BUSY),
    "memory of a process without polypath": Advice(
        True,
        "start every process of the program under polypath, all of one user, in one PID namespace "
        "with one /dev/shm, and with all GPUs visible",
    ),
    "memory out of reach": Advice(True, _REACH),
    "primary context reset": Advice(
        False, "nothing to do: the program reset a GPU (cudaDeviceReset), and all routes with it"
    ),
    "driver error": Advice(
        True, "POLYPATH_LOG_LEVEL=info says which call failed; is the GPUs' memory full?"
    ),
}

#: Why a route of a plan was left out of a transfer.
LEFT_OUT = {
    "not ready": Advice(False, _WAIT),
    "busy": Advice(False, _BUSY),
    "preparation failed": Advice(
        True, "POLYPATH_LOG_LEVEL=info says why; is the memory of the staging GPU or the host full?"
    ),
    "memory out of reach": Advice(True, _REACH),
    "link loaded": Advice(
        False, "nothing to do: other copies occupy a link of it (`polypath topo --load`)"
    ),
}

#: Why a plan does without a route: how the reason begins.
PLANNED = {
    "not allowed by the settings": Advice(
        True, "allow its kind: POLYPATH_ROUTES=all, or --routes all"
    ),
    "left to the other ranks of this machine": Advice(
        False, "nothing to do: POLYPATH_MAX_ROUTES=64 would take them all"
    ),
    "adds nothing to the flow": Advice(False, "nothing to do: other routes fill its links"),
    "would not pay at this size, or takes more": Advice(
        True, "allow more: POLYPATH_MAX_ROUTES=auto, or a larger POLYPATH_STAGING_SIZE"
    ),
    "would not pay at this size": Advice(False, "nothing to do: larger copies may use it"),
    "the message is below the smallest size to split": Advice(
        True, "a smaller POLYPATH_MIN_SIZE, or auto"
    ),
    "the tuned choice is faster without it": Advice(
        False, "nothing to do: `polypath tune` measured it"
    ),
}

_UNKNOWN = Advice(True, "this package does not know that reason: is it older than the library?")


def on_native(reason: str) -> Advice:
    return NATIVE.get(reason, _UNKNOWN)


def on_left_out(reason: str) -> Advice:
    return LEFT_OUT.get(reason, _UNKNOWN)


def on_plan(reason: str) -> Advice:
    """For the reason of a route that a plan left out."""
    return next((advice for start, advice in PLANNED.items() if reason.startswith(start)), _UNKNOWN)
