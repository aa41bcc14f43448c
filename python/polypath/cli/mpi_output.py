"""What `polypath bench mpi` and `polypath bench jacobi` have in common: options and output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ..errors import InvalidArgument, PolypathError
from ..mpi.ways import DIRECT, Ways
from .options import SettingValue


class Comparison:
    """The options that say what is compared with what."""

    def __init__(
        self,
        routes: str | None,
        emulate_mesh: str | None,
        setting: list[SettingValue] | None,
    ) -> None:
        self.settings: dict[str, str] = dict(setting or [])
        for name, value in (("routes", routes), ("emulate_mesh", emulate_mesh)):
            if value is not None:
                self.settings[name] = value

    def check(self, way: Ways, plot: Path | None) -> None:
        """Raises `InvalidArgument` for what makes no sense here."""
        if plot is not None and way.simulated:
            raise InvalidArgument("--plot: times on a simulated node mean nothing")


def heading(what: str, way: Ways) -> list[str]:
    """What runs where, and what it is compared with."""
    name, mesh = way.node["name"], way.node["emulated_mesh_gbps"]
    if way.simulated:
        return [
            f"{what}, on {name} (simulated, functional mode)",
            "times mean nothing here and are left out; bytes and routes are real",
        ]
    emulated = "" if mesh is None else f", emulated mesh of {mesh:g} GB/s a link"
    against = "under polypath by the direct route alone" if way.name == DIRECT else "as it is"
    return [f"{what}, on {name}{emulated}", f"{way.name}: {against}; in alternation"]


def statistics_lines(statistics: dict[str, Any]) -> list[str]:
    """How the copies of the runs under the shim went."""
    lines = [
        f"with polypath: {statistics['calls']} copies of {statistics['processes']} processes, "
        f"{statistics['asked']} large enough, {statistics['split']} split"
    ]
    if statistics["routes"]:
        shares = ", ".join(f"{one['route']} {one['share']:.0%}" for one in statistics["routes"])
        lines.append(f"bytes of those: {shares}")
    for kind, text in (
        ("native_by_reason", "not split"),
        ("left_out_by_reason", "routes left out"),
    ):
        counts = {reason: count for reason, count in statistics[kind].items() if count}
        if counts:
            reasons = ", ".join(f"{count} x {reason}" for reason, count in counts.items())
            lines.append(f"{text}: {reasons}")
    return lines


def checked(document: dict[str, Any]) -> None:
    """Leaves with exit code 1 when a row is not verified. Raises `PolypathError` when the shim
    caught nothing: then nothing was compared."""
    if document["statistics"]["calls"] == 0:
        raise PolypathError(
            "no copy of the programs was caught, so both were the same: "
            "`polypath doctor` says what is wrong"
        )
    if not all(row["verified"] for row in document["rows"]):
        raise typer.Exit(1)
