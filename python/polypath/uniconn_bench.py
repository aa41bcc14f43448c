"""What `polypath bench uniconn` runs: uniconn_bench, on ranks with a GPU each. On GPUs each is a
process, as torchrun, or mpirun for MPI, would start it; on a simulated node a thread."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .context import Context
from .errors import InvalidArgument, PolypathError
from .mpi.runs import find_launcher, find_program
from .rank_launcher import lines_of_first, lines_of_launched

BACKENDS = ("polypath", "mpi", "gpuccl", "gpushmem", "any")
TESTS = ("latency", "bandwidth", "jacobi", "cg")


@dataclass(frozen=True)
class UniconnBench:
    """Rows of one backend: one a size, or one a matrix."""

    test: str
    backend: str
    ranks: int
    sizes: Sequence[int] = ()
    window: int = 1
    pairs: int = 9
    calls: int = 100
    """Maximum number of messages in a row."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Options of uniconn_bench, without dashes."""

    def arguments(self) -> list[str]:
        options = {
            "test": self.test,
            "backend": self.backend,
            "window": str(self.window),
            "pairs": str(self.pairs),
            "calls": str(self.calls),
            **({"sizes": ",".join(map(str, self.sizes))} if self.sizes else {}),
            **self.more,
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]


def rows(
    request: UniconnBench, node: str | None, mpirun: str | None
) -> Generator[dict[str, Any], None, None]:
    """The rows, as they come. Raises `PolypathError` with what a rank said last, `InvalidArgument`
    for MPI's ranks on a simulated node, whose virtual time belongs to one process."""
    environment = dict(os.environ)
    # The first transfer must not be timed without its routes.
    environment.setdefault("POLYPATH_PREPARE", "wait")
    # NVSHMEM's own is 1 GiB, too little for two halves of a large grid.
    environment.setdefault("NVSHMEM_SYMMETRIC_SIZE", "4G")
    if node is not None:
        environment["POLYPATH_NODE"] = node
        if request.backend == "mpi":
            raise InvalidArgument(
                "--backends mpi: ranks of MPI have no virtual time; leave out --node"
            )
        program = find_program("uniconn_bench")
        threads = ["--threads", str(request.ranks)]
        return lines_of_first([str(program), *request.arguments(), *threads], [environment])
    if request.backend == "mpi":
        launcher = find_launcher(mpirun)
        program = find_program("uniconn_bench_mpi")
        command = launcher.command(request.ranks, program, request.arguments())
        return lines_of_first(command, [{**environment, **launcher.settings}])
    program = find_program("uniconn_bench")
    return lines_of_launched([str(program), *request.arguments()], environment, request.ranks)


def backends_here(context: Context) -> list[str]:
    """Backends whose libraries this machine has, as far as can be told before they start."""
    import ctypes

    backends = ["polypath"]
    for name, library in (("gpuccl", "libnccl.so.2"), ("gpushmem", "libnvshmem_host.so.3")):
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        backends.append(name)
    if not context.topology()["simulated"]:
        try:
            find_program("uniconn_bench_mpi")
            find_launcher(None)
            backends.append("mpi")
        except PolypathError:
            pass
    return backends
