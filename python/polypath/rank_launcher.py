"""Programs that run as ranks, a process each, and say on rank 0's output how they fare."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from .children import ended_with_us
from .errors import PolypathError


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 that the system gives to no other process until the end. A program that
    sets SO_REUSEADDR, as the exchange of ranks does, can listen there."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield held.getsockname()[1]


def lines_of_launched(
    command: Sequence[str],
    environment: Mapping[str, str],
    ranks: int,
    answer: Callable[[dict[str, Any]], str | None] | None = None,
) -> Generator[dict[str, Any], None, None]:
    """As `lines_of_first`, on ``ranks`` ranks of this machine, with the variables that torchrun
    would set."""
    with reserved_port() as port:
        launched = {
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port - 1),  # the exchange has the next one
        }
        environments = [
            {**environment, **launched, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            for rank in range(ranks)
        ]
        yield from lines_of_first(command, environments, answer)


def lines_of_first(
    command: Sequence[str],
    environments: Sequence[Mapping[str, str]],
    answer: Callable[[dict[str, Any]], str | None] | None = None,
) -> Generator[dict[str, Any], None, None]:
    """Runs the command once in each environment; yields the lines of JSON that the first prints,
    and passes over its other lines. ``answer``: what it is told to each, as a line, if any. Raises
    `PolypathError` with what a rank said last, and ends them all when it is left, or when this
    process ends or is killed."""
    processes = [
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE if index == 0 and answer is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE if index == 0 else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # A launcher ends what it has started; ranks need not be asked.
            preexec_fn=ended_with_us(signal.SIGTERM if len(environments) == 1 else signal.SIGKILL),
        )
        for index, environment in enumerate(environments)
    ]
    try:
        first = processes[0]
        assert first.stdout is not None
        for line in first.stdout:
            if not line.startswith("{"):
                continue
            message = json.loads(line)
            reply = None if answer is None else answer(message)
            if reply is not None:
                assert first.stdin is not None
                first.stdin.write(reply + "\n")
                first.stdin.flush()
            yield message
        for process in processes:
            errors = process.communicate()[1]
            if process.returncode != 0:
                lines = errors.strip().splitlines() or [f"ended with {process.returncode}"]
                raise PolypathError(lines[-1])
    finally:
        for process in processes:
            process.kill()
            process.wait()
