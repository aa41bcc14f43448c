"""`polypath tune`: the best choices for this node, found by measurement."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from ..context import Context, TuneProgress
from ..errors import InvalidArgument
from ..sizes import format_size
from . import options
from .output import console, plain_table, print_lines, ratio, write_json


def tune(
    exhaustive: Annotated[
        bool,
        typer.Option("--exhaustive", help="The whole grid, however long, not a local search."),
    ] = False,
    budget: options.Budget = 60.0,
    src: Annotated[str | None, typer.Option("--src", help="Tune one pair: its source.")] = None,
    dst: Annotated[str | None, typer.Option("--dst", help="... and its destination.")] = None,
    sizes: options.Sizes = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also what is tuned already, but for your edits.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Only show what was tuned.")] = False,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", metavar="FILE", help="Profile to use instead of the node's own."),
    ] = None,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Find the best routes, shares, chunks, slots and executor for each class of pairs and size.

    The profile gets each as soon as it is found; stopped by Ctrl-C, it goes on from there next
    time. Default: all classes of pairs, 4M to 512M, one way, both ways and a window of 16.
    """
    if (src is None) != (dst is None):
        raise InvalidArgument("--src and --dst go together")
    with Context(node=node, profile=None if profile is None else str(profile)) as context:
        if show:
            found = context.tuned()
        else:
            with tune_progress() as progress:
                found = context.tune(
                    None if src is None or dst is None else [(src, dst)],
                    sizes,
                    budget,
                    exhaustive,
                    again,
                    progress,
                )
        name = context.topology()["name"]
    out = console(json)
    for pair, table in tuned_tables(found["choices"]):
        print_lines(out, pair)
        out.print(table)
    if found["choices"]:
        print_lines(out, "GB/s (1e9 bytes/s) of all transfers together; gpu 28%/9: 28% in 9 chunks")
    print_lines(out, *summary(found, name))
    write_json(found, json)
    if plot is not None:
        from ..tune_plot import plot_tuned

        plot_tuned(found["choices"], name, plot)
        print_lines(out, f"drawn in {plot}")


@contextmanager
def tune_progress() -> Iterator[TuneProgress]:
    """Progress with the time left, on stderr. Ctrl-C ends the search at the next measurement, and
    a second one the program."""
    interrupted = False

    def interrupt(_signal: int, _frame: Any) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True

    before = signal.signal(signal.SIGINT, interrupt)
    errors = Console(stderr=True, highlight=False)
    try:
        if not errors.is_terminal:
            last = ""

            def line(done: int, total: int, left: float, what: str) -> bool:
                nonlocal last
                if what != last and done < total:
                    print(
                        f"tune: {done + 1}/{total} {what}, {left:.0f} s left",
                        file=sys.stderr,
                        flush=True,
                    )
                last = what
                return not interrupted

            yield line
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]:.0f} s left"),
        )
        with Progress(*columns, console=errors, transient=True) as bars:
            task = bars.add_task("tune", total=None, left=0.0)

            def bar(done: int, total: int, left: float, what: str) -> bool:
                bars.update(
                    task, completed=done, total=total, left=left, description=f"tune: {what}"
                )
                return not interrupted

            yield bar
    finally:
        signal.signal(signal.SIGINT, before)


def tuned_tables(choices: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Table]]:
    """Each class of pairs with its table: a row a choice, by pattern, size and executor."""
    for pair in sorted({one["pair"] for one in choices}):
        yield pair, tuned_table([one for one in choices if one["pair"] == pair])


def tuned_table(choices: Sequence[dict[str, Any]]) -> Table:
    """The choices of one class of pairs."""
    figures = ("size", "native", "predicted", "measured", "speedup", "tried")
    table = plain_table("pattern", "size", "executor", "routes", *figures[1:], right=figures)
    table.columns[3].no_wrap = False
    last = ""
    for one in sorted(choices, key=lambda one: (one["pattern"], one["bytes"], one["executor"])):
        table.add_row(
            "" if one["pattern"] == last else one["pattern"],
            format_size(one["bytes"]),
            one["executor"],
            escape(choice_text(one)) + (" [bold]edited[/bold]" if one["edited"] else ""),
            f"{one['native_gbps']:.1f}",
            f"{one['predicted_gbps']:.1f}",
            f"{one['measured_gbps']:.1f}",
            ratio(one["measured_gbps"], one["native_gbps"]),
            str(one["tried"]),
        )
        last = one["pattern"]
    return table


def choice_text(choice: dict[str, Any]) -> str:
    """ "direct 32%, gpu 31%/8, gpu 31%/8, host 6%/5; 4 slots", or "native"."""
    routes = choice["routes"]
    if len(routes) == 1 and routes[0]["route"] == "direct":
        return "native"
    text = ", ".join(
        f"{route['route']} {route['share']:.0%}"
        + (f"/{route['chunks']}" if route["route"] != "direct" else "")
        for route in routes
    )
    return text + (f"; {choice['slots']} slots" if choice["slots"] else "")


def summary(found: dict[str, Any], node: str) -> list[str]:
    """Where the choices are kept, and whether the search came to its end."""
    lines = []
    if not found["choices"]:
        lines.append(f"nothing is tuned for {node}")
    if "seconds" in found:
        state = "stopped; the same command goes on from here" if found["stopped"] else "done"
        lines.append(f"{len(found['choices'])} choices, {found['seconds']:.0f} s, {state}")
    lines.append(
        f"profile: {found['profile']}"
        if found["profile"]
        else "kept in no profile: name one with --profile FILE"
    )
    return lines
