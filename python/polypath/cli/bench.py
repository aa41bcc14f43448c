"""`polypath bench`: native copy against polypath, verified."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..benchmark import Operation, Pair, document, run, transfers_of
from ..context import Context
from ..errors import InvalidArgument, PolypathError
from ..sizes import format_size, parse_sizes
from . import options
from .output import console, plain_table, print_lines, progress, ratio, write_json


class Executor(StrEnum):
    """How schedules are run."""

    auto = "auto"
    stream = "stream"
    graph = "graph"


def bench(
    operation: options.BenchOperation,
    src: Annotated[str | None, typer.Option("--src", help="Source, such as gpu0 or host0.")] = None,
    dst: Annotated[
        str | None, typer.Option("--dst", help="Destination, such as gpu1 or host0.")
    ] = None,
    sizes: options.Sizes = None,
    iterations: Annotated[
        int | None,
        typer.Option("--iterations", min=1, help="Timed pairs; default 20, simulated 1."),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option("--warmup", min=1, help="Untimed pairs first; default 3, simulated 1."),
    ] = None,
    both_directions: Annotated[
        bool, typer.Option("--both-directions", help="ring: also each GPU to the one before it.")
    ] = False,
    routes: options.Routes = None,
    executor: Annotated[
        Executor | None,
        typer.Option("--executor", help="What runs transfers; auto: what was tuned, or streams."),
    ] = None,
    compare_executors: Annotated[
        bool,
        typer.Option(
            "--compare-executors",
            help="Also time each plan as streams against the same as graphs.",
        ),
    ] = False,
    window: options.Windows = None,
    emulate_mesh: options.EmulateMesh = None,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Compare native copies with polypath, in alternating pairs; every byte is compared.

    GB/s are medians. For bidir, ring and windows, bytes count a transfer and GB/s are sums. Exit
    code 1 when a row is not verified. `polypath bench graph-phases`, `polypath bench mpi` and
    `polypath bench jacobi` have options of their own.
    """
    if window is not None and operation not in (Operation.p2p, Operation.bidir):
        raise InvalidArgument(f"--window is for p2p and bidir, not for {operation}")
    chosen = None if executor is None else str(executor)
    settings = {"routes": routes, "executor": chosen, "emulate_mesh": emulate_mesh}
    with Context(node=node, **settings) as context:
        pairs = transfers_of(operation, context.topology(), src, dst, both_directions)
        result = measure(
            context, operation, pairs, sizes, iterations, warmup, window, compare_executors, json
        )
    write_json(result, json)
    if plot is not None:
        from ..bench_plot import plot_bench

        plot_bench([result], plot)
        print_lines(console(json), f"drawn in {plot}")
    if not all(row["verified"] for row in result["rows"]):
        raise typer.Exit(1)


def measure(
    context: Context,
    operation: Operation,
    pairs: Sequence[Pair],
    sizes: Sequence[int] | None = None,
    iterations: int | None = None,
    warmup: int | None = None,
    windows: Sequence[int] | None = None,
    compare_executors: bool = False,
    json: str | None = None,
) -> dict[str, Any]:
    """Runs the rows with progress, prints their table (also when a later row fails), and returns
    the document. None stands for the defaults; in virtual time, one pair tells all."""
    simulated = context.topology()["simulated"]
    sizes = sizes or parse_sizes("1M:512M" if simulated else "1M:1G")
    iterations = iterations or (1 if simulated else 20)
    warmup = warmup or (1 if simulated else 3)
    rows: list[dict[str, Any]] = []
    out = console(json)
    print_lines(out, heading(operation, pairs, context.topology()))
    try:
        with progress(operation) as step:
            runs = [(size, window) for window in windows or (1,) for size in sizes]
            reports = run(context, pairs, runs, iterations, warmup, compare_executors)
            for done, (size, window) in enumerate(runs):
                step(done, len(runs), format_size(size) + (f" x {window}" if windows else ""))
                rows.append(next(reports))
            step(len(runs), len(runs), "done")
    except PolypathError:
        if rows:
            out.print(bench_table(rows))
        raise
    out.print(bench_table(rows))
    if compare_executors:
        out.print(executor_table(rows))
    return document(context, operation, rows, command_line())


def command_line() -> str:
    """The command as it was typed, whatever started Python."""
    return shlex.join(["polypath", *sys.argv[1:]])


def heading(operation: Operation, pairs: Sequence[Pair], topology: dict[str, Any]) -> str:
    """ "p2p, gpu0 to gpu1, on narval (simulated, virtual time)"."""
    between = ", ".join(f"{pair.src} to {pair.dst}" for pair in pairs[:2])
    if len(pairs) > 2:
        between = f"{len(pairs)} transfers at once, {between} ..."
    simulated = " (simulated, virtual time)" if topology["simulated"] else ""
    return f"{operation}, {between}, on {topology['name']}{simulated}"


def bench_table(rows: Sequence[dict[str, Any]]) -> Table:
    """One row a size: native copy, polypath, and how near that is to the limit. GB/s."""
    windows = any(row["window"] > 1 for row in rows)
    figures = ("size", "native", "polypath", "speedup", "limit", "of limit")
    table = plain_table(
        *(("window",) if windows else ()),
        *figures,
        "verified",
        "executor",
        "routes",
        right=("window", *figures),
    )
    table.columns[-1].no_wrap = False
    for row in rows:
        table.add_row(
            *((str(row["window"]),) if windows else ()),
            format_size(row["bytes"]),
            f"{row['native_gbps']:.1f}",
            f"{row['polypath_gbps']:.1f}",
            f"{row['speedup']:.2f}",
            f"{row['limit_gbps']:.1f}",
            ratio(row["polypath_gbps"], row["limit_gbps"], "{:.0%}"),
            "yes" if row["verified"] else "[bold red]NO[/bold red]",
            executor_text(row),
            escape(routes_text(row)),
        )
    table.caption = "GB/s (1e9 bytes/s), medians; gpu2 28%/9: 28% of the bytes via gpu2 in 9 chunks"
    table.caption_justify = "left"
    return table


def executor_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Streams against graphs for the same plans: time on the GPUs, and of the CPU to issue."""
    figures = ("size", "copies", "stream", "graph", "stream CPU", "graph CPU", "graph/stream CPU")
    table = plain_table(*figures, right=figures)
    for row in rows:
        compared = row["executors"]
        if compared is None:
            continue
        table.add_row(
            format_size(row["bytes"]),
            str(row["copies"]),
            f"{compared['stream_us']:.1f}",
            f"{compared['graph_us']:.1f}",
            f"{compared['stream_issue_us']:.1f}",
            f"{compared['graph_issue_us']:.1f}",
            ratio(compared["graph_issue_us"], compared["stream_issue_us"]),
        )
    table.caption = "us, medians of alternating pairs"
    table.caption_justify = "left"
    return table


def counted_text(counted: dict[str, Any]) -> str:
    """ "direct 91%, host0 8%, native 1%": how the transfers of a window went, all together."""
    shares: dict[str, float] = {}
    for route in counted["routes"]:
        name = route["route"].removeprefix("via ")
        shares[name] = shares.get(name, 0.0) + route["share"]
    shares["native"] = counted["native_share"]
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)


def executor_text(row: dict[str, Any]) -> str:
    """What carried the transfers that were split."""
    split, graphs = row["counted"]["split"], row["counted"]["graphs"]
    if split == 0:
        return "-"
    return "stream" if graphs == 0 else "graph" if graphs >= split else "both"


def routes_text(row: dict[str, Any]) -> str:
    """ "direct 32%, gpu2 31%/8": shares, and the chunks of staged routes. For several transfers,
    how many routes there are of each kind."""
    if row["window"] > 1:
        return counted_text(row["counted"])
    if row["native"]:
        return f"native: {row['reason']}"
    if "transfers" in row:
        counts: dict[str, int] = {}
        for route in row["routes"]:
            kind = route["route"].rstrip("0123456789")
            counts[kind] = counts.get(kind, 0) + 1
        return ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return ", ".join(
        f"{route['route'].removeprefix('via ')} {route['share']:.0%}"
        + (f"/{route['chunks']}" if route["chunks"] > 1 else "")
        for route in row["routes"]
    )
