"""Runs of one program in alternation: the baseline, then with every path, then the baseline ..."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..doctor import statistics
from ..errors import PolypathError
from ..launch.settings import STATISTICS

_WRONG = "bytes are wrong"  # of a line that says which


class ProgramFailed(PolypathError):
    """A program that was measured ended badly; the message is what it said."""


class Runs(NamedTuple):
    """What the program wrote, by run, and what the shim's statistics said of it."""

    baseline: list[dict[str, Any]]
    polypath: list[dict[str, Any]]
    processes: list[dict[str, Any]]
    """Of all runs with every path (`doctor.statistics`)."""
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
    )
    if done.returncode in (0, 1) and results.is_file():
        messages += (line for line in done.stderr.splitlines() if _WRONG in line)
        return json.loads(results.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    said = next((line for line in done.stderr.splitlines() if line.strip(" -=")), "no message")
    raise ProgramFailed(f"{' '.join(command)} ended with {done.returncode}: {said.strip()}")
