"""What `polypath bench` runs: from an operation's name to transfers, and from reports to its
JSON."""

from __future__ import annotations

import datetime
import enum
import os
import platform
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from .context import Context
from .errors import InvalidArgument
from .transfers import Request

SCHEMA = 1


class Operation(enum.StrEnum):
    """The transfers that a benchmark runs at once."""

    p2p = enum.auto()
    """One GPU to another."""
    h2d = enum.auto()
    """Host memory to a GPU."""
    d2h = enum.auto()
    """A GPU to host memory."""
    bidir = enum.auto()
    """Both directions of a pair."""
    ring = enum.auto()
    """Each GPU to the next, the last to the first."""
    pageable = enum.auto()
    """Pageable host memory to a GPU, and then back: one transfer at a time."""


class Pair(NamedTuple):
    """Source and destination of one transfer."""

    src: str
    dst: str


def transfers_of(
    operation: Operation,
    topology: dict[str, Any],
    src: str | None = None,
    dst: str | None = None,
    both_directions: bool = False,
) -> list[Pair]:
    """The transfers of an operation on this node.

    Without ``src`` and ``dst``: gpu0 to gpu1; for h2d, d2h and pageable gpu0 and the host memory
    nearest to the GPU. The two transfers of pageable are not at once: each is benchmarked alone.
    ``both_directions`` is for the ring. Raises `InvalidArgument`, naming the option and
    what is allowed.
    """
    gpus = [gpu["id"] for gpu in topology["gpus"]]
    hosts = [host["id"] for host in topology["hosts"]]
    if both_directions and operation is not Operation.ring:
        raise InvalidArgument(f"--both-directions is for ring; {operation} has none")
    if operation is Operation.ring:
        if src or dst:
            raise InvalidArgument("--src and --dst are not for ring: it takes every GPU")
        _require_gpus(gpus, operation)
        forward = [Pair(gpu, gpus[(i + 1) % len(gpus)]) for i, gpu in enumerate(gpus)]
        return forward + [Pair(b, a) for a, b in forward] if both_directions else forward

    host_of = {host["numa"]: host["id"] for host in topology["hosts"]}
    nearest = {gpu["id"]: host_of[gpu["numa"]] for gpu in topology["gpus"]}
    if operation is Operation.h2d:
        dst = _memory("--dst", dst, gpus, gpus[0])
        return [Pair(_memory("--src", src, hosts, nearest[dst]), dst)]
    if operation is Operation.d2h:
        src = _memory("--src", src, gpus, gpus[0])
        return [Pair(src, _memory("--dst", dst, hosts, nearest[src]))]
    if operation is Operation.pageable:
        dst = _memory("--dst", dst, gpus, gpus[0])
        host = _memory("--src", src, hosts, nearest[dst]) + ":pageable"
        return [Pair(host, dst), Pair(dst, host)]
    if operation is Operation.p2p:
        _require_gpus(gpus, operation)
        allowed = gpus
    else:
        allowed = gpus + hosts
    src = _memory("--src", src, allowed, gpus[0])
    others = [memory for memory in allowed if memory != src]
    dst = _memory("--dst", dst, others, next(iter(others)))
    pair = Pair(src, dst)
    return [pair, Pair(dst, src)] if operation is Operation.bidir else [pair]


def pair_of(topology: dict[str, Any], src: str | None = None, dst: str | None = None) -> Pair:
    """Any two memories of this node; without ``src`` and ``dst`` gpu0, and the first one other than
    the source. Raises `InvalidArgument`, naming the option and what is allowed."""
    memories = [memory["id"] for memory in (*topology["gpus"], *topology["hosts"])]
    src = _memory("--src", src, memories, memories[0])
    others = [memory for memory in memories if memory != src]
    return Pair(src, _memory("--dst", dst, others, others[0]))


def _require_gpus(gpus: Sequence[str], operation: Operation) -> None:
    if len(gpus) < 2:
        raise InvalidArgument(f"{operation} needs at least 2 GPUs; this node has {len(gpus)}")


def _memory(option: str, value: str | None, allowed: Sequence[str], default: str) -> str:
    memory = default if value is None else value
    if memory == "host":
        memory = "host0"
    if memory not in allowed:
        raise InvalidArgument(f"{option} '{memory}' is not allowed: {', '.join(allowed)}")
    return memory


def run(
    context: Context,
    pairs: Sequence[Pair],
    runs: Sequence[tuple[int, int]],
    iterations: int,
    warmup: int,
    compare_executors: bool = False,
) -> Generator[dict[str, Any], None, None]:
    """One row of the document for each of ``runs``: bytes a transfer, and how many of the pairs'
    transfers are outstanding at once."""
    for size, window in runs:
        requests = [Request(pair.src, pair.dst, size) for pair in pairs]
        report = context.bench(
            requests,
            iterations=iterations,
            warmup=warmup,
            window=window,
            compare_executors=compare_executors,
        )
        row = {"src": pairs[0].src, "dst": pairs[0].dst, **report, "bytes": size}
        if len(pairs) > 1:
            row["transfers"] = [pair._asdict() for pair in pairs]
        yield row


def where(node: dict[str, Any]) -> str:
    """ "narval (simulated, virtual time)": a node, of `Context.topology` or of a document, and what
    its times are."""
    if not node["simulated"]:
        return str(node["name"])
    # Documents before 0.1.0 do not say, and are of virtual time.
    clock = "virtual time" if node.get("virtual_time", True) else "times of this machine's CPU"
    return f"{node['name']} (simulated, {clock})"


def clock_lines(topology: dict[str, Any]) -> list[str]:
    """What to say before times of a simulated node that are none of the node's; else nothing."""
    if not topology["simulated"] or topology["virtual_time"]:
        return []
    return ["simulated in real time: times are of this machine's CPU, and say nothing of the node"]


def document(
    context: Context, operation: str, rows: Sequence[dict[str, Any]], command: str
) -> dict[str, Any]:
    """The value that ``--json`` writes::

        {"schema": 1, "op",
         "node": {"name", "simulated", "virtual_time", "fingerprint",
                  "emulated_mesh_gbps" (None, or of a link)},
         "rows": [{"src", "dst", "bytes", "native_gbps", "polypath_gbps", "speedup", "limit_gbps",
                   "verified", "executor", "routes": [{"route", "share", "chunks"}]}],
         "command", "date", "version", "machine", "settings"}

    Rows hold everything else that `Context.bench` says as well, and "transfers" where there are
    several: their ``bytes`` then count a transfer, GB/s are sums, ``src`` and ``dst`` are those of
    the first. "settings": those that are not at their default.
    """
    topology = context.topology()
    return {
        "schema": SCHEMA,
        "op": str(operation),
        "node": {
            **{key: topology[key] for key in ("name", "simulated", "virtual_time", "fingerprint")},
            "emulated_mesh_gbps": (topology["emulated_mesh"] or {}).get("gbps"),
        },
        "rows": list(rows),
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": context.devices()["version"],
        "machine": describe_machine(context),
        "settings": {
            setting["name"]: setting["value"]
            for setting in context.settings()
            if setting["origin"] != "default"
        },
    }


def describe_machine(context: Context) -> dict[str, Any]:
    """ "machine" of a document: system, driver, names of the GPUs."""
    return {
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "driver": context.devices()["driver"],
        "gpus": [gpu["name"] for gpu in context.topology()["gpus"]],
    }
