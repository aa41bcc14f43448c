"""`polypath bench messaging`: what kernels send each other without the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from ..benchmark import document
from ..context import Context
from ..errors import InvalidArgument
from ..messaging_bench import GROUPS, lines
from ..sizes import figure
from . import options
from .arguments import Option
from .bench import command_line, finish
from .output import PlainTable, console, progress


def _what(text: str) -> str:
    names = (*GROUPS, "all")
    if text not in names:
        raise ValueError(f"'{text}' is not one of {', '.join(names)}")
    return text


def bench_messaging(
    *,
    what: Annotated[
        str,
        Option("--what", f"{', '.join(GROUPS)} or all.", metavar="NAME", read=_what),
    ] = "all",
    gpus: Annotated[
        int | None,
        options.count_option("--gpus", "1 or 2; default 2 where there are two.", 1, 2),
    ] = None,
    repetitions: Annotated[
        int | None, options.count_option("--repetitions", "Timed runs of a line; default 5.", 1)
    ] = None,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Measure queues, matching, active messages and memory of kernels, next to the limits of this
    machine in the same run.

    Every item is checked: that it came once, whole and in order. On a simulated node lines run with
    a few items, to see that they are right; their times mean nothing.
    """
    out = console(json)
    with Context(node=node) as context:
        topology = context.topology()
        count = gpus or min(2, len(topology["gpus"]))
        if count > len(topology["gpus"]):
            raise InvalidArgument(f"--gpus {count}: there is one GPU")
        simulated = topology["simulated"]
        rows: list[dict[str, Any]] = []
        try:
            with progress("messaging") as step:
                turns = repetitions or (1 if simulated else 5)
                results = lines(what, range(count), turns, quick=simulated, node=node)
                for row in results:
                    # A wrong item ends the program with an error.
                    rows.append({**row, "gpus": count, "verified": True})
                    step(len(rows), len(rows) + 1, row["line"])
        finally:
            if rows:
                _show(out, rows)
        result = document(context, f"messaging {what}", rows, command_line())
    finish(result, out, json, plot, _draw)


def _draw(result: dict[str, Any], file: Path) -> None:
    from ..plots import plot_messaging

    plot_messaging(result, file)


def _show(out: Console, rows: Sequence[dict[str, Any]]) -> None:
    table = PlainTable(
        "what",
        "line",
        "value",
        "unit",
        "paper",
        "limits",
        right=["value", "paper"],
        caption="paper: of 2017, other GPUs; +: of queues that do not know each other, added up",
    )
    for row in rows:
        if "skipped" in row:
            table.add_row(row["what"], row["line"], "-", "", "", row["skipped"])
            continue
        limits = ", ".join(f"{name} {figure(value)}" for name, value in _limits(row).items())
        table.add_row(
            row["what"],
            row["line"],
            figure(row["value"]) + ("+" if row.get("adds_up") else ""),
            row["unit"],
            figure(row["paper"]) if "paper" in row else "",
            limits,
        )
    out.print(table)


def _limits(row: dict[str, Any]) -> dict[str, float]:
    limits: dict[str, float] = row.get("limits", {})
    return {name: value for name, value in limits.items() if value > 0}
