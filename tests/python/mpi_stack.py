"""The real MPI stack and the programs on it, for tests: on the simulated node narval."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from polypath.errors import LibraryNotFound
from polypath.mpi.runs import find_launcher, find_program

PROGRAMS = ("mpi_bandwidth", "mpi_bibandwidth", "mpi_latency", "ucx_put_bandwidth", "jacobi")


@functools.cache
def why_not() -> str | None:
    """Why programs of MPI cannot be run here; None when they can."""
    try:
        for name in PROGRAMS:
            find_program(name)
        find_launcher(None)
    except LibraryNotFound as error:
        return str(error)
    return None


needs_mpi = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def run(
    name: str, ranks: int, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program on the simulated node, without polypath."""
    launcher = find_launcher(None)
    return subprocess.run(
        launcher.command(ranks, find_program(name), arguments),
        env={**os.environ, **launcher.settings, "POLYPATH_NODE": "narval", **settings},
        capture_output=True,
        text=True,
        timeout=600,
    )


def run_alone(name: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """The same as one process, without MPI's launcher."""
    launcher = find_launcher(None)
    return subprocess.run(
        [*launcher.prefix[:-1], find_program(name), *arguments],
        env={**os.environ, **launcher.settings, "POLYPATH_NODE": "narval", **settings},
        capture_output=True,
        text=True,
        timeout=600,
    )


def wrong_byte_library(folder: Path) -> Path:
    """A library to preload: copies between devices leave one byte of theirs wrong."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = folder / "wrong_byte.so"
    source = Path(__file__).with_name("wrong_byte.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
