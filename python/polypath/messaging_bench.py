"""What `polypath bench messaging` runs: messaging_bench, one process with one or two GPUs."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from typing import Any

from ._library import find_library
from .errors import PolypathError
from .mpi.runs import find_program
from .rank_launcher import lines_of_first

#: Groups of lines, in the order in which they run.
GROUPS = ("queue", "remote", "match", "active", "pool", "collectives")


def lines(
    what: str,
    gpus: Sequence[int],
    repetitions: int,
    quick: bool = False,
    node: str | None = None,
) -> Generator[dict[str, Any], None, None]:
    """The lines, as they come: ``{"what", "line", "value", "unit"}``, with "paper", "adds_up" and
    "limits" where there are any, or with "skipped" in place of the value. Raises
    `PolypathError` with what was wrong: an item lost, twice, torn or out of order; and for a
    simulated ``node`` where the driver that knows these kernels is not built."""
    environment = {"CUDA_MODULE_LOADING": "EAGER", **os.environ}
    if node is not None:
        environment["POLYPATH_NODE"] = node
        environment.setdefault("POLYPATH_SIM_MODE", "functional")
        driver = find_library().parent / "libpolypath_sim_of_messaging_bench.so"
        if not driver.is_file():
            raise PolypathError(f"--node: there is no {driver.name}: it is of a build with tests")
        environment.setdefault("POLYPATH_DRIVER_LIBRARY", str(driver))
    command = [
        str(find_program("messaging_bench")),
        *("--what", what, "--gpus", ",".join(map(str, gpus))),
        *("--repetitions", str(repetitions), "--quick", str(int(quick))),
    ]
    return lines_of_first(command, [environment])
