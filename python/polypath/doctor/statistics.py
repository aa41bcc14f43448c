"""The statistics that processes under the shim write at their end.

Each file::

    {"pid", "command",
     "calls": {symbol: {"calls", "bytes", "offloaded", "issued"}},
     "imports": {...},
     "rates": [{"direction", "bytes", "issued", "count", "gbps"}],
     "mpi": None, or {"refusal", "calls": {function: {"calls", "taken", "to_mpi": {reason: count}}},
             ...},
     "engine": None, or what `Context.counters` answers}

A process that used NCCL writes another one, of what stood between it and that; `read` puts it with
the first as "nccl"::

    {"pid", "command",
     "nccl": {"library", "other_libraries", "communicators", "taken", "refusals": {why: count},
              "calls": {function: {"calls", "taken", "to_nccl": {reason: count}}}, ...}}

Calls are those of every replaced function, not of copies alone. "offloaded": calls that the shim
gave to the engine; "issued": those that the engine split; all others went to the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: For POLYPATH_STATS: a name of its own for each process, in a folder.
PATTERN = "%p.json"


def read(folder: Path, unread: list[str] | None = None) -> list[dict[str, Any]]:
    """What the processes wrote into the folder, by process number. A file that cannot be read is
    left out; ``unread`` gets its name and why."""
    by_pid: dict[int, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            process = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            if unread is not None:
                unread.append(f"{file.name}: {error}")
            continue
        if "nccl" in process:  # whose file comes alone, where there is no shim
            nothing = {"calls": {}, "imports": {}, "rates": [], "mpi": None, "engine": None}
            process = {**nothing, **process, **by_pid.get(process["pid"], {})}
        by_pid[process["pid"]] = {**by_pid.get(process["pid"], {}), **process}
    return sorted(by_pid.values(), key=lambda process: process["pid"])


def total(process: dict[str, Any], count: str) -> int:
    """A count of all the process's copies: "calls", "bytes", "offloaded" or "issued"."""
    calls = process["calls"].items()
    return sum(call[count] for symbol, call in calls if symbol.startswith("cuMemcpy"))


def bytes_by_route(process: dict[str, Any], src: str = "", dst: str = "") -> dict[str, int]:
    """Bytes of split transfers on each route, by its name: of those between memories whose names
    begin so ("host" is any host memory)."""
    routes: dict[str, int] = {}
    for route in (process["engine"] or {}).get("routes", []):
        if route["src"].startswith(src) and route["dst"].startswith(dst):
            routes[route["route"]] = routes.get(route["route"], 0) + route["bytes"]
    return routes


def reasons(processes: Iterable[dict[str, Any]], kind: str) -> dict[str, int]:
    """Counts of all processes by reason; ``kind``: "native_by_reason" or "left_out_by_reason"."""
    counts: dict[str, int] = {}
    for process in processes:
        for reason, count in (process["engine"] or {}).get(kind, {}).items():
            counts[reason] = counts.get(reason, 0) + count
    return counts


def mpi_totals(processes: Iterable[dict[str, Any]]) -> tuple[int, int, dict[str, int]]:
    """Calls of MPI collectives of all processes, how many polypath took, and why others went to
    MPI."""
    calls = taken = 0
    counts: dict[str, int] = {}
    for process in processes:
        for function in (process.get("mpi") or {}).get("calls", {}).values():
            calls += function["calls"]
            taken += function["taken"]
            for reason, count in function["to_mpi"].items():
                counts[reason] = counts.get(reason, 0) + count
    return calls, taken, counts


def nccl_totals(processes: Iterable[dict[str, Any]]) -> tuple[int, int, dict[str, int]]:
    """Calls of NCCL collectives of all processes, how many polypath took, and why others went to
    NCCL."""
    calls = taken = 0
    counts: dict[str, int] = {}
    for process in processes:
        for function in (process.get("nccl") or {}).get("calls", {}).values():
            calls += function["calls"]
            taken += function["taken"]
            for reason, count in function["to_nccl"].items():
                counts[reason] = counts.get(reason, 0) + count
    return calls, taken, counts
