"""`polypath bench graph-phases`: what making, launching and patching a CUDA graph costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ..benchmark import Pair, document, pair_of
from ..context import Context
from ..errors import PolypathError
from ..graph_phases import OPERATION, parse_nodes, run
from ..sizes import format_size, parse_sizes
from . import options
from .bench import command_line
from .output import console, plain_table, print_lines, progress, ratio, write_json

_FIRST = (
    ("create", "create_us"),
    ("construct", "construct_us"),
    ("instantiate", "instantiate_us"),
    ("launch", "first_launch_us"),
)


def graph_phases(
    src: Annotated[str | None, typer.Option("--src", help="Source; default gpu0.")] = None,
    dst: Annotated[str | None, typer.Option("--dst", help="Destination; default gpu1.")] = None,
    sizes: options.PhaseSizes = None,
    nodes: options.GraphNodes = None,
    iterations: Annotated[
        int | None,
        typer.Option("--iterations", min=1, help="Graphs made; default 20, simulated 1."),
    ] = None,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Measure the phases of a CUDA graph by message size and number of nodes; every byte is
    compared.

    The graph carries half as many chunks as it has nodes to a staging memory, and on from there:
    that of a third GPU where there is one with peer access, else of the host. Times are medians.
    """
    with Context(node=node) as context:
        pair = pair_of(context.topology(), src, dst)
        result = measure(context, pair, sizes, nodes, iterations, json)
    write_json(result, json)
    if plot is not None:
        from ..graph_phases_plot import plot_graph_phases

        plot_graph_phases(result, plot)
        print_lines(console(json), f"drawn in {plot}")


def measure(
    context: Context,
    pair: Pair,
    sizes: Sequence[int] | None = None,
    nodes: Sequence[int] | None = None,
    iterations: int | None = None,
    json: str | None = None,
) -> dict[str, Any]:
    """Runs the rows with progress, prints their tables (also when a later row fails), and returns
    the document. None stands for the defaults; in virtual time, one iteration tells all."""
    topology = context.topology()
    sizes = sizes or parse_sizes("2M:512M")
    nodes = nodes or parse_nodes("2:64")
    iterations = iterations or (1 if topology["simulated"] else 20)
    rows: list[dict[str, Any]] = []
    out = console(json)
    try:
        with progress(OPERATION) as step:
            reports = run(context, pair, sizes, nodes, iterations)
            steps = [(size, count) for size in sizes for count in nodes]
            for done, (size, count) in enumerate(steps):
                step(done, len(steps), f"{format_size(size)}, {count} nodes")
                rows.append(next(reports))
            step(len(steps), len(steps), "done")
    except PolypathError:
        if rows:
            _print(out, pair, topology, rows)
        raise
    _print(out, pair, topology, rows)
    return document(context, OPERATION, rows, command_line())


def _print(
    out: Console, pair: Pair, topology: dict[str, Any], rows: Sequence[dict[str, Any]]
) -> None:
    print_lines(out, heading(pair, topology, rows), "", "first iteration: the graph is made")
    out.print(first_table(rows))
    print_lines(out, "later iterations: it is launched again, or patched and launched")
    out.print(later_table(rows))


def heading(pair: Pair, topology: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """ "graph-phases, gpu0 to gpu1 via gpu2, on narval (simulated, virtual time)"."""
    simulated = " (simulated, virtual time)" if topology["simulated"] else ""
    via = rows[0]["via"]
    return f"{OPERATION}, {pair.src} to {pair.dst} via {via}, on {topology['name']}{simulated}"


def first_table(rows: Sequence[dict[str, Any]]) -> Table:
    """A row a size and number of nodes: each phase, and its part of the latency."""
    figures = ("size", "nodes", *(name for name, _ in _FIRST), "latency")
    table = plain_table(*figures, right=figures)
    for row in rows:
        phases = (timed(row[key], row["first_latency_us"]) for _, key in _FIRST)
        table.add_row(*_keys(row), *phases, f"{row['first_latency_us']:.1f}")
    return table


def later_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The same rows: launch and patching with their parts, and the same copies by streams."""
    figures = ("size", "nodes", "launch", "latency", "patch", "patched latency")
    streams = ("streams issue", "streams latency")
    table = plain_table(*figures, *streams, "verified", right=(*figures, *streams))
    for row in rows:
        table.add_row(
            *_keys(row),
            timed(row["launch_us"], row["latency_us"]),
            f"{row['latency_us']:.1f}",
            timed(row["patch_us"], row["patched_latency_us"]),
            f"{row['patched_latency_us']:.1f}",
            timed(row["stream_issue_us"], row["stream_latency_us"]),
            f"{row['stream_latency_us']:.1f}",
            "yes" if row["verified"] else "[bold red]NO[/bold red]",
        )
    table.caption = (
        "us, medians; 27.6 11%: CPU time of the calls, and its part of the latency after it, the\n"
        "time from an iteration's first call to the end of its bytes"
    )
    table.caption_justify = "left"
    return table


def timed(us: float, of: float) -> str:
    """ "27.6 11%": a time, and its part of the whole."""
    return f"{us:.1f} {ratio(us, of, '{:.0%}'):>4}"


def _keys(row: dict[str, Any]) -> tuple[str, str]:
    return format_size(row["bytes"]), str(row["nodes"])
