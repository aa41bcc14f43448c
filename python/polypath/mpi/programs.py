"""The programs that are measured, and the MPI that starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .._library import find_library
from ..errors import LibraryNotFound

_SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "mpi_env.sh"


class ProgramNotFound(LibraryNotFound):
    """A program of the project, or an MPI to start it, is not there."""


def find_program(name: str) -> Path:
    """A program of bench/mpi or examples/jacobi: of the build that the library lies in, or
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
    """The command that starts so many ranks as the number that is put behind it."""
    settings: dict[str, str]
    """Variables that it needs."""

    def command(self, ranks: int, program: Path, arguments: Sequence[str]) -> list[str]:
        return [*self.prefix, "-n", str(ranks), str(program), *arguments]


def find_launcher(mpirun: str | None) -> Launcher:
    """This mpirun, in the environment as it is; without one, that of `make mpi`, with all that its
    UCX needs for GPU memory, else the one of PATH. Raises `ProgramNotFound`."""
    if mpirun is not None:
        found = shutil.which(mpirun)
        if found is None:
            raise ProgramNotFound(f"--mpirun {mpirun}: there is no such program")
        return Launcher((found,), {})
    settings = {"POLYPATH_BUILD": str(find_library().parent)}
    if _SCRIPT.is_file():
        works = subprocess.run(
            [_SCRIPT, "true"], env={**os.environ, **settings}, capture_output=True, check=False
        )
        if works.returncode == 0:
            return Launcher((str(_SCRIPT), "mpirun"), settings)
    found = shutil.which("mpirun")
    if found is None:
        raise ProgramNotFound("there is no mpirun: run `make mpi`, or name one with --mpirun")
    return Launcher((found,), {})
