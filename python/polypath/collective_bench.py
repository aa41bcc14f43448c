"""What `polypath bench allreduce` and its family run: ranks, one GPU each, that measure the same
rows together. On GPUs each is a process of its own, as in training; on a simulated node, whose
virtual time belongs to one process, a thread.

A process of a rank is this module as a program: it reads its request from its argument, meets the
others as torchrun's processes do, and rank 0 prints a line of JSON a row."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import statistics
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import _api, _c_abi
from .comm import Communicator, on_all
from .context import Context
from .errors import NotSupported, PolypathError
from .interrupts import interrupt_later
from .rank_launcher import lines_of_launched

ALGORITHMS = (
    "cells",
    "lines",
    "flat",
    "relayed",
    "pairwise",
    "host-trees",
    "mixed",
    "hierarchical",
    "ring",
)
"""By which names plans, rows and options call them."""

MEASURED = {
    "kernels": "kernels",
    **{
        name: name
        for name in (
            "lines",
            "relayed",
            "pairwise",
            "alone",
            "hierarchical",
            "published",
            "ring",
            "host-trees",
        )
    },
    "mixed": "host",
}
"""What a benchmark can ask for, with its name in lab.h: algorithms; ``kernels``, cells, lines or
flat, as the size has it; ``published``, hierarchical with one leader an island and eight chunks;
``alone``, as planned without the GPUs that are no ranks."""


@dataclass(frozen=True)
class CollectiveBench:
    """Rows of a benchmark: one a size, in bytes of a rank's larger buffer."""

    op: str
    sizes: Sequence[int]
    ranks: int
    type: str = "float32"
    operation: str = "sum"
    warmup: int = 1
    iterations: int = 10
    calls: int = 10
    nccl: str | None = None
    """The library to compare with; "" is libnccl.so.2, None is none."""
    baseline: str | None = None
    """A polypath algorithm to compare with: one of `MEASURED`."""
    algorithm: str | None = None
    """What is measured: one of `MEASURED`; None: what the plan chooses."""
    communicators: int = 1
    """How many each process has. Of several the last one is measured, against the first."""
    gpus: Sequence[int] | None = None
    """The GPU of each rank; None: the first ones."""


def _choice(name: str | None) -> bytes | None:
    return None if name is None else MEASURED[name].encode()


class _Rank:
    """What one rank measures with."""

    def __init__(self, comm: Communicator, request: CollectiveBench) -> None:
        self._wanted = request
        self._handle = ctypes.c_void_p()
        _api.call(
            "polypath_collective_bench_create",
            comm._open(),
            None if request.nccl is None else request.nccl.encode(),
            _choice(request.baseline),
            ctypes.byref(self._handle),
        )

    def row(self, size: int) -> dict[str, Any]:
        options = self._wanted
        request = _c_abi.CollectiveBenchRequest(
            options.op.encode(),
            options.type.encode(),
            options.operation.encode(),
            size,
            options.warmup,
            options.iterations,
            options.calls,
            _choice(options.algorithm),
        )
        result: dict[str, Any] = _api.call_json(
            "polypath_collective_bench_run", self._handle, ctypes.byref(request)
        )
        if options.baseline is not None:
            result["baseline"]["name"] = options.baseline
        return result

    def close(self) -> None:
        _api.library().polypath_collective_bench_destroy(self._handle)


FIRST = "first"
"""The baseline's name where a communicator is measured against the first one."""


class _Communicators:
    """What one rank measures the last of several communicators with, against the first."""

    _MAX_TURNS = 5  # of the two, one after the other

    def __init__(self, comm: Communicator, request: CollectiveBench) -> None:
        self._more = [comm.split(0, comm.rank) for _ in range(request.communicators - 1)]
        alone = replace(request, nccl=None, baseline=None, communicators=1)
        self._ranks = [_Rank(each, alone) for each in (comm, *self._more)]
        self._turns = min(self._MAX_TURNS, request.iterations)
        for rank in self._ranks[1:-1]:  # all have been called
            rank.row(min(request.sizes))

    def row(self, size: int) -> dict[str, Any]:
        turns = [(self._ranks[0].row(size), self._ranks[-1].row(size)) for _ in range(self._turns)]
        first, last = (
            statistics.median(row["us"] for row in rows) for rows in zip(*turns, strict=True)
        )
        result = min((row for _, row in turns), key=lambda row: abs(row["us"] - last))
        result["exact"] = all(row["exact"] for turn in turns for row in turn)
        result["baseline"] = {"name": FIRST, "us": first}
        result["speedup"] = first / result["us"]
        return result

    def close(self) -> None:
        for rank in self._ranks:
            rank.close()
        for comm in self._more:
            comm.close()


def _measuring(comm: Communicator, request: CollectiveBench) -> _Rank | _Communicators:
    return _Rank(comm, request) if request.communicators == 1 else _Communicators(comm, request)


_A_DAY_MS = 24 * 3600 * 1000


def ranks_on_threads(
    context: Context, count: int, gpus: Sequence[int] | None = None
) -> list[Communicator]:
    """Ranks that are threads of this process, on its first GPUs. In virtual time they wait a day
    for each other, which only `on_all` cuts short: a limit in seconds of a busy machine says
    nothing about the node."""
    limit = _A_DAY_MS if context.topology()["virtual_time"] else 0
    return Communicator.all(context, gpus or range(count), limit)


def rows_on_threads(
    context: Context, request: CollectiveBench
) -> Generator[dict[str, Any], None, None]:
    """The rows, by ranks that are threads of this process; to be closed before the context. Raises
    what a rank raises."""
    ranks = ranks_on_threads(context, request.ranks, request.gpus)
    try:
        measuring = on_all(ranks, lambda comm: _measuring(comm, request))
        try:
            for size in request.sizes:
                yield on_all(ranks, lambda comm, size=size: measuring[comm.rank].row(size))[0]
        finally:
            on_all(ranks, lambda comm: measuring[comm.rank].close())
    finally:
        with interrupt_later(lambda: None):
            for comm in ranks:
                comm.close()


def rows_in_processes(request: CollectiveBench) -> Generator[dict[str, Any], None, None]:
    """The rows, by ranks that are processes. Raises `PolypathError` with what a rank said last."""
    return lines_of_ranks(__name__, json.dumps(asdict(request)), request.ranks)


def lines_of_ranks(
    module: str, argument: str, ranks: int, answer: Callable[[dict[str, Any]], str] | None = None
) -> Generator[dict[str, Any], None, None]:
    """Runs a module as a program on each of ``ranks`` ranks, as torchrun would; yields the lines of
    JSON that rank 0 prints. ``answer``: what it is told to each, as a line. Raises `PolypathError`
    with what a rank said last."""
    return lines_of_launched([sys.executable, "-m", module, argument], os.environ, ranks, answer)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process says when to stop
    request = CollectiveBench(**json.loads(sys.argv[1]))
    try:
        gpu = None if request.gpus is None else request.gpus[int(os.environ["RANK"])]
        with Context() as context, Communicator.from_environment(context, gpu) as comm:
            measuring = _measuring(comm, request)
            try:
                for size in request.sizes:
                    row = measuring.row(size)
                    if comm.rank == 0:
                        print(json.dumps(row), flush=True)
            finally:
                measuring.close()
    except (PolypathError, NotSupported) as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
