"""`polypath bench graph-phases`: what making, launching and patching a CUDA graph costs, by message
size and number of nodes, and the parts of an iteration's latency."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from ..benchmark import Pair, document, pair_of, where
from ..context import Context
from ..sizes import figure, format_size, parse_sizes
from . import options
from .arguments import Option
from .bench import collect, command_line, finish
from .output import PlainTable, console, print_lines, ratio, yes

OPERATION = "graph-phases"
MAX_NODES = 256
_ALLOWED_NODES = (
    f"an even number from 2 to {MAX_NODES}; a range 2:64 (each twice the last); or a list of "
    "these, with commas"
)
_CAPTION = (
    "us, medians; 27.6 11%: CPU time of the calls, and its part of the latency after it, the\n"
    "time from an iteration's first call to the end of its bytes"
)
_FIRST = (
    ("create", "create_us"),
    ("construct", "construct_us"),
    ("instantiate", "instantiate_us"),
    ("launch", "first_launch_us"),
)


def parse_nodes(text: str) -> list[int]:
    """Numbers of nodes of a list such as ``2,8:64``, in the order given. ``ValueError`` says what
    is allowed."""
    counts: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        low = _node_count(first)
        high = _node_count(last) if colon else low
        if high < low:
            raise ValueError(f"'{part}' is not {_ALLOWED_NODES}; no range runs down")
        while low <= high:
            counts.append(low)
            low *= 2
    return counts


def _node_count(text: str) -> int:
    count = int(text) if text.strip().isdecimal() else 0
    if not 2 <= count <= MAX_NODES or count % 2:
        raise ValueError(f"'{text}' is not {_ALLOWED_NODES}")
    return count


def graph_phases(
    *,
    src: Annotated[str | None, options.text_option("--src", "Source; default gpu0.")] = None,
    dst: Annotated[str | None, options.text_option("--dst", "Destination; default gpu1.")] = None,
    sizes: Annotated[
        list[int] | None,
        options.sizes_option("Such as 2M,16M:64M; a range doubles. Default 2M:512M."),
    ] = None,
    nodes: Annotated[
        list[int] | None,
        Option(
            "--nodes",
            "Nodes of the graph, such as 2,8:64; a range doubles. Default 2:64.",
            metavar="COUNTS",
            read=parse_nodes,
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        options.count_option("--iterations", "Graphs made; default 20, simulated 1.", 1),
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
    out = console(json)
    with Context(node=node) as context:
        pair = pair_of(context.topology(), src, dst)
        result = measure(context, out, pair, sizes, nodes, iterations)

    def draw(result: dict[str, Any], file: Path) -> None:
        from ..plots import plot_graph_phases

        plot_graph_phases(result, file)

    finish(result, out, json, plot, draw)


def measure(
    context: Context,
    out: Console,
    pair: Pair,
    sizes: Sequence[int] | None = None,
    nodes: Sequence[int] | None = None,
    iterations: int | None = None,
) -> dict[str, Any]:
    """Runs the rows, prints their tables, and returns the document. None stands for the defaults;
    in virtual time, one iteration tells all."""
    topology = context.topology()
    sizes = sizes or parse_sizes("2M:512M")
    nodes = nodes or parse_nodes("2:64")
    iterations = iterations or (1 if topology["simulated"] else 20)
    names = [f"{format_size(size)}, {count} nodes" for size in sizes for count in nodes]

    def show(rows: Sequence[dict[str, Any]]) -> None:
        print_lines(out, heading(pair, topology, rows), "", "first iteration: the graph is made")
        out.print(first_table(rows))
        print_lines(out, "later iterations: it is launched again, or patched and launched")
        out.print(later_table(rows))

    rows = collect(OPERATION, names, run(context, pair, sizes, nodes, iterations), show)
    return document(context, OPERATION, rows, command_line())


def run(
    context: Context,
    pair: Pair,
    sizes: Sequence[int],
    nodes: Sequence[int],
    iterations: int,
) -> Generator[dict[str, Any], None, None]:
    """One row of the document for each size (bytes) and, within it, each number of nodes: what
    `Context.graph_phases` says, with "src", "dst" and "parts"."""
    for size in sizes:
        for count in nodes:
            report = context.graph_phases(pair.src, pair.dst, size, count, iterations)
            yield {"src": pair.src, "dst": pair.dst, **report, "parts": parts(report)}


def parts(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Parts, 0 to 1, of the whole latency::

        {"first": {"create", "construct", "instantiate", "launch", "wait"},
         "later": {"launch", "wait"}}

    "first": of the iteration that makes a graph; "later": of one that finds it made. "wait": from
    the return of the launch to the end of the bytes. The others are the CPU time of their calls.
    """
    calls = {
        "first": {
            "create": report["create_us"],
            "construct": report["construct_us"],
            "instantiate": report["instantiate_us"],
            "launch": report["first_launch_us"],
        },
        "later": {"launch": report["launch_us"]},
    }
    whole = {"first": report["first_latency_us"], "later": report["latency_us"]}
    result: dict[str, dict[str, float]] = {}
    for iteration, times in calls.items():
        shares = {phase: us / whole[iteration] for phase, us in times.items()}
        # Each time is a median of its own: their sum may exceed that of the whole by a little.
        result[iteration] = {**shares, "wait": max(0.0, 1 - sum(shares.values()))}
    return result


def heading(pair: Pair, topology: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """ "graph-phases, gpu0 to gpu1 via gpu2, on narval (simulated, virtual time)"."""
    via = rows[0]["via"]
    return f"{OPERATION}, {pair.src} to {pair.dst} via {via}, on {where(topology)}"


def first_table(rows: Sequence[dict[str, Any]]) -> PlainTable:
    """A row a size and number of nodes: each phase, and its part of the latency."""
    figures = ("size", "nodes", *(name for name, _ in _FIRST), "latency")
    table = PlainTable(*figures, right=figures, keys=2)
    for row in rows:
        phases = (timed(row[key], row["first_latency_us"]) for _, key in _FIRST)
        table.add_row(*_keys(row), *phases, figure(row["first_latency_us"]))
    return table


def later_table(rows: Sequence[dict[str, Any]]) -> PlainTable:
    """The same rows: launch and patching with their parts, and the same copies by streams."""
    figures = ("size", "nodes", "launch", "latency", "patch", "patched latency")
    streams = ("streams issue", "streams latency")
    table = PlainTable(
        *(*figures, *streams, "verified"), right=(*figures, *streams), keys=2, caption=_CAPTION
    )
    for row in rows:
        table.add_row(
            *_keys(row),
            timed(row["launch_us"], row["latency_us"]),
            figure(row["latency_us"]),
            timed(row["patch_us"], row["patched_latency_us"]),
            figure(row["patched_latency_us"]),
            timed(row["stream_issue_us"], row["stream_latency_us"]),
            figure(row["stream_latency_us"]),
            yes(row["verified"]),
        )
    return table


def timed(us: float, total: float) -> str:
    """ "27.6 11%": a time, and its part of the whole."""
    return f"{figure(us)} {ratio(us, total, '{:.0%}'):>4}"


def _keys(row: dict[str, Any]) -> tuple[str, str]:
    return format_size(row["bytes"]), str(row["nodes"])
