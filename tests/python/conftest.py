"""What tests of the command line and of simulated nodes share."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import doc_examples
import pytest
from fork_server import ForkServer

Run = Callable[..., subprocess.CompletedProcess[str]]

#: What is tested, and with what; all other settings of the caller are not the tests'.
_KEPT = ("POLYPATH_LIBRARY", "POLYPATH_MPI_PREFIX", "POLYPATH_UCX_PREFIX")


#: Settings that count when a process begins: these need a start of their own.
_READ_AT_START = ("LD_", "PYTHON", "MPL", "MALLOC_", "LC_", "LANG")


@pytest.fixture(scope="session")
def fork_server(cpu_clock) -> Iterator[ForkServer]:
    def count(seconds: float) -> None:
        cpu_clock.elsewhere += seconds

    server = ForkServer(count)
    yield server
    server.close()


@pytest.fixture
def start_python(fork_server) -> Run:
    """As `doc_examples.start_python`, by a fork where its start is not the subject."""
    return lambda *arguments: _start(fork_server, *arguments)


@pytest.fixture
def polypath(fork_server, tmp_path) -> Run:
    """Runs `python -m polypath ARGUMENTS...` in an empty folder, without settings from the
    environment but those given as keywords. A process of its own, because the simulated driver is
    one node for the whole process; the modules are imported once a session (fork_server.py)."""
    return lambda *arguments, **settings: _run(
        fork_server, tmp_path, "-m", "polypath", *arguments, **settings
    )


@pytest.fixture
def started_polypath(tmp_path) -> Run:
    """As `polypath`, by a new Python: where its start is the subject."""
    return lambda *arguments, **settings: _run(
        None, tmp_path, "-m", "polypath", *arguments, **settings
    )


@pytest.fixture
def polypath_program(fork_server, tmp_path) -> Run:
    """Runs the program that is the first argument, as `polypath` does."""
    return lambda program, *arguments: _run(fork_server, tmp_path, "-c", program, *arguments)


@pytest.fixture
def started_program(tmp_path) -> Run:
    """As `polypath_program`, by a new Python."""
    return lambda program, *arguments: _run(None, tmp_path, "-c", program, *arguments)


@pytest.fixture
def interruptible():
    """A shell's job in the background ignores Ctrl-C, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _run(
    server: ForkServer | None, folder: Path, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("POLYPATH_") or name in _KEPT
    }
    environment = {
        **inherited,
        "COLUMNS": "160",
        "XDG_CACHE_HOME": str(folder / "cache"),
        # Its own: what other tests copy at the same time, on a node of the same name, is no concern
        # of it.
        "POLYPATH_REGISTRY": str(folder / "registry"),
        **settings,
    }
    reads_at_start = any(name.startswith(_READ_AT_START) for name in settings)
    return _start(None if reads_at_start else server, arguments, folder, environment)


def _start(
    server: ForkServer | None,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
) -> subprocess.CompletedProcess[str]:
    """By a fork of the server, unless there is none or it is in use."""
    if server is not None and server.lock.acquire(blocking=False):
        try:
            return server.run(arguments, folder, environment, timeout=1200)
        finally:
            server.lock.release()
    return doc_examples.start_python(arguments, folder, environment)
