"""`polypath bench load`: a file to a GPU, by a mapping that the driver copies against polypath's
read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape

from ..benchmark import clock_lines, document, where
from ..beside import Traffic, require_possible, run_file
from ..context import Context
from ..sizes import figure, format_size, parse_sizes
from . import bench_beside, options
from .arguments import Argument
from .bench import collect, command_line, finish
from .output import PlainTable, console, print_lines, times, yes

OPERATION = "load"
_CAPTION = (
    "GB/s (1e9 bytes/s), medians, from the call to the end of the copies; native: mmap and the "
    "driver's copy; gpu2 28%: 28% of the bytes via gpu2"
)


def bench_load(
    file: Annotated[
        str | None,
        Argument(
            "FILE",
            "Its first bytes are read; default one with random contents, in TMPDIR or /tmp.",
            is_optional=True,
        ),
    ] = None,
    *,
    gpu: Annotated[str, options.text_option("--gpu", "Default gpu0.", "GPU")] = "gpu0",
    sizes: Annotated[
        list[int] | None,
        options.sizes_option("Bytes; default 16M,256M,1G,4G (simulated 16M,64M), or all of FILE."),
    ] = None,
    iterations: Annotated[
        int | None,
        options.count_option("--iterations", "Timed pairs; default 10, simulated 1.", 1),
    ] = None,
    warmup: Annotated[
        int | None,
        options.count_option("--warmup", "Untimed pairs first; default 2, simulated 0.", 0),
    ] = None,
    routes: options.Routes = None,
    beside: bench_beside.BesideOptions,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Compare reads of a file in the page cache to a GPU, in alternating pairs: a mapping that the
    driver copies, against CPU threads and the links of all GPUs. Every byte is compared with the
    file.

    Exit code 1 when a row is not verified.
    """
    traffic = beside.traffic({"--plot": plot})
    out = console(json)
    with Context(node=node, routes=routes) as context:
        topology = context.topology()
        chosen = sizes or ([0] if file else _default_sizes(topology["simulated"]))
        print_lines(out, f"{OPERATION}, on {where(topology)}", *clock_lines(topology))
        if traffic is None:
            result = measure(context, out, gpu, file, chosen, iterations, warmup)
        else:
            result = measure_beside(
                context, out, gpu, file, chosen, traffic, node, iterations, warmup
            )

    def draw(result: dict[str, Any], file: Path) -> None:
        from ..plots import plot_load

        plot_load(result, file)

    finish(result, out, json, plot, draw)


def _default_sizes(simulated: bool) -> list[int]:
    return parse_sizes("16M,64M" if simulated else "16M,256M,1G,4G")


def _names(sizes: Sequence[int]) -> list[str]:
    return [format_size(size) if size else "all of it" for size in sizes]


def measure(
    context: Context,
    out: Console,
    gpu: str,
    file: str | None,
    sizes: Sequence[int],
    iterations: int | None = None,
    warmup: int | None = None,
) -> dict[str, Any]:
    """Runs the rows, prints their table, and returns the document. None stands for the defaults."""
    simulated = context.topology()["simulated"]
    iterations = iterations or (1 if simulated else 10)
    warmup = (0 if simulated else 2) if warmup is None else warmup
    reports = (context.bench_file(gpu, file, size, iterations, warmup) for size in sizes)
    rows = collect(OPERATION, _names(sizes), reports, lambda rows: out.print(load_table(rows)))
    return document(context, OPERATION, rows, command_line())


def measure_beside(
    context: Context,
    out: Console,
    gpu: str,
    file: str | None,
    sizes: Sequence[int],
    traffic: Traffic,
    node: str | None = None,
    iterations: int | None = None,
    warmup: int | None = None,
) -> dict[str, Any]:
    """The same on the idle node and next to other traffic."""
    require_possible(traffic, context.topology())
    warmup = 2 if warmup is None else warmup
    reports = run_file(context, gpu, file, sizes, traffic, node, iterations or 20, warmup)

    def show(rows: Sequence[dict[str, Any]]) -> None:
        out.print(bench_beside.beside_table(rows))

    rows = collect(OPERATION, _names(sizes), reports, show)
    return {
        **document(context, OPERATION, rows, command_line()),
        "beside": {**traffic._asdict(), "copies": [str(each) for each in traffic.copies]},
    }


def load_table(rows: Sequence[dict[str, Any]]) -> PlainTable:
    """One row a size."""
    figures = ("native", "polypath", "speedup", "threads")
    table = PlainTable(
        *("to", "size", *figures, "verified", "routes"),
        right=("size", *figures),
        wrap=("routes",),
        keys=2,
        caption=_CAPTION,
    )
    for row in rows:
        table.add_row(
            row["dst"],
            format_size(row["bytes"]),
            figure(row["native_gbps"]),
            figure(row["polypath_gbps"]),
            times(row["speedup"]),
            str(row["threads"]),
            yes(row["verified"]),
            escape(_routes(row)),
        )
    return table


def _routes(row: dict[str, Any]) -> str:
    shares = [
        f"{route['route'].removeprefix('via ')} {route['share']:.0%}" for route in row["routes"]
    ]
    if row["native_share"] >= 0.005:
        shares.append(f"native {row['native_share']:.0%}")
    return ", ".join(shares)
