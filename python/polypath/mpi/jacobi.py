"""What `polypath bench jacobi` makes of the runs of the solver."""

from __future__ import annotations

import statistics
from typing import Any

from .runs import Runs

PROGRAM = "jacobi"
_TIMES = ("iteration_us", "compute_us", "communication_us")


def row_of(runs: Runs, timed: bool) -> dict[str, Any]:
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
        {name: statistics.median(run[name] for run in way) for name in _TIMES}
        for way in (runs.baseline, runs.polypath)
    )
    speedups = list(map(_speedup, runs.baseline, runs.polypath))
    return {
        **{name: first[name] for name in ("rows", "columns")},
        "elements": first["rows"] * first["columns"],
        **{name: first[name] for name in ("halo_bytes", "iterations", "compute")},
        "baseline": baseline if timed else None,
        "polypath": polypath if timed else None,
        "speedup": statistics.median(speedups) if timed else None,
        "speedups": speedups if timed else None,
        **{name: first[name] for name in ("residuals", "digest")},
        "verified": all(
            (run["residuals"], run["digest"]) == (first["residuals"], first["digest"])
            for run in (*runs.baseline, *runs.polypath)
        ),
    }


def _speedup(baseline: dict[str, Any], polypath: dict[str, Any]) -> float:
    return float(baseline["iteration_us"] / polypath["iteration_us"])
