"""The command line: one file a command."""

from __future__ import annotations

from typing import Annotated

import typer

from . import (
    bench,
    bench_jacobi,
    bench_mpi,
    demo,
    doctor,
    graph_phases,
    info,
    nodes,
    plan,
    run,
    topo,
    tune,
)
from .group import OneLineErrors

app = typer.Typer(
    name="polypath",
    cls=OneLineErrors,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version of the library and leave.")
    ] = False,
) -> None:
    """One transfer over every path of a node: GPUs, NVLink and host memory at once."""
    if version:
        from .. import version as library_version

        print(library_version())
    elif context.invoked_subcommand is None:
        print(context.get_help())


for command in (
    topo.topo,
    nodes.nodes,
    plan.plan,
    bench.bench,
    tune.tune,
    info.info,
    demo.demo,
):
    app.command()(command)

# What follows the program's name are its own options, not those of polypath.
for command in (run.run, doctor.doctor):
    app.command(context_settings={"allow_interspersed_args": False})(command)
app.command("bench graph-phases")(graph_phases.graph_phases)
app.command("bench mpi")(bench_mpi.bench_mpi)
app.command("bench jacobi")(bench_jacobi.bench_jacobi)
