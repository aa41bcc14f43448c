"""Runs mpi_traffic under mpirun, on a simulated node or on this machine's GPUs, with and without
the shim."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("POLYPATH_BUILD", ROOT / "build" / "release"))

# A name of `polypath nodes`, a node file, or "real": this machine's GPUs.
NODE = os.environ.get("POLYPATH_TEST_NODE", str(Path(__file__).with_name("quick_mesh.toml")))

# On GPUs, messages have to be larger to be split, and may be.
SCALE = 16 if NODE == "real" else 1

# From this size on no MPI call sends GPU memory by way of the host.
LARGE = 64 << 10


def mebibytes(count: int) -> str:
    """A size for mpi_traffic that counts as `count` MiB on the node of these tests."""
    return f"{count * SCALE}M"


@dataclass
class Rank:
    """What one rank reported of one pattern (mpi_traffic --report), and the shim of it, for all
    patterns (POLYPATH_STATS)."""

    report: dict
    statistics: dict = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.report["rank"]

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


def _fits(memory: str, requested: str) -> bool:
    return requested in ("*", memory) or (requested == "host" and memory.startswith("host"))


@dataclass
class Run:
    """A finished mpirun, or a pattern of it."""

    returncode: int
    output: str
    ranks: list[Rank]
    """The ranks, over all its patterns."""
    patterns: list[Run] = field(default_factory=list)
    """Each by itself, in the order in which they ran."""

    @property
    def simulated(self) -> bool:
        return all(rank.report["simulated"] for rank in self.ranks)


Traffic = Callable[..., Run]


@pytest.fixture
def traffic(tmp_path) -> Traffic:
    """traffic(PATTERN, ranks, ARGUMENTS..., SETTING=value...): runs mpi_traffic and returns what it
    reported. "then" among the arguments begins another pattern. `shim`: under the shim, all
    processes or the last rank alone; `run_by`: words before mpirun; `fails`: it must fail, which it
    otherwise must not."""

    def run(
        pattern: str,
        ranks: int,
        *arguments: object,
        shim: bool | Literal["last"] = False,
        run_by: Sequence[object] = (),
        fails: bool = False,
        **settings: str,
    ) -> Run:
        reports = Path(tempfile.mkdtemp(dir=tmp_path))
        program = [BUILD / "bin" / "mpi_traffic", "--report", reports, pattern, *arguments]
        under_shim = _shim_settings(tmp_path, reports) if shim else {}
        if shim == "last":
            words = [f"{name}={value}" for name, value in under_shim.items()]
            mpirun = ["mpirun", "-n", ranks - 1, *program, ":", "-n", 1, "env", *words, *program]
            under_shim = {}
        else:
            mpirun = ["mpirun", "-n", ranks, *program]
        command = [ROOT / "scripts" / "mpi_env.sh", *run_by, *mpirun]
        settings = {**under_shim, **settings}
        returncode, output = _run([str(part) for part in command], environment(settings))
        assert (returncode != 0) == fails, output
        finished = [_read_rank(file) for file in sorted(reports.glob("rank.*.json"))]
        assert fails or len(finished) == ranks
        patterns = [
            Run(returncode, output, list(of_ranks)) for of_ranks in zip(*finished, strict=True)
        ]
        return Run(returncode, output, [_together(parts) for parts in finished], patterns)

    return run


def _shim_settings(folder: Path, statistics: Path) -> dict[str, str]:
    """Every process under the shim, which prepares its routes before it uses them."""
    return {
        "LD_PRELOAD": str(BUILD / "libpolypath_preload.so"),
        "POLYPATH_STATS": str(statistics / "statistics.json"),
        "POLYPATH_REGISTRY": str(folder / "registry"),
        "POLYPATH_PREPARE": "wait",
    }


def _read_rank(file: Path) -> list[Rank]:
    """One for each pattern."""
    report = json.loads(file.read_text())
    statistics = file.with_name(f"statistics.{report['pid']}.json")
    counted = json.loads(statistics.read_text()) if statistics.exists() else {}
    parts = report.pop("parts")
    return [Rank({**report, **part}, counted) for part in parts]


def _together(parts: list[Rank]) -> Rank:
    links: dict[str, Counter] = {}
    counts: Counter = Counter()
    for part in parts:
        for link, moved in part.report["links"].items():
            links.setdefault(link, Counter()).update(moved)
        counts.update({name: part.report[name] for name in ("pageable_copies", "bounced_copies")})
    received = [entry for part in parts for entry in part.report["received"]]
    report = {**parts[0].report, **counts, "links": links, "received": received}
    return Rank(report, parts[0].statistics)


def environment(settings: dict[str, str]) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("POLYPATH_", "UCX_", "OMPI_", "PRTE_"))
        or name in ("POLYPATH_MPI_PREFIX", "POLYPATH_UCX_PREFIX")
    }
    node = {} if NODE == "real" else {"POLYPATH_NODE": NODE}
    return {**inherited, **node, "POLYPATH_BUILD": str(BUILD), **settings}


def _run(command: list[str], environment: dict[str, str], seconds: float = 900):
    """Exit code and output. What takes longer is ended, with all its processes.

    A process group, and no session: Linux shares the cores among sessions, each of which then has
    its own run queue (sched_autogroup_enabled), and Linux 6.18 up to 6.18.44 may run one session
    alone, for a minute and more, while its threads wake each other often. Two tests in sessions of
    their own, with some ranks running and the others kept from it, then wait for each other."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
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
