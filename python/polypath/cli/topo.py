"""`polypath topo`: the node as a matrix, with capacities."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from ..context import Context
from ..links import LINK_TYPES, shared_capacities
from . import options
from .output import console, plain_table, print_lines, progress, write_json

_WIDE = 6  # memories of which a row fits 80 columns, with the rate beside the type


def topo(
    node: options.Node = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure the capacities first (a few seconds), and keep them as a profile.",
        ),
    ] = False,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Show GPUs, host memories and the links between them, in GB/s."""
    with Context(node=node) as context:
        if measure:
            with progress("measure") as step:
                context.measure(step)
        topology = context.topology()
    out = console(json)
    print_lines(out, *heading(topology))
    out.print(link_matrix(topology))
    print_lines(out, *legend(topology))
    write_json(topology, json)
    if plot is not None:
        from ..node_plot import plot_node

        plot_node(topology, plot)
        print_lines(out, f"drawn in {plot}")


def heading(topology: dict[str, Any]) -> list[str]:
    """What the node is, and where its capacities come from."""
    simulated = " (simulated)" if topology["simulated"] else ""
    lines = [
        f"{topology['title'] or topology['name']}{simulated}",
        f"capacities: {topology['capacities']}; fingerprint: {topology['fingerprint']}",
    ]
    if mesh := topology["emulated_mesh"]:
        lanes = [link["lanes"] for link in mesh["links"]]
        reached = [link["gbps"] for link in mesh["links"]]
        lines.append(
            f"emulated mesh: {mesh['gbps']:g} GB/s a link asked, "
            f"{min(reached):.1f} to {max(reached):.1f} measured, "
            f"by {min(lanes)} to {max(lanes)} lanes of a copy kernel"
        )
    return lines


def link_matrix(topology: dict[str, Any]) -> Table:
    """The matrix of `nvidia-smi topo -m`, from row to column, with the GB/s of each link: beside
    its type, or below it where there are many memories."""
    memories = [memory["id"] for memory in (*topology["gpus"], *topology["hosts"])]
    links = {(link["from"], link["to"]): link for link in topology["links"]}
    table = plain_table("", *memories)
    between = " "
    if len(memories) > _WIDE:
        between = "\n"
        table.leading = 1
        table.padding = (0, 0)
    for start in memories:
        cells = []
        for end in memories:
            link = links.get((start, end))
            cells.append("X" if start == end else link_cell(link, between) if link else "-")
        table.add_row(f"[bold]{start}[/bold]", *cells)
    return table


def link_cell(link: dict[str, Any], between: str) -> str:
    """ "NV4 93": type and width, then GB/s."""
    return f"{LINK_TYPES[link['type']].short}{link['width'] or ''}{between}{link['gbps']:.4g}"


def legend(topology: dict[str, Any]) -> list[str]:
    """A line for each type of link in the matrix, one for the figures, one for shared
    capacities."""
    present = {link["type"] for link in topology["links"]}
    lines = [
        f"{link_type.short + '#':7}{link_type.meaning}"
        for name, link_type in LINK_TYPES.items()
        if name in present
    ]
    lines.append("figure GB/s (1e9 bytes/s) of one large copy, from the row to the column")
    lines += [f"shared {capacity}" for capacity in shared_capacities(topology)]
    return lines
