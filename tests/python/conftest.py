"""What tests of the command line and of simulated nodes share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

#: What is tested, and with what; all other settings of the caller are not the tests'.
_KEPT = ("POLYPATH_LIBRARY", "POLYPATH_MPI_PREFIX", "POLYPATH_UCX_PREFIX")


@pytest.fixture
def polypath(tmp_path) -> Run:
    """Runs `python -m polypath ARGUMENTS...` in an empty folder, with no setting of the caller's
    environment but those given as keywords. A process of its own, because the simulated driver is
    one node for the whole process."""

    return lambda *arguments, **settings: _run(tmp_path, "-m", "polypath", *arguments, **settings)


@pytest.fixture
def polypath_program(tmp_path) -> Run:
    """Runs the program that is the first argument, as `polypath` does."""
    return lambda program, *arguments: _run(tmp_path, "-c", program, *arguments)


@pytest.fixture
def interruptible():
    """A shell's job in the background ignores Ctrl-C, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("POLYPATH_") or name in _KEPT
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={
            **inherited,
            "COLUMNS": "160",
            "XDG_CACHE_HOME": str(folder / "cache"),
            **settings,
        },
        capture_output=True,
        text=True,
        timeout=1200,
    )
