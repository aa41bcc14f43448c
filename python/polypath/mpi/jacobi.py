"""What `polypath bench jacobi` makes of the runs of the solver."""

from __future__ import annotations

import statistics
from typing import Any

from .runs import Runs

PROGRAM = "jacobi"
_TIMES = ("iteration_us", "compute_us", "communication_us")


def row_of(runs: Runs) -> dict[str, Any]:
    """One row, of the runs for one grid::

        {"rows", "columns", "elements", "halo_bytes", "iterations", "compute": "gpu" | "host",
         "baseline": {"iteration_us", "compute_us", "communication_us"}, "polypath": the same
         (medians over the runs), "speedup" (of an iteration), "speedups" (of each pair of runs),
         "residuals", "digest", "verified"}

    "verified": every run had the same residual in every iteration, and the same grid at its end, to
    the last bit.
    """
    first = runs.baseline[0]
    everyone = [*runs.baseline, *runs.polypath]
    baseline, polypath = (
        {name: statistics.median(run[name] for run in way) for name in _TIMES}
        for way in (runs.baseline, runs.polypath)
    )
    return {
        **{name: first[name] for name in ("rows", "columns")},
        "elements": first["rows"] * first["columns"],
        **{name: first[name] for name in ("halo_bytes", "iterations", "compute")},
        "baseline": baseline,
        "polypath": polypath,
        "speedup": baseline["iteration_us"] / polypath["iteration_us"],
        "speedups": [
            before["iteration_us"] / after["iteration_us"]
            for before, after in zip(runs.baseline, runs.polypath, strict=True)
        ],
        **{name: first[name] for name in ("residuals", "digest")},
        "verified": all(
            (run["residuals"], run["digest"]) == (first["residuals"], first["digest"])
            for run in everyone
        ),
    }
