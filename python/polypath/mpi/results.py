"""What `polypath bench mpi` and `polypath bench jacobi` make of the runs of their programs: rows,
and a document."""

from __future__ import annotations

import datetime
import statistics as numbers
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from .. import _api
from ..doctor import statistics
from .runs import Runs, Ways

SCHEMA = 1
#: The program of `polypath bench jacobi`.
SOLVER = "jacobi"
_TIMES = ("iteration_us", "compute_us", "communication_us")


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
        for route_entry in (process["engine"] or {}).get("routes", []):
            key = (route_entry["src"], route_entry["dst"], route_entry["route"])
            routes[key] = routes.get(key, 0) + route_entry["bytes"]
    total = sum(routes.values())
    counts = {
        name: sum(statistics.total(process, count) for process in processes)
        for name, count in (
            ("calls", "calls"),
            ("bytes", "bytes"),
            ("asked", "offloaded"),
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


class Test(StrEnum):
    """What is measured; the methods are those of the OSU micro-benchmarks."""

    bw = "bw"
    """MPI bandwidth, one way."""
    bibw = "bibw"
    """MPI bandwidth, both ways at once."""
    latency = "latency"
    """MPI latency."""
    put = "put"
    """Bandwidth of UCX puts."""


class Method(NamedTuple):
    program: str
    figure: str
    """Key of the figure in its results: "gbps" or "latency_us"."""
    windows: bool
    """Whether it has several messages outstanding."""


METHODS = {
    Test.bw: Method("mpi_bandwidth", "gbps", True),
    Test.bibw: Method("mpi_bibandwidth", "gbps", True),
    Test.latency: Method("mpi_latency", "latency_us", False),
    Test.put: Method("ucx_put_bandwidth", "gbps", True),
}


def message_rows(test: Test, runs: Runs, timed: bool) -> list[dict[str, Any]]:
    """One row for each window and size::

        {"bytes", "window", "baseline_gbps", "polypath_gbps" (or "..._latency_us": medians over the
         runs), "speedups" (of each pair of runs), "speedup" (their median: what slows
         the machine down for a while meets both of a pair), "messages" (verified in each run),
         "verified"}

    Not ``timed``: times mean nothing, and figures and speedups are None.
    """
    figure = METHODS[test].figure
    rows = []
    for number, first in enumerate(runs.baseline[0]["rows"]):
        baseline = [run["rows"][number] for run in runs.baseline]
        polypath = [run["rows"][number] for run in runs.polypath]
        medians = [numbers.median(row[figure] for row in way) for way in (baseline, polypath)]
        speedups = [
            _gain(figure, before[figure], after[figure])
            for before, after in zip(baseline, polypath, strict=True)
        ]
        rows.append(
            {
                "bytes": first["bytes"],
                "window": first["window"],
                f"baseline_{figure}": medians[0] if timed else None,
                f"polypath_{figure}": medians[1] if timed else None,
                "speedup": numbers.median(speedups) if timed else None,
                "speedups": speedups if timed else None,
                "messages": first["messages"],
                "verified": all(row["verified"] for row in (*baseline, *polypath)),
            }
        )
    return rows


def _gain(figure: str, baseline: float, polypath: float) -> float:
    """How many times faster: more bandwidth, or less latency."""
    return polypath / baseline if figure == "gbps" else baseline / polypath


def solver_row(runs: Runs, timed: bool) -> dict[str, Any]:
    """One row, of the runs for one grid::

        {"rows", "columns", "elements", "halo_bytes", "iterations", "compute": "gpu" | "host",
         "baseline": {"iteration_us", "compute_us", "communication_us"}, "polypath": the same
         (medians over the runs), "speedups" (of an iteration, of each pair of runs), "speedup"
         (their median),
         "residuals", "digest", "verified"}

    "verified": every run had the same residual in every iteration, and the same grid at its end, to
    the last bit. Not ``timed``: times mean nothing, and they and the speedups are None.
    """
    first = runs.baseline[0]
    baseline, polypath = (
        {name: numbers.median(run[name] for run in way) for name in _TIMES}
        for way in (runs.baseline, runs.polypath)
    )
    speedups = [
        before["iteration_us"] / after["iteration_us"]
        for before, after in zip(runs.baseline, runs.polypath, strict=True)
    ]
    return {
        **{name: first[name] for name in ("rows", "columns")},
        "elements": first["rows"] * first["columns"],
        **{name: first[name] for name in ("halo_bytes", "iterations", "compute")},
        "baseline": baseline if timed else None,
        "polypath": polypath if timed else None,
        "speedup": numbers.median(speedups) if timed else None,
        "speedups": speedups if timed else None,
        **{name: first[name] for name in ("residuals", "digest")},
        "verified": all(
            (run["residuals"], run["digest"]) == (first["residuals"], first["digest"])
            for run in (*runs.baseline, *runs.polypath)
        ),
    }
