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
            found = context.tuned() if show else _search(out, context, op, ranks or gpus, locals())
        entries = [one for one in found["collectives"] if op in (None, one["op"])]
        for which, table in _tables(entries):
            print_lines(out, which)
            out.print(table)
        if entries:
            print_lines(out, "us a call, of the slowest rank, behind rows of calls; medians")
        print_lines(out, *_summary(found, entries, topology["name"]))
        write_json(found, json)

    command.__name__ = f"tune_{op or 'collectives'}"
    command.__doc__ = f"""Find the best algorithm, stages and blocks for {about}, by size.

    Each way that the plan knows is measured against the plan's own choice in alternating pairs,
    every element compared, and kept in the profile where it is faster beyond doubt; stopped by
    Ctrl-C, the search goes on from there next time. Each rank is a process with one GPU; on a
    simulated node a thread.
    """
    return command


def _search(
    out: Console, context: Context, op: str | None, ranks: int, given: dict[str, Any]
) -> dict[str, Any]:
    wanted = CollectiveTuning(op, ranks, given["sizes"], given["budget"], given["again"])
    if not context.devices()["profile"]["file"]:
        print_lines(out, NOT_KEPT)
    print_lines(out, *clock_lines(given["topology"]))
    with tune_progress() as progress:
        if given["topology"]["simulated"]:
            return tune_on_threads(context, wanted, progress)
        return tune_in_processes(wanted, progress)


def _tables(entries: Sequence[dict[str, Any]]) -> Iterator[tuple[str, PlainTable]]:
    """Each operation on each set of ranks with its table: a row a size."""
    for op, ranks in sorted({(one["op"], one["ranks"]) for one in entries}):
        figures = ("planned us", "us", "speedup", "tried")
        table = PlainTable("size", *figures, "way", right=("size", *figures), wrap=("way",), keys=1)
        rows = [one for one in entries if (one["op"], one["ranks"]) == (op, ranks)]
        for one in sorted(rows, key=lambda one: one["bytes"]):
            table.add_row(
                format_size(one["bytes"]),
                figure(one["planned_us"] or 0),
                figure(one["us"] or 0),
                ratio(one["planned_us"] or 0, one["us"] or 0),
                str(one["tried"]),
                escape(way_text(one)) + (" [bold]edited[/bold]" if one["edited"] else ""),
            )
        yield f"{op}, {ranks}", table


def way_text(one: dict[str, Any]) -> str:
    """ "flat, 2 stages, 64 blocks", "hierarchical, 2 lanes, chunks of 1M"."""
    parts = [one["algorithm"]]
    for count, word in (("stages", "stage"), ("blocks", "block"), ("lanes", "lane")):
        if one[count]:
            parts.append(f"{one[count]} {word}{'s' if one[count] > 1 else ''}")
    if one["chunk_bytes"]:
        parts.append(f"chunks of {rounded_size(one['chunk_bytes'])}")
    return ", ".join(parts)


def _summary(found: dict[str, Any], entries: Sequence[dict[str, Any]], node: str) -> list[str]:
    lines = [] if entries else [f"no collective is tuned for {node}"]
    return lines + profile_lines(found, len(entries), "entry" if len(entries) == 1 else "entries")


collectives = _command(None, "all collectives of GPUs")
allreduce = _command("allreduce", "allreduce")
reduce_scatter = _command("reduce_scatter", "reduce-scatter")
all_gather = _command("all_gather", "all-gather")
broadcast = _command("broadcast", "broadcast")
reduce = _command("reduce", "reduce")
all_to_all = _command("all_to_all", "all-to-all")
