"""`polypath bench jacobi`: an unmodified MPI application, with and without the shim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from ..mpi import benchmark, programs
from ..mpi.jacobi import PROGRAM, row_of
from ..mpi.runs import Runs, alternate
from ..mpi.ways import Ways, ways
from ..sizes import format_size
from . import options
from .bench import command_line
from .mpi_output import Comparison, checked, heading, statistics_lines
from .output import console, plain_table, print_lines, progress, write_json


def bench_jacobi(
    powers: options.Powers = None,
    ranks: options.Ranks = 4,
    pairs: options.Pairs = None,
    iterations: Annotated[
        int | None,
        typer.Option("--iterations", min=2, help="Of the solver in each run; default 200."),
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

    The solver (examples/jacobi) knows nothing of polypath; it runs with and without the shim in
    alternation, and figures are medians of the runs. Exit code 1 when its results differ in a
    single bit, or no copy was caught.
    """
    comparison = Comparison(routes, emulate_mesh, setting)
    program = programs.find_program(PROGRAM)
    launcher = programs.find_launcher(mpirun)
    way = ways(node, comparison.settings)
    comparison.check(way, plot)
    powers = powers or options.SizeList([22] if way.simulated else range(23, 29))
    pairs = pairs or (1 if way.simulated else 3)
    iterations = iterations or (4 if way.simulated else 200)

    out = console(json)
    print_lines(out, *heading(f"{PROGRAM}, {ranks} ranks in a ring", way))
    all_runs = Runs([], [], [], [])
    rows = []
    with progress(PROGRAM) as step:
        total = 2 * pairs * len(powers)
        for done, power in enumerate(powers):
            arguments = ["--size", str(power), "--iterations", str(iterations)]
            arguments += ["--warmup", str(min(10, iterations // 2))]
            runs = alternate(
                launcher.command(ranks, program, arguments),
                {**way.baseline, **launcher.settings},
                {**way.polypath, **launcher.settings},
                pairs,
                lambda number, what, done=done, power=power: step(
                    2 * pairs * done + number, total, f"8 x 2^{power}, {what}"
                ),
            )
            rows.append(row_of(runs))
            for collected, new in zip(all_runs, runs, strict=True):
                collected.extend(new)
        step(total, total, "done")
    result = benchmark.document(PROGRAM, way, all_runs, rows, comparison.settings, command_line())
    out.print(solver_table(rows, way))
    print_lines(out, *statistics_lines(result["statistics"]))
    write_json(result, json)
    if plot is not None:
        from ..mpi.plot import plot_solver

        plot_solver(result, plot)
        print_lines(out, f"drawn in {plot}")
    checked(result)


def solver_table(rows: Sequence[dict[str, Any]], way: Ways) -> Table:
    """One row a grid. Without times on a simulated node."""
    times = (
        *(way.name, "polypath", "speedup"),
        *(f"{way.name} comm.", "polypath comm."),
    )
    figures = ("elements", "halo", *(() if way.simulated else times), "residual")
    table = plain_table(*figures, "same bits", right=figures)
    for row in rows:
        baseline, polypath = row["baseline"], row["polypath"]
        measured = (
            f"{baseline['iteration_us']:.0f}",
            f"{polypath['iteration_us']:.0f}",
            f"{row['speedup']:.2f}",
            f"{baseline['communication_us']:.0f}",
            f"{polypath['communication_us']:.0f}",
        )
        table.add_row(
            format_size(row["elements"]),
            format_size(row["halo_bytes"]),
            *(() if way.simulated else measured),
            f"{row['residuals'][-1]:.6g}",
            "yes" if row["verified"] else "[bold red]NO[/bold red]",
        )
    if not way.simulated:
        table.caption = "us an iteration, and of that communication; medians of the runs"
        table.caption_justify = "left"
    return table
