"""`polypath bench jacobi`: an unmodified MPI application, with and without the shim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from ..mpi.benchmark import document
from ..mpi.jacobi import PROGRAM, row_of
from ..mpi.runs import Runs
from ..sizes import format_size
from . import options
from .bench import command_line
from .comparison import Comparison, require_sound, statistics_lines, yes
from .output import console, plain_table, print_lines, progress, write_json

_WARMUP = 10


def bench_jacobi(
    powers: options.Powers = None,
    ranks: options.Ranks = 4,
    pairs: options.Pairs = None,
    iterations: Annotated[
        int | None,
        typer.Option("--iterations", min=2, help="Of the solver; default 200, simulated 4."),
    ] = None,
    routes: options.Routes = None,
    emulate_mesh: options.EmulateMesh = None,
    setting: options.Settings = None,
    mpirun: options.Mpirun = None,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Compare a Jacobi solver with halo exchange with and without polypath, bit by bit.

    The solver (examples/jacobi) knows nothing of polypath; it runs with and without it in
    alternation, and figures are medians of the runs. Exit code 1 when its results differ in a
    single bit, or no copy was caught.
    """
    comparison = Comparison(
        PROGRAM, ranks, pairs, routes, emulate_mesh, setting, mpirun, node, plot
    )
    chosen = powers or ([22] if comparison.simulated else range(23, 29))
    iterations = iterations or (4 if comparison.simulated else 200)
    arguments = ["--iterations", str(iterations), "--warmup", str(min(_WARMUP, iterations // 2))]

    out = console(json)
    print_lines(out, *comparison.heading("in a ring"))
    every = Runs([], [], [], [])
    rows = []
    number = 0
    total = comparison.run_count * len(chosen)
    with progress(PROGRAM) as step:
        for power in chosen:

            def begin(run: int, what: str, power: int = power, before: int = number) -> None:
                step(before + run, total, f"8 x 2^{power}, {what}")

            runs = comparison.run(["--size", str(power), *arguments], begin)
            number += comparison.run_count
            rows.append(row_of(runs, not comparison.simulated))
            every.extend(runs)
        step(total, total, "done")
    result = document(PROGRAM, comparison.ways, every, rows, command_line())
    out.print(solver_table(rows, comparison.ways.name))
    print_lines(out, *statistics_lines(result["statistics"]))
    write_json(result, json)
    if plot is not None:
        from ..mpi.plot import plot_solver

        plot_solver(result, plot)
        print_lines(out, f"drawn in {plot}")
    require_sound(result)


def solver_table(rows: Sequence[dict[str, Any]], baseline: str) -> Table:
    """One row a grid; ``baseline`` is its name. Rows without times make a table without them."""
    timed = rows[0]["speedup"] is not None
    times = (baseline, "polypath", "speedup", f"{baseline} comm.", "polypath comm.")
    figures = ("elements", "halo", *(times if timed else ()), "residual")
    table = plain_table(*figures, "same bits", right=figures)
    for row in rows:
        table.add_row(
            format_size(row["elements"]),
            format_size(row["halo_bytes"]),
            *(time_cells(row) if timed else ()),
            f"{row['residuals'][-1]:.6g}",
            yes(row["verified"]),
        )
    if timed:
        table.caption = "us an iteration, and of that communication; medians of the runs"
        table.caption_justify = "left"
    return table


def time_cells(row: dict[str, Any]) -> list[str]:
    """An iteration, its speedup, and the communication in it."""
    ways = (row["baseline"], row["polypath"])
    return [
        *(f"{way['iteration_us']:.0f}" for way in ways),
        f"{row['speedup']:.2f}",
        *(f"{way['communication_us']:.0f}" for way in ways),
    ]
