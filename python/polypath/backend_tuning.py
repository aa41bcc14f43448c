"""What `polypath tune backend` runs: uniconn_tune, on ranks with a GPU each, where UNICONN's
backends take turns. On GPUs each rank is a process, as torchrun, or mpirun for MPI, would start it;
on a simulated node a thread. Rank 0 keeps what is found in the profile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .context import TuneProgress
from .errors import InvalidArgument
from .mpi.runs import find_launcher, find_program
from .rank_launcher import lines_of_first, lines_of_launched

BACKENDS = ("polypath", "gpuccl", "gpushmem", "mpi")
OPERATIONS = ("post", "allreduce", "reduce", "all_gather", "all_to_all", "broadcast")


@dataclass(frozen=True)
class BackendTuning:
    """What to measure."""

    backends: Sequence[str]
    """The first is taken, unless another one is faster beyond doubt."""
    ops: Sequence[str]
    ranks: Sequence[int]
    """How many, on the first GPUs; each is measured by itself."""
    sizes: Sequence[int]
    """Bytes of a message; of a collective, of a rank's larger buffer."""
    turns: int = 9
    calls: int = 100
    """Maximum number of calls in a row."""
    budget_s: float = 60.0
    again: bool = False


@dataclass
class Found:
    """What came of it."""

    entries: list[dict[str, Any]]
    """As "comm" of `Context.tuned`."""
    excluded: dict[str, str]
    """Backends that did not begin, and why."""
    stopped: bool = False
    seconds: float = 0.0


def tune(
    request: BackendTuning,
    node: str | None,
    mpirun: str | None,
    progress: TuneProgress | None = None,
) -> Found:
    """Measures; ``node``: simulated. Raises `PolypathError` with what a rank said last, and
    `InvalidArgument` for what has no virtual time."""
    in_virtual_time = node is not None and os.environ.get("POLYPATH_SIM_MODE") != "functional"
    others = [name for name in request.backends if name != "polypath"]
    if in_virtual_time and others:
        raise InvalidArgument(
            f"--backends {','.join(others)}: only polypath has virtual time; leave out --node"
        )
    result = Found([], {})
    begun = time.monotonic()
    for index, ranks in enumerate(request.ranks):
        spent = time.monotonic() - begun
        budget = max(request.budget_s - spent, 0.0) / (len(request.ranks) - index)
        for message in _lines(replace(request, budget_s=budget), ranks, node, mpirun, progress):
            if "excluded" in message:
                result.excluded[message["excluded"]] = message["why"]
            elif "op" in message:
                result.entries.append(message)
            elif "stopped" in message:
                result.stopped = result.stopped or message["stopped"]
    result.seconds = time.monotonic() - begun
    return result


def _lines(
    request: BackendTuning,
    ranks: int,
    node: str | None,
    mpirun: str | None,
    progress: TuneProgress | None,
) -> Iterator[dict[str, Any]]:
    """The messages of rank 0 of ``ranks`` ranks."""
    options = {
        "backends": ",".join(request.backends),
        "ops": ",".join(request.ops),
        "sizes": ",".join(map(str, request.sizes)),
        "turns": str(request.turns),
        "calls": str(request.calls),
        "budget": str(request.budget_s),
        "again": str(int(request.again)),
        "reports": "1",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    environment = dict(os.environ)
    # The first transfer must not be timed without its routes.
    environment.setdefault("POLYPATH_PREPARE", "wait")
    if node is not None:
        environment["POLYPATH_NODE"] = node
    if "mpi" in request.backends:
        launcher = find_launcher(mpirun)
        program = find_program("uniconn_tune_mpi")
        command = launcher.command(ranks, program, arguments)
        environments = [{**environment, **launcher.settings}]
    elif node is not None:
        command = [str(find_program("uniconn_tune")), *arguments, "--threads", str(ranks)]
        environments = [environment]
    else:
        command = [str(find_program("uniconn_tune")), *arguments]
        environments = None

    def answer(message: dict[str, Any]) -> str | None:
        if "progress" not in message:
            return None
        return "stop" if progress and progress(*message["progress"]) is False else "go on"

    if environments is None:
        return lines_of_launched(command, environment, ranks, answer)
    return lines_of_first(command, environments, answer)
