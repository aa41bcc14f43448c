"""The tests of `polypath bench mpi`: which program each is, and what is made of its runs."""

from __future__ import annotations

import statistics
from enum import StrEnum
from typing import Any, NamedTuple

from .runs import Runs


class Test(StrEnum):
    """What is measured; the methods are those of the OSU micro-benchmarks."""

    bw = "bw"
    """MPI bandwidth, one way."""
    bibw = "bibw"
    """MPI bandwidth, both ways at once."""
    latency = "latency"
    """MPI latency."""
    put = "put"
    """Bandwidth of UCX's puts."""


class Method(NamedTuple):
    program: str
    figure: str
    """Of its results: "gbps" or "latency_us"."""
    windows: bool
    """Whether it has several messages outstanding."""


METHODS = {
    Test.bw: Method("mpi_bandwidth", "gbps", True),
    Test.bibw: Method("mpi_bibandwidth", "gbps", True),
    Test.latency: Method("mpi_latency", "latency_us", False),
    Test.put: Method("ucx_put_bandwidth", "gbps", True),
}


def rows_of(test: Test, runs: Runs, timed: bool) -> list[dict[str, Any]]:
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
        medians = [statistics.median(row[figure] for row in way) for way in (baseline, polypath)]
        speedups = [
            _speedup(figure, before[figure], after[figure])
            for before, after in zip(baseline, polypath, strict=True)
        ]
        rows.append(
            {
                "bytes": first["bytes"],
                "window": first["window"],
                f"baseline_{figure}": medians[0] if timed else None,
                f"polypath_{figure}": medians[1] if timed else None,
                "speedup": statistics.median(speedups) if timed else None,
                "speedups": speedups if timed else None,
                "messages": first["messages"],
                "verified": all(row["verified"] for row in (*baseline, *polypath)),
            }
        )
    return rows


def _speedup(figure: str, baseline: float, polypath: float) -> float:
    """How many times faster: more bandwidth, or less latency."""
    return polypath / baseline if figure == "gbps" else baseline / polypath
