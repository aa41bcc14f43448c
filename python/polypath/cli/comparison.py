"""What `polypath bench mpi` and `polypath bench jacobi` share: programs of MPI with and without the
shim."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from ..errors import InvalidArgument, PolypathError
from ..mpi.programs import find_launcher, find_program
from ..mpi.runs import Runs, Step, alternate, run_count
from ..mpi.ways import DIRECT, ways
from . import options


class Comparison:
    """One program in two ways, as the options say."""

    def __init__(
        self,
        program: str,
        ranks: int,
        pairs: int | None,
        routes: str | None,
        emulate_mesh: str | None,
        setting: options.Settings,
        mpirun: str | None,
        node: str | None,
        plot: Path | None,
    ) -> None:
        """Raises `InvalidArgument`, `NoDevice`, and `ProgramNotFound`, before anything is run."""
        self.name = program
        self.ranks = ranks
        settings: dict[str, str] = dict(setting or [])
        for name, value in (("routes", routes), ("emulate_mesh", emulate_mesh)):
            if value is not None:
                settings[name] = value
        self._program = find_program(program)
        self._launcher = find_launcher(mpirun)
        self.ways = ways(node, settings)
        self.simulated = self.ways.simulated
        self.pairs = pairs or (1 if self.simulated else 3)
        if plot is not None and self.simulated:
            raise InvalidArgument("--plot: times on a simulated node mean nothing")

    def run(self, arguments: Sequence[str], step: Step) -> Runs:
        """All runs with these arguments; ``step`` gets numbers below `run_count`. Raises
        `ProgramFailed`."""
        return alternate(
            self._launcher.command(self.ranks, self._program, arguments),
            {**self.ways.baseline, **self._launcher.settings},
            {**self.ways.polypath, **self._launcher.settings},
            self.pairs,
            not self.simulated,
            step,
        )

    @property
    def run_count(self) -> int:
        """Of one `run`."""
        return run_count(self.pairs, not self.simulated)

    def heading(self, what: str) -> list[str]:
        """What runs where, and what it is compared with."""
        node = self.ways.node
        title = f"{self.name}, {self.ranks} ranks, {what}, on {node['name']}"
        if self.simulated:
            return [
                f"{title} (simulated, functional mode)",
                "times mean nothing here and are left out; bytes and routes are real",
            ]
        if self.ways.name == DIRECT:
            return [
                f"{title}, emulated mesh of {node['emulated_mesh_gbps']:g} GB/s a link",
                f"{DIRECT}: under polypath, by direct routes alone",
            ]
        return [title, f"{self.ways.name}: without polypath"]


def statistics_lines(statistics: dict[str, Any]) -> list[str]:
    """How the copies of all runs under the shim went, from `mpi.benchmark.summary`."""
    lines = [
        f"with polypath: {statistics['calls']} copies of {statistics['processes']} processes, "
        f"{statistics['asked']} large enough, {statistics['split']} split"
    ]
    if statistics["routes"]:
        lines.append(f"bytes of those: {shares_text(statistics['routes'])}")
    for kind, what in (("native_by_reason", "not split"), ("left_out_by_reason", "left out")):
        counts = [f"{count} x {reason}" for reason, count in statistics[kind].items() if count]
        if counts:
            lines.append(f"{what}: {', '.join(counts)}")
    return lines


def shares_text(routes: Sequence[dict[str, Any]]) -> str:
    """ "direct 42%, via gpu2 58%"; of several pairs of memories by kind, "direct 42%, via gpu
    58%"."""
    several = len({(one["src"], one["dst"]) for one in routes}) > 1
    shares: dict[str, float] = {}
    for one in routes:
        name = one["route"].rstrip("0123456789") if several else one["route"]
        shares[name] = shares.get(name, 0.0) + one["share"]
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def require_sound(document: dict[str, Any]) -> None:
    """Leaves with exit code 1 when a row is not verified. Raises `PolypathError` when the shim
    caught nothing: then the program was compared with itself."""
    if document["statistics"]["calls"] == 0:
        raise PolypathError(
            "no copy was caught, so the program was compared with itself: "
            "`polypath doctor` says what is wrong"
        )
    if not all(row["verified"] for row in document["rows"]):
        raise typer.Exit(1)


def yes(value: bool) -> str:
    """A cell that says whether all is well."""
    return "yes" if value else "[bold red]NO[/bold red]"
