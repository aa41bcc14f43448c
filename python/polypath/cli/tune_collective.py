"""`polypath tune allreduce` and its family: the best algorithm, stages and blocks of collectives,
found by measurement."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape

from ..benchmark import clock_lines
from ..collective_tuning import CollectiveTuning, tune_in_processes, tune_on_threads
from ..context import Context
from ..errors import InvalidArgument
from ..sizes import figure, format_size, rounded_size
from . import options
from .arguments import Option
from .output import PlainTable, console, print_lines, ratio, write_json
from .tune import NOT_KEPT, profile_lines, tune_progress


def _command(op: str | None, about: str) -> Callable[..., None]:
    def command(
        *,
        ranks: Annotated[
            int | None,
            options.count_option("--ranks", "On the first N GPUs; default all.", 2, 8),
        ] = None,
        sizes: Annotated[
            list[int] | None,
            options.sizes_option(
                "Of a rank's larger buffer, such as 64K,1M:16M; a range doubles. Default 16K:64M, "
                "simulated 16K:4M."
            ),
        ] = None,
        budget: Annotated[
            float,
            Option(
                "--budget",
                "Time for the search in all, such as 60s or 5m.",
                metavar="TIME",
                read=options.seconds,
            ),
        ] = 60.0,
        again: Annotated[
            bool, Option("--again", "Also what is tuned already, but for your edits.")
        ] = False,
        show: Annotated[bool, Option("--show", "Only show what was tuned.")] = False,
        profile: options.Profile = None,
        node: options.Node = None,
        json: options.Json = None,
    ) -> None:
        out = console(json)
        if not show:
            options.require_kept(profile)
        if profile is not None:  # of the ranks' processes as well
            os.environ["POLYPATH_PROFILE"] = str(profile)
        with Context(node=node) as context:
            topology = context.topology()
            gpus = len(topology["gpus"])
            if ranks is not None and ranks > gpus:
                raise InvalidArgument(f"--ranks {ranks}: there are {gpus} GPUs")
            if gpus < 2 and not show:
                raise InvalidArgument("collectives take two GPUs at least, and there is one")
            result = context.tuned() if show else _search(out, context, op, ranks or gpus, locals())
        entries = [entry for entry in result["collectives"] if op in (None, entry["op"])]
        for which, table in _tables(entries):
            print_lines(out, which)
            out.print(table)
        if entries:
            print_lines(out, "us a call, of the slowest rank, behind rows of calls; medians")
        print_lines(out, *_summary(result, entries, topology["name"]))
        write_json(result, json)

    command.__name__ = f"tune_{op or 'collectives'}"
    command.__doc__ = f"""Find the best algorithm, stages and blocks for {about}, by size.

    Each way that the plan knows is measured against the plan's own choice in alternating pairs,
    every element compared, and kept in the profile where it is faster beyond doubt; stopped by
    Ctrl-C, the search goes on from there next time. Each rank is a process with one GPU; on a
    simulated node a thread.
    """
    return command


def _search(
    out: Console, context: Context, op: str | None, ranks: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    request = CollectiveTuning(
        op, ranks, arguments["sizes"], arguments["budget"], arguments["again"]
    )
    if not context.devices()["profile"]["file"]:
        print_lines(out, NOT_KEPT)
    print_lines(out, *clock_lines(arguments["topology"]))
    with tune_progress() as progress:
        if arguments["topology"]["simulated"]:
            return tune_on_threads(context, request, progress)
        return tune_in_processes(request, progress)


def _tables(entries: Sequence[dict[str, Any]]) -> Iterator[tuple[str, PlainTable]]:
    """Each operation on each set of ranks with its table: a row a size."""
    for op, ranks in sorted({(entry["op"], entry["ranks"]) for entry in entries}):
        figures = ("planned us", "us", "speedup", "tried")
        table = PlainTable("size", *figures, "way", right=("size", *figures), wrap=("way",), keys=1)
        rows = [entry for entry in entries if (entry["op"], entry["ranks"]) == (op, ranks)]
        for entry in sorted(rows, key=lambda entry: entry["bytes"]):
            table.add_row(
                format_size(entry["bytes"]),
                figure(entry["planned_us"] or 0),
                figure(entry["us"] or 0),
                ratio(entry["planned_us"] or 0, entry["us"] or 0),
                str(entry["tried"]),
                escape(way_text(entry)) + (" [bold]edited[/bold]" if entry["edited"] else ""),
            )
        yield f"{op}, {ranks}", table


def way_text(entry: dict[str, Any]) -> str:
    """ "flat, 2 stages, 64 blocks, tiles of 32K, lag 3", "hierarchical, 2 lanes, chunks of 1M"."""
    parts = [entry["algorithm"]]
    for count, word in (("stages", "stage"), ("blocks", "block"), ("lanes", "lane")):
        if entry[count]:
            parts.append(f"{entry[count]} {word}{'s' if entry[count] > 1 else ''}")
    if entry["tile_bytes"]:
        parts.append(f"tiles of {rounded_size(entry['tile_bytes'])}")
    if entry["lag"]:
        parts.append(f"lag {entry['lag']}")
    if entry["chunk_bytes"]:
        parts.append(f"chunks of {rounded_size(entry['chunk_bytes'])}")
    return ", ".join(parts)


def _summary(result: dict[str, Any], entries: Sequence[dict[str, Any]], node: str) -> list[str]:
    lines = [] if entries else [f"no collective is tuned for {node}"]
    return lines + profile_lines(result, len(entries), "entry" if len(entries) == 1 else "entries")


collectives = _command(None, "all collectives of GPUs")
allreduce = _command("allreduce", "allreduce")
reduce_scatter = _command("reduce_scatter", "reduce-scatter")
all_gather = _command("all_gather", "all-gather")
broadcast = _command("broadcast", "broadcast")
reduce = _command("reduce", "reduce")
all_to_all = _command("all_to_all", "all-to-all")
