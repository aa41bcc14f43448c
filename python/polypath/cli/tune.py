"""`polypath tune`: the best choices for this node, found by measurement."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape

from ..benchmark import clock_lines, where
from ..context import Context, TuneProgress
from ..errors import InvalidArgument
from ..sizes import figure, format_size
from . import options
from .arguments import Option
from .output import PlainTable, bars, console, print_lines, ratio, write_json

NOT_KEPT = "what is found is kept in no profile: name one with --profile FILE"


def tune(
    *,
    exhaustive: Annotated[
        bool, Option("--exhaustive", "The whole grid, however long, not a local search.")
    ] = False,
    budget: Annotated[
        float,
        Option(
            "--budget",
            "Time for a local search in all, such as 60s or 5m.",
            metavar="TIME",
            read=options.seconds,
        ),
    ] = 60.0,
    src: Annotated[str | None, options.text_option("--src", "Tune one pair: its source.")] = None,
    dst: Annotated[str | None, options.text_option("--dst", "... and its destination.")] = None,
    sizes: Annotated[
        list[int] | None,
        options.sizes_option("Such as 4M,16M:64M; a range doubles. Default 4M:512M."),
    ] = None,
    again: Annotated[
        bool, Option("--again", "Also what is tuned already, but for your edits.")
    ] = False,
    show: Annotated[bool, Option("--show", "Only show what was tuned.")] = False,
    profile: options.Profile = None,
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
    if not show:
        options.require_kept(profile)
    out = console(json)
    with Context(node=node, profile=None if profile is None else str(profile)) as context:
        if show:
            result = context.tuned()
        else:
            if not context.devices()["profile"]["file"]:
                print_lines(out, NOT_KEPT)
            print_lines(out, *clock_lines(context.topology()))
            with tune_progress() as progress:
                result = context.tune(
                    None if src is None or dst is None else [(src, dst)],
                    sizes,
                    budget,
                    exhaustive,
                    again,
                    progress,
                )
        topology = context.topology()
    name = topology["name"]
    title = where(topology)
    for pair, table in tuned_tables(result["choices"]):
        print_lines(out, pair)
        out.print(table)
    if result["choices"]:
        print_lines(out, "GB/s (1e9 bytes/s) of all transfers together; gpu 28%/9: 28% in 9 chunks")
    print_lines(out, *summary(result, name))
    write_json(result, json)
    if plot is not None:
        from ..plots import plot_tuned

        plot_tuned(result["choices"], title, plot)
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
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]:.0f} s left"),
        )
        with bars(errors, *columns) as update:

            def bar(done: int, total: int, left: float, what: str) -> bool:
                update(completed=done, total=total, left=left, description=f"tune: {what}")
                return not interrupted

            yield bar
    finally:
        signal.signal(signal.SIGINT, before)


def tuned_tables(choices: Sequence[dict[str, Any]]) -> Iterator[tuple[str, PlainTable]]:
    """Each class of pairs with its table: a row a choice, by pattern, size and executor."""
    for pair in sorted({entry["pair"] for entry in choices}):
        yield pair, tuned_table([entry for entry in choices if entry["pair"] == pair])


def tuned_table(choices: Sequence[dict[str, Any]]) -> PlainTable:
    """The choices of one class of pairs."""
    figures = ("native", "predicted", "measured", "speedup", "tried")
    table = PlainTable(
        *("pattern", "size", "executor", *figures, "routes"),
        right=("size", *figures),
        wrap=("routes",),
        keys=3,
    )
    last = ""
    for entry in sorted(
        choices, key=lambda entry: (entry["pattern"], entry["bytes"], entry["executor"])
    ):
        table.add_row(
            "" if entry["pattern"] == last else entry["pattern"],
            format_size(entry["bytes"]),
            entry["executor"],
            figure(entry["native_gbps"]),
            figure(entry["predicted_gbps"]),
            figure(entry["measured_gbps"]),
            ratio(entry["measured_gbps"], entry["native_gbps"]),
            str(entry["tried"]),
            escape(choice_text(entry)) + (" [bold]edited[/bold]" if entry["edited"] else ""),
        )
        last = entry["pattern"]
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


def summary(result: dict[str, Any], node: str) -> list[str]:
    """Where the choices are kept, and whether the search came to its end."""
    lines = []
    if not result["choices"]:
        lines.append(f"nothing is tuned for {node}")
    return lines + profile_lines(result, len(result["choices"]), "choices")


def profile_lines(result: dict[str, Any], count: int, what: str) -> list[str]:
    """How a search ended, if there was one, and where what it found is kept."""
    lines = []
    kept = bool(result["profile"])
    if "seconds" in result:
        kept = kept and Path(result["profile"]).is_file()  # else a warning has said why not
        state = "stopped; the same command goes on from here" if result["stopped"] else "done"
        lines.append(f"{count} {what}, {result['seconds']:.0f} s, {state}")
    lines.append(f"profile: {result['profile']}" if kept else "kept in no profile")
    return lines
