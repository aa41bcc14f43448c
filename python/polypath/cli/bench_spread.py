"""`polypath bench spread`: the same bytes to several GPUs, a native copy for each against
polypath's."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape

from ..benchmark import clock_lines, document, where
from ..beside import Traffic, require_possible, run_spread
from ..context import Context
from ..sizes import figure, format_size, parse_sizes
from . import bench_beside, options
from .arguments import Option
from .bench import collect, command_line, finish
from .output import PlainTable, console, print_lines, times, yes

OPERATION = "spread"
_CAPTION = (
    "GB/s (1e9 bytes/s) that each GPU receives, medians; limit: maximum flow; CPU: us of a call; "
    "gpu2 25%: what GPU 2 fetched over its own link"
)


def gpu_list(text: str) -> list[int]:
    """Reads ``--gpus``: numbers such as 0,1,3."""
    parts = [part.strip().removeprefix("gpu") for part in text.split(",")]
    if not all(part.isdigit() for part in parts) or len(set(parts)) < len(parts):
        raise ValueError(f"'{text}' is no list of different GPUs, such as 0,1,3")
    return [int(part) for part in parts]


Gpus = Annotated[
    list[int] | None,
    Option("--gpus", "Destinations, such as 0,1,3; default all but the source.", "LIST", gpu_list),
]
Source = Annotated[
    str | None, Option("--src", "host0, host0:pageable or gpu0; default host0.", "MEMORY")
]


def ends_of(
    topology: dict[str, Any], src: str | None, gpus: list[int] | None
) -> tuple[str, bool, list[int]]:
    """The source, whether it is pageable, and the destinations."""
    source = src or "host0"
    pageable = source.endswith(":pageable")
    source = source.removesuffix(":pageable")
    if gpus is None:
        names = [gpu["id"] for gpu in topology["gpus"]]
        gpus = [number for number, name in enumerate(names) if name != source]
    return source, pageable, gpus


def bench_spread(
    *,
    src: Source = None,
    gpus: Gpus = None,
    sizes: Annotated[
        list[int] | None,
        options.sizes_option("Default 1M:1G, simulated 4M:64M."),
    ] = None,
    iterations: Annotated[
        int | None,
        options.count_option("--iterations", "Timed pairs; default 10, simulated 1.", 1),
    ] = None,
    warmup: Annotated[
        int | None,
        options.count_option("--warmup", "Untimed pairs first; default 2, simulated 0.", 0),
    ] = None,
    beside: bench_beside.BesideOptions,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Compare a native copy for each GPU, all at once, with polypath's spread, in alternating
    pairs; every byte on every GPU is compared.

    Exit code 1 when a row is not verified.
    """
    traffic = beside.traffic({"--plot": plot})
    out = console(json)
    with Context(node=node) as context:
        topology = context.topology()
        ends = ends_of(topology, src, gpus)
        chosen = sizes or parse_sizes("4M:64M" if topology["simulated"] else "1M:1G")
        print_lines(out, f"{OPERATION}, on {where(topology)}", *clock_lines(topology))
        if traffic is None:
            result = measure(context, out, ends, chosen, iterations, warmup)
        else:
            result = measure_beside(context, out, ends, chosen, traffic, node, iterations, warmup)

    def draw(result: dict[str, Any], file: Path) -> None:
        from ..plots import plot_spread

        plot_spread(result, file)

    finish(result, out, json, plot, draw)


def _names(ends: tuple[str, bool, list[int]], sizes: Sequence[int]) -> list[str]:
    return [f"{ends[0]} to {len(ends[2])} GPUs, {format_size(size)}" for size in sizes]


def measure(
    context: Context,
    out: Console,
    ends: tuple[str, bool, list[int]],
    sizes: Sequence[int],
    iterations: int | None = None,
    warmup: int | None = None,
) -> dict[str, Any]:
    """Runs the rows, prints their table, and returns the document. None stands for the defaults."""
    simulated = context.topology()["simulated"]
    iterations = iterations or (1 if simulated else 10)
    warmup = (0 if simulated else 2) if warmup is None else warmup
    source, pageable, gpus = ends

    def reports() -> Generator[dict[str, Any], None, None]:
        for size in sizes:
            yield context.bench_spread(source, gpus, size, pageable, iterations, warmup)

    rows = collect(
        OPERATION, _names(ends, sizes), reports(), lambda rows: out.print(spread_table(rows))
    )
    return document(context, OPERATION, rows, command_line())


def measure_beside(
    context: Context,
    out: Console,
    ends: tuple[str, bool, list[int]],
    sizes: Sequence[int],
    traffic: Traffic,
    node: str | None = None,
    iterations: int | None = None,
    warmup: int | None = None,
) -> dict[str, Any]:
    """The same on the idle node and next to other traffic."""
    require_possible(traffic, context.topology())
    source, pageable, gpus = ends

    def reports() -> Generator[dict[str, Any], None, None]:
        yield from run_spread(
            *(context, source, gpus, sizes, traffic),
            pageable=pageable,
            node=node,
            iterations=iterations or 20,
            warmup=2 if warmup is None else warmup,
        )

    def show(rows: Sequence[dict[str, Any]]) -> None:
        figures = ("native", "polypath", "native loaded", "loaded", "speedup", "first")
        table = PlainTable(
            *("from", "size", *figures, "verified"),
            right=("size", *figures),
            keys=2,
            caption="GB/s (1e9 bytes/s) that each GPU receives, medians; loaded: next to the "
            "traffic; first: the worst of the first five",
        )
        for row in rows:
            idle, loaded = row["idle"], row["loaded"]
            table.add_row(
                row["src"],
                format_size(row["bytes"]),
                figure(idle["native_gbps"]),
                figure(idle["polypath_gbps"]),
                figure(loaded["native_gbps"]),
                figure(loaded["polypath_gbps"]),
                times(loaded["speedup"]),
                figure(loaded["polypath_first_gbps"]),
                yes(row["verified"]),
            )
        out.print(table)

    rows = collect(OPERATION, _names(ends, sizes), reports(), show)
    return {
        **document(context, OPERATION, rows, command_line()),
        "beside": {**traffic._asdict(), "copies": [str(each) for each in traffic.copies]},
    }


def spread_table(rows: Sequence[dict[str, Any]]) -> PlainTable:
    """One row a size."""
    figures = ("native", "polypath", "speedup", "limit", "native CPU", "CPU")
    table = PlainTable(
        *("from", "size", *figures, "verified", "fetched by"),
        right=("size", *figures),
        wrap=("fetched by",),
        keys=2,
        caption=_CAPTION,
    )
    for row in rows:
        table.add_row(
            row["src"],
            format_size(row["bytes"]),
            figure(row["native_gbps"]),
            figure(row["polypath_gbps"]),
            times(row["speedup"]),
            figure(row["limit_gbps"]),
            figure(row["native_issue_us"]),
            figure(row["issue_us"]),
            yes(row["verified"]),
            escape(_parts(row)),
        )
    return table


def _parts(row: dict[str, Any]) -> str:
    if row["native_calls"] == row["calls"]:
        return "each: native"
    return ", ".join(f"{part['gpu']} {part['share']:.0%}" for part in row["parts"])
