"""`polypath demo`: the main job on whatever is here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..benchmark import Operation, transfers_of
from ..context import Context
from ..errors import NoDevice
from ..sizes import parse_sizes
from . import options
from .bench import measure
from .output import console, print_lines, write_json

_NODE = "narval"


def demo(
    node: options.Node = None,
    sizes: options.Sizes = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder of the plot; made when missing.")
    ] = Path("out"),
    json: options.Json = None,
) -> None:
    """Compare native copies with polypath on this machine's GPUs, or on a simulated node where
    there are none, and save a plot."""
    options.require_matplotlib()
    printer = console(json)
    context, first_line = _open(node)
    print_lines(printer, first_line)
    results: list[dict[str, Any]] = []
    with context:
        topology = context.topology()
        operations = [Operation.p2p, Operation.h2d]
        if len(topology["gpus"]) < 2:
            operations.remove(Operation.p2p)
        for operation in operations:
            pairs = transfers_of(operation, topology)
            results.append(
                measure(context, operation, pairs, sizes or parse_sizes("1M:512M"), json=json)
            )

    from ..bench_plot import plot_bench

    out.mkdir(parents=True, exist_ok=True)
    plot = out / f"demo-{topology['name'].replace(' ', '-').replace('/', '-')}.png"
    plot_bench(results, plot)
    print_lines(printer, f"plot: {plot}")
    write_json(results, json)
    if not all(row["verified"] for result in results for row in result["rows"]):
        raise typer.Exit(1)


def _open(node: str | None) -> tuple[Context, str]:
    """A context, and one line that says what it runs on."""
    try:
        context = Context(node=node)
    except NoDevice:
        return Context(node=_NODE), (
            f"No GPU here: this is the simulated node {_NODE}; figures are virtual time"
        )
    topology = context.topology()
    if topology["simulated"]:
        return context, f"This is the simulated node {topology['name']}; figures are virtual time"
    return context, f"This machine: {topology['title'] or topology['name']}"
