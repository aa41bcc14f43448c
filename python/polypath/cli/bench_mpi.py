"""`polypath bench mpi`: messages of unmodified MPI and UCX programs, with and without the shim."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from ..errors import InvalidArgument
from ..mpi.benchmark import document
from ..mpi.message_tests import METHODS, Test, rows_of
from ..sizes import format_size, parse_sizes
from . import options
from .bench import command_line
from .comparison import Comparison, require_sound, statistics_lines, yes
from .output import console, plain_table, print_lines, progress, write_json


class Pattern(StrEnum):
    """Who sends to whom."""

    pair = "pair"
    ring = "ring"


def bench_mpi(
    test: Annotated[
        Test,
        typer.Option(
            "--test", help="bw, bibw, latency: MPI, one way, both ways, ping-pong; put: UCX's puts."
        ),
    ] = Test.bw,
    ranks: options.Ranks = 2,
    windows: options.MessageWindows = None,
    sizes: options.MessageSizes = None,
    pairs: options.Pairs = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations",
            min=1,
            help="Of each size in a run; default 200, from 1M on 20, simulated 2.",
        ),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            "--warmup", min=0, help="Untimed, before them; default 20, from 1M on 2, simulated 2."
        ),
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

    The programs know nothing of polypath; they run with and without it in alternation, and figures
    are medians of the runs. Exit code 1 when bytes are wrong, or no copy was caught.
    """
    method = METHODS[test]
    if windows is not None and not method.windows:
        raise InvalidArgument(f"--windows is not for {test}")
    comparison = Comparison(
        method.program, ranks, pairs, routes, emulate_mesh, setting, mpirun, node, plot
    )
    if sizes is None:
        sizes = default_sizes(test, comparison.simulated)
    if comparison.simulated:
        iterations, warmup = iterations or 2, 2 if warmup is None else warmup
    arguments = ["--pattern", str(pattern), "--sizes", ",".join(map(str, sizes))]
    if method.windows:
        arguments += ["--window", ",".join(map(str, windows or (1, 4, 16)))]
    for name, value in (("--iterations", iterations), ("--warmup", warmup)):
        arguments += [] if value is None else [name, str(value)]

    out = console(json)
    print_lines(out, *comparison.heading(str(pattern)))
    total = comparison.run_count
    with progress(f"mpi {test}") as step:
        runs = comparison.run(arguments, lambda number, what: step(number, total, what))
        step(total, total, "done")
    rows = rows_of(test, runs, not comparison.simulated)
    result = document(f"mpi {test}", comparison.ways, runs, rows, command_line())
    result["pattern"] = str(pattern)
    out.print(messages_table(rows, comparison.ways.name, method.figure))
    print_lines(out, *runs.messages, *statistics_lines(result["statistics"]))
    write_json(result, json)
    if plot is not None:
        from ..mpi.plot import plot_messages

        plot_messages(result, plot)
        print_lines(out, f"drawn in {plot}")
    require_sound(result)


def default_sizes(test: Test, simulated: bool) -> list[int]:
    """Few where times mean nothing."""
    if simulated:
        return parse_sizes("4K,4M")
    return parse_sizes("1:4M" if test is Test.latency else "1M:256M")


def messages_table(rows: Sequence[dict[str, Any]], baseline: str, figure: str) -> Table:
    """One row a window and size; ``baseline`` is its name, ``figure`` "gbps" or "latency_us". Rows
    without times make a table without them."""
    timed = rows[0]["speedup"] is not None
    keys = (f"baseline_{figure}", f"polypath_{figure}", "speedup") if timed else ()
    names = (baseline, "polypath", "speedup") if timed else ()
    windows = ("window",) if any(row["window"] > 1 for row in rows) else ()
    figures = (*windows, "size", *names, "messages")
    table = plain_table(*figures, "verified", right=figures)
    for row in rows:
        table.add_row(
            *(str(row[key]) for key in windows),
            format_size(row["bytes"]),
            *(f"{row[key]:.{2 if key == 'speedup' else 1}f}" for key in keys),
            str(row["messages"]),
            yes(row["verified"]),
        )
    if timed:
        unit = "GB/s (1e9 bytes/s), sums over all ranks" if figure == "gbps" else "us"
        table.caption = f"{unit}; medians of the runs"
        table.caption_justify = "left"
    return table
