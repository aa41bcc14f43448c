"""Child processes of the trials: Python programs that talk by one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import statistics

_TIMEOUT_S = 120
_PACKAGE = Path(__file__).resolve().parents[1]


class Ended(NamedTuple):
    pid: int
    code: int
    """Exit code; minus the signal that ended it."""
    stdout: str
    stderr: str

    def said(self) -> dict[str, Any]:
        """The last line of its output; {"error"} when that is no JSON, and how it ended."""
        lines = self.stdout.strip().splitlines()
        if lines:
            try:
                value: dict[str, Any] = json.loads(lines[-1])
                return value
            except ValueError:
                pass
        how = f"was killed by signal {-self.code}" if self.code < 0 else f"ended with {self.code}"
        errors = self.stderr.strip().splitlines()
        return {"error": f"the trial program {how}" + (f": {errors[-1]}" if errors else "")}


class Child:
    """A running Python with these arguments."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line of its output; empty at its end."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def end(self) -> Ended:
        """Closes its stdin and waits for its end; one that does not end is killed."""
        try:
            stdout, stderr = self._process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            stdout, stderr = self._process.communicate()
        return Ended(self._process.pid, self._process.returncode, stdout, stderr)


def with_statistics(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """For the trial programs: they find this package, write their statistics into the folder, and
    their first copies find all routes ready."""
    path = [str(_PACKAGE.parent), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        **environment,
        "POLYPATH_STATS": str(Path(folder) / statistics.PATTERN),
        "POLYPATH_PREPARE": "wait",
        "PYTHONPATH": os.pathsep.join(place for place in path if place),
    }
