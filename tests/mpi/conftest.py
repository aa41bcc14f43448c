"""Runs the programs of this folder under mpirun, on a simulated node or on this machine's GPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("POLYPATH_BUILD", ROOT / "build" / "release"))

# A name of `polypath nodes`, or "real": this machine's GPUs.
NODE = os.environ.get("POLYPATH_TEST_NODE", "narval")


@dataclass
class Rank:
    """What one rank reported (mpi_traffic --report)."""

    report: dict

    @property
    def gpu(self) -> str:
        return f"gpu{self.report['gpu']}"

    def received(self, least: int = 0, sender: int | None = None) -> Counter:
        """Bytes and messages received in messages of at least `least` bytes."""
        counts: Counter = Counter()
        for entry in self.report["received"]:
            if entry["bytes"] >= least and sender in (None, entry["from"]):
                counts["bytes"] += entry["bytes"] * entry["count"]
                counts["messages"] += entry["count"]
        return counts

    def moved(self, source: str, destination: str) -> Counter:
        """Bytes and copies of this process over links; "*" stands for any memory, "host" for any
        host memory."""
        counts: Counter = Counter()
        for link, moved in self.report["links"].items():
            ends = link.split(">")
            if all(_fits(*pair) for pair in zip(ends, (source, destination), strict=True)):
                counts.update(moved)
        return counts


def _fits(memory: str, wanted: str) -> bool:
    return wanted in ("*", memory) or (wanted == "host" and memory.startswith("host"))


@dataclass
class Run:
    """A finished mpirun."""

    returncode: int
    output: str
    ranks: list[Rank]

    @property
    def simulated(self) -> bool:
        return all(rank.report["simulated"] for rank in self.ranks)


Traffic = Callable[..., Run]


@pytest.fixture
def traffic(tmp_path) -> Traffic:
    """traffic(PATTERN, ranks, ARGUMENTS..., SETTING=value...): runs mpi_traffic and returns what it
    reported. With `fails=True` it must fail, otherwise it must not."""

    def run(pattern: str, ranks: int, *arguments: object, fails: bool = False, **settings: str):
        reports = tmp_path / "reports"
        reports.mkdir()
        command = [
            *(ROOT / "scripts" / "mpi_env.sh", "mpirun", "-n", ranks),
            *(BUILD / "bin" / "mpi_traffic", pattern, *arguments, "--report", reports),
        ]
        returncode, output = _run([str(part) for part in command], _environment(settings))
        assert (returncode != 0) == fails, output
        files = sorted(reports.glob("rank.*.json"))
        assert fails or len(files) == ranks
        return Run(returncode, output, [Rank(json.loads(file.read_text())) for file in files])

    return run


def _environment(settings: dict[str, str]) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("POLYPATH_", "UCX_", "OMPI_", "PRTE_"))
        or name in ("POLYPATH_MPI_PREFIX", "POLYPATH_UCX_PREFIX")
    }
    node = {} if NODE == "real" else {"POLYPATH_NODE": NODE}
    return {**inherited, **node, "POLYPATH_BUILD": str(BUILD), **settings}


def _run(command: list[str], environment: dict[str, str], seconds: float = 240):
    """Exit code and output. What takes longer is ended, with all its processes."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpirun ends its ranks
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        pytest.fail(f"{' '.join(command)} did not end in {seconds} seconds")
    return process.returncode, output
