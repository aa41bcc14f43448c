"""The programs that are measured, the environments that are compared, and runs in alternation: the
baseline, then with every path, then the baseline ..."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._library import find_library
from ..benchmark import describe_machine
from ..children import ended_with_us
from ..context import Context
from ..context import settings as settings_table
from ..doctor import statistics
from ..errors import InvalidArgument, LibraryNotFound, PolypathError
from ..launch.environment import COPY_QUEUES, STATISTICS, assignments, settings_environment

STOCK = "stock"
DIRECT = "direct"
_SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "mpi_env.sh"
_WRONG = "bytes are wrong"  # of a line that says which


class ProgramNotFound(LibraryNotFound):
    """A program of the project, or an MPI to start it, is not there."""


def find_program(name: str) -> Path:
    """A program of lab/bench/mpi or examples/jacobi: of the build that the library lies in, or
    installed with it. Raises `ProgramNotFound` and `LibraryNotFound`."""
    beside = find_library().parent
    for folder in ("bin", "../libexec/polypath", "../../libexec/polypath"):
        program = beside / folder / name
        if program.is_file():
            return program.resolve()
    raise ProgramNotFound(f"{name} is not built: run `make mpi`")


class Launcher(NamedTuple):
    """Starts programs of MPI, one rank a GPU."""

    prefix: tuple[str, ...]
    """The command that starts ranks; their number is appended to it."""
    settings: dict[str, str]
    """Variables that it needs."""

    def command(self, ranks: int, program: Path, arguments: Sequence[str]) -> list[str]:
        return [*self.prefix, "-n", str(ranks), str(program), *arguments]


def find_launcher(mpirun: str | None) -> Launcher:
    """This mpirun, in the environment as it is; without one, that of `make mpi`, with all that its
    UCX needs for GPU memory, else the one of PATH. Raises `ProgramNotFound`."""
    if mpirun is not None:
        program = shutil.which(mpirun)
        if program is None:
            raise ProgramNotFound(f"--mpirun {mpirun}: there is no such program")
        return Launcher((program,), {})
    settings = {"POLYPATH_BUILD": str(find_library().parent)}
    if _SCRIPT.is_file():
        works = subprocess.run(
            [_SCRIPT, "true"], env={**os.environ, **settings}, capture_output=True, check=False
        )
        if works.returncode == 0:
            return Launcher((str(_SCRIPT), "mpirun"), settings)
    program = shutil.which("mpirun")
    if program is None:
        raise ProgramNotFound("there is no mpirun: run `make mpi`, or name one with --mpirun")
    return Launcher((program,), {})


class Ways(NamedTuple):
    """Environments for the same program."""

    name: str
    """Name of the baseline: "stock", without the shim; or "direct", under it, but by the direct
    route alone."""
    baseline: dict[str, str]
    polypath: dict[str, str]
    node: dict[str, Any]
    """"node" of the document of a benchmark."""
    machine: dict[str, Any]
    """"machine" of it."""
    settings: dict[str, str]
    """"settings" of it: of programs under the shim, those that are not at their default."""

    @property
    def simulated(self) -> bool:
        """On a simulated node: bytes and routes are real, times are not."""
        return bool(self.node["simulated"])


def ways(node: str | None, settings: Mapping[str, str]) -> Ways:
    """For this machine, or a simulated node. ``settings``: of programs under the shim, by name.
    With an emulated mesh the baseline is emulated too, and so is under the shim.

    Raises `InvalidArgument` for settings that are not allowed, `NoDevice`, and `LibraryNotFound`
    where the shim was not built."""
    before = dict(os.environ)
    with Context(node=node, emulate_mesh="off") as context:
        topology = context.topology()
        machine = describe_machine(context)
    mesh = settings.get("emulate_mesh", before.get("POLYPATH_EMULATE_MESH", "off"))
    if mesh != "off" and topology["simulated"]:
        raise InvalidArgument("--emulate-mesh needs GPUs: a simulated node runs no kernels")
    shim = assignments(before, node)
    environment = {**before, **shim, **settings_environment(settings)}
    # A first transfer that waits for its routes is not worth a benchmark's time in every run.
    environment.setdefault("POLYPATH_PREPARE", "wait")
    if mesh != "off":
        baseline = {**environment, "POLYPATH_ROUTES": DIRECT}
    else:
        # The program as it is, with the simulated driver where that is the only one.
        own = ("LD_PRELOAD", *COPY_QUEUES)
        baseline = {**before, **{name: shim[name] for name in shim if name not in own}}
    described = {
        **{key: topology[key] for key in ("name", "simulated", "fingerprint")},
        "emulated_mesh_gbps": None if mesh == "off" else float(mesh),
    }
    chosen = {row["name"]: row["value"] for row in settings_table() if row["origin"] != "default"}
    name = STOCK if mesh == "off" else DIRECT
    return Ways(name, baseline, environment, described, machine, chosen)


class ProgramFailed(PolypathError):
    """A program that was measured ended badly; the message is what it said."""


class Runs(NamedTuple):
    """What the program wrote, by run, and what the shim's statistics said of it."""

    baseline: list[dict[str, Any]]
    polypath: list[dict[str, Any]]
    processes: list[dict[str, Any]]
    """Statistics of all runs with every path (`doctor.statistics`)."""
    messages: list[str]
    """What the programs said of wrong bytes."""

    def extend(self, others: Runs) -> None:
        """Adds the runs of ``others``."""
        for own, new in zip(self, others, strict=True):
            own.extend(new)


#: Called before each run with its number from 0, and what is run.
Step = Callable[[int, str], None]


def run_count(pairs: int, timed: bool) -> int:
    """How many runs `alternate` makes."""
    return 2 * pairs + (1 if timed else 0)


def alternate(
    command: Sequence[str],
    baseline: Mapping[str, str],
    polypath: Mapping[str, str],
    pairs: int,
    timed: bool,
    step: Step,
) -> Runs:
    """Runs ``command``, a program that has the option --json, in these two environments in turn, so
    many times each. ``timed``: statistics, which take time themselves, are those of one more run at
    the end, whose results are not used. Raises `ProgramFailed` unless it ends with 0, or with 1 and
    results all the same: wrong bytes are a result."""
    runs = Runs([], [], [], [])
    for number in range(run_count(pairs, timed)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if number == 2 * pairs:
                step(number, "statistics")
                _run_with_statistics(command, polypath, folder, runs)
            elif number % 2 == 0:
                step(number, "baseline")
                runs.baseline.append(_run(command, baseline, folder, runs.messages))
            else:
                step(number, "polypath")
                runs.polypath.append(
                    _run(command, polypath, folder, runs.messages)
                    if timed
                    else _run_with_statistics(command, polypath, folder, runs)
                )
    return runs


def _run_with_statistics(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, runs: Runs
) -> dict[str, Any]:
    collected = folder / "statistics"
    collected.mkdir()
    environment = {**environment, STATISTICS: str(collected / statistics.PATTERN)}
    results = _run(command, environment, folder, runs.messages)
    runs.processes.extend(statistics.read(collected))
    return results


def _run(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, messages: list[str]
) -> dict[str, Any]:
    results = folder / "results.json"
    done = subprocess.run(
        [*command, "--json", str(results)],
        env=dict(environment),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        preexec_fn=ended_with_us(signal.SIGTERM),
    )
    if done.returncode in (0, 1) and results.is_file():
        messages += (line for line in done.stderr.splitlines() if _WRONG in line)
        return json.loads(results.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    reason = next((line for line in done.stderr.splitlines() if line.strip(" -=")), "no message")
    raise ProgramFailed(f"{' '.join(command)} ended with {done.returncode}: {reason.strip()}")
