"""`polypath bench mpi`: messages of unmodified MPI and UCX programs, with and without the shim."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from ..errors import InvalidArgument
from ..mpi import benchmark, programs
from ..mpi.message_tests import METHODS, Test, rows_of
from ..mpi.runs import alternate
from ..mpi.ways import Ways, ways
from ..sizes import format_size, parse_sizes
from . import options
from .bench import command_line
from .mpi_output import Comparison, checked, heading, statistics_lines
from .output import console, plain_table, print_lines, progress, write_json


class Pattern(StrEnum):
    """Who sends to whom."""

    pair = "pair"
    ring = "ring"


def bench_mpi(
    test: Annotated[
        Test,
        typer.Option(
            "--test", help="bw, bibw, latency: MPI, one way, both ways, ping-pong; put: UCX puts."
        ),
    ] = Test.bw,
    ranks: options.Ranks = 2,
    windows: options.MessageWindows = None,
    sizes: options.MessageSizes = None,
    pairs: options.Pairs = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", min=1, help="Of each size in each run.")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option("--warmup", min=0, help="Untimed ones before them.")
    ] = None,
    pattern: Annotated[
        Pattern,
        typer.Option("--pattern", help="pair: ranks 0 and 1, 2 and 3 ...; ring: each to the next."),
    ] = Pattern.pair,
    routes: options.Routes = None,
    emulate_mesh: options.EmulateMesh = None,
    setting: options.Settings = None,
    mpirun: options.Mpirun = None,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Compare MPI messages between GPUs with and without polypath; every byte is compared.

    The programs know nothing of polypath; they run with and without the shim in alternation, and
    figures are medians of the runs. Exit code 1 when bytes are wrong, or no copy was caught.
    """
    method = METHODS[test]
    if windows is not None and not method.windows:
        raise InvalidArgument(f"--windows is not for {test}")
    comparison = Comparison(routes, emulate_mesh, setting)
    program = programs.find_program(method.program)
    launcher = programs.find_launcher(mpirun)
    way = ways(node, comparison.settings)
    comparison.check(way, plot)
    arguments = ["--sizes", ",".join(str(size) for size in sizes or default_sizes(way, test))]
    arguments += ["--pattern", str(pattern)]
    if method.windows:
        arguments += ["--window", ",".join(str(count) for count in windows or (1, 4, 16))]
    for name, value in (("--iterations", iterations), ("--warmup", warmup)):
        count = value if value is not None else 2 if way.simulated else None
        arguments += [] if count is None else [name, str(count)]

    out = console(json)
    print_lines(out, *heading(f"{method.program}, {ranks} ranks, {pattern}", way))
    pairs = pairs or (1 if way.simulated else 3)
    with progress(f"mpi {test}") as step:
        runs = alternate(
            launcher.command(ranks, program, arguments),
            {**way.baseline, **launcher.settings},
            {**way.polypath, **launcher.settings},
            pairs,
            lambda number, what: step(number, 2 * pairs, what),
        )
        step(2 * pairs, 2 * pairs, "done")
    result = benchmark.document(
        f"mpi {test}", way, runs, rows_of(test, runs), comparison.settings, command_line()
    )
    result["pattern"] = str(pattern)
    out.print(messages_table(result["rows"], way, method.figure))
    print_lines(out, *runs.messages, *statistics_lines(result["statistics"]))
    write_json(result, json)
    if plot is not None:
        from ..mpi.plot import plot_messages

        plot_messages(result, plot)
        print_lines(out, f"drawn in {plot}")
    checked(result)


def default_sizes(way: Ways, test: Test) -> list[int]:
    """Sizes worth the time: few where times mean nothing."""
    if way.simulated:
        return parse_sizes("4K,4M")
    return parse_sizes("1:4M" if test is Test.latency else "1M:256M")


def messages_table(rows: Sequence[dict[str, Any]], way: Ways, figure: str) -> Table:
    """One row a window and size. Without times on a simulated node."""
    windows = any(row["window"] > 1 for row in rows)
    names = () if way.simulated else (way.name, "polypath", "speedup")
    figures = (*(("window",) if windows else ()), "size", *names, "messages")
    table = plain_table(*figures, "verified", right=figures)
    for row in rows:
        times = (
            f"{row[f'baseline_{figure}']:.1f}",
            f"{row[f'polypath_{figure}']:.1f}",
            f"{row['speedup']:.2f}",
        )
        table.add_row(
            *((str(row["window"]),) if windows else ()),
            format_size(row["bytes"]),
            *(() if way.simulated else times),
            str(row["messages"]),
            "yes" if row["verified"] else "[bold red]NO[/bold red]",
        )
    if not way.simulated:
        unit = "GB/s (1e9 bytes/s), sums over all ranks" if figure == "gbps" else "us"
        table.caption = f"{unit}; medians of the runs"
        table.caption_justify = "left"
    return table
