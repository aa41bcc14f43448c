"""What `polypath bench mpi` and `polypath bench jacobi` have in common: from runs to a document."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from .. import _api
from ..doctor import statistics
from .runs import Runs
from .ways import Ways

SCHEMA = 1


def document(
    operation: str,
    ways: Ways,
    runs: Runs,
    rows: Sequence[dict[str, Any]],
    command: str,
) -> dict[str, Any]:
    """The value that ``--json`` writes::

    {"schema": 1, "op", "baseline": "stock" | "direct",
     "node": {"name", "simulated", "fingerprint", "emulated_mesh_gbps"}, "mpi", "ranks",
     "pairs" (of runs), "rows", "statistics": `summary`, "command", "date", "version",
     "machine", "settings"}
    """
    return {
        "schema": SCHEMA,
        "op": operation,
        "baseline": ways.name,
        "node": ways.node,
        "mpi": runs.baseline[0]["mpi"],
        "ranks": runs.baseline[0]["ranks"],
        "pairs": len(runs.baseline),
        "rows": list(rows),
        "statistics": summary(runs.processes),
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": _api.version(),
        "machine": ways.machine,
        "settings": ways.settings,
    }


def summary(processes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How the copies of all runs under the shim went::

        {"processes", "calls", "bytes", "asked", "split",
         "routes": [{"src", "dst", "route", "bytes", "share"}], "native_by_reason",
         "left_out_by_reason"}

    "asked": calls that were large enough for the engine; "split": those that it split; "share":
    part of all bytes of those.
    """
    routes: dict[tuple[str, str, str], int] = {}
    for process in processes:
        for one in (process["engine"] or {}).get("routes", []):
            key = (one["src"], one["dst"], one["route"])
            routes[key] = routes.get(key, 0) + one["bytes"]
    total = sum(routes.values())
    counts = {
        name: sum(statistics.total(process, count) for process in processes)
        for name, count in (
            ("calls", "calls"),
            ("bytes", "bytes"),
            ("asked", "handed_over"),
            ("split", "issued"),
        )
    }
    return {
        "processes": len(processes),
        **counts,
        "routes": [
            {"src": src, "dst": dst, "route": route, "bytes": size, "share": size / total}
            for (src, dst, route), size in sorted(routes.items())
        ],
        "native_by_reason": statistics.reasons(processes, "native_by_reason"),
        "left_out_by_reason": statistics.reasons(processes, "left_out_by_reason"),
    }
