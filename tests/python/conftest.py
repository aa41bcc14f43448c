"""What tests of the command line and of simulated nodes share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def polypath(tmp_path) -> Run:
    """Runs `python -m polypath ARGUMENTS...` in an empty folder, with no setting of the caller's
    environment but those given as keywords. A process of its own, because the simulated driver is
    one node for the whole process."""

    def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("POLYPATH_") or name == "POLYPATH_LIBRARY"
        }
        return subprocess.run(
            [sys.executable, "-m", "polypath", *arguments],
            cwd=tmp_path,
            env={
                **inherited,
                "COLUMNS": "160",
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                **settings,
            },
            capture_output=True,
            text=True,
            timeout=240,
        )

    return run
