"""What `polypath tune allreduce` and its family run: ranks, one GPU each, that measure together. On
GPUs each is a process of its own, as in training; on a simulated node a thread.

A process of a rank is this module as a program: rank 0 prints a line of JSON for each report of
progress, and reads whether to go on; its last line is the result."""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import _api, _c_abi
from .collective_bench import lines_of_ranks, ranks_on_threads
from .comm import Communicator, on_all
from .context import Context, TuneProgress, progress_callback
from .errors import PolypathError
from .integers import array


@dataclass(frozen=True)
class CollectiveTuning:
    """What to search; as `Context.tune` has it."""

    op: str | None
    """None: all six."""
    ranks: int
    sizes: Sequence[int] | None = None
    """Bytes of a rank's larger buffer; None: 16 KiB to 64 MiB, simulated to 4 MiB."""
    budget_s: float = 60.0
    again: bool = False


def _tune(
    comm: Communicator, options: CollectiveTuning, progress: TuneProgress | None
) -> dict[str, Any]:
    """One rank of it."""
    bench = ctypes.c_void_p()
    _api.call("polypath_collective_bench_create", comm._open(), None, None, ctypes.byref(bench))
    try:
        sizes = None if options.sizes is None else array(options.sizes, ctypes.c_size_t, "sizes")
        request = _c_abi.TuneCollectivesRequest(
            None if options.op is None else options.op.encode(),
            sizes,
            0 if sizes is None else len(sizes),
            options.budget_s,
            options.again,
        )
        report, raised = progress_callback(progress)
        result: dict[str, Any] = _api.call_json(
            "polypath_tune_collectives", bench, ctypes.byref(request), report, None
        )
        if raised:
            raise raised[0]
        return result
    finally:
        _api.library().polypath_collective_bench_destroy(bench)


def tune_on_threads(
    context: Context, request: CollectiveTuning, progress: TuneProgress | None = None
) -> dict[str, Any]:
    """What `Context.tuned` returns then, and "stopped" (bool) and "seconds". Raises what a rank
    raises."""
    ranks = ranks_on_threads(context, request.ranks)
    try:
        return on_all(
            ranks, lambda comm: _tune(comm, request, progress if comm.rank == 0 else None)
        )[0]
    finally:
        for comm in ranks:
            comm.close()


def tune_in_processes(
    request: CollectiveTuning, progress: TuneProgress | None = None
) -> dict[str, Any]:
    """The same by ranks that are processes, with this process's environment."""

    def answer(message: dict[str, Any]) -> str:
        if "progress" not in message or progress is None:
            return "go on"
        return "stop" if progress(*message["progress"]) is False else "go on"

    *_progress, result = lines_of_ranks(
        __name__, json.dumps(asdict(request)), request.ranks, answer
    )
    return result


def main() -> None:
    request = CollectiveTuning(**json.loads(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process says when to stop

    def report(done: int, total: int, left: float, what: str) -> bool:
        print(json.dumps({"progress": [done, total, left, what]}), flush=True)
        return sys.stdin.readline().strip() == "go on"

    try:
        with Context() as context, Communicator.from_environment(context) as comm:
            result = _tune(comm, request, report if comm.rank == 0 else None)
            if comm.rank == 0:
                print(json.dumps(result), flush=True)
    except PolypathError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
