"""`polypath topo`: the node as a matrix, with capacities; `polypath nodes`: the node files that
``--node`` knows by name."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

from rich.markup import escape

from .._library import node_directories
from ..context import Context
from ..errors import InvalidArgument
from ..launch.measure import measure_or_leave
from ..link_names import LINK_TYPES, shared_capacities
from ..sizes import figure, short_figure
from . import load as loads
from . import options
from .arguments import Option, one_of
from .output import PlainTable, console, print_lines, progress, write_json

_WIDE = 6  # memories of which a row fits 80 columns, with the rate next to the type
_MAX_SINGLE = 10  # memories of which a row fits 80 columns, with the rate below the type


def topo(
    *,
    node: options.Node = None,
    measure: Annotated[
        bool,
        Option(
            "--measure", "Measure the capacities first (a few seconds), and keep them as a profile."
        ),
    ] = False,
    load: Annotated[
        bool,
        Option("--load", "Show how loaded the links are now: what processes of this user copy."),
    ] = False,
    format: Annotated[
        loads.Format,
        Option(
            "--format",
            "Of --load: a table, or gauges as text for Prometheus.",
            metavar="table|prometheus",
            read=one_of(loads.Format),
        ),
    ] = loads.Format.TABLE,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Show GPUs, host memories and the links between them, in GB/s."""
    with Context(node=node) as context:
        if measure:
            measure_or_leave(context, progress("measure"), _leave)
        topology = context.topology()
        loaded = loads.look(context) if load else None
    out = console(json)
    if loaded is not None:
        if format is loads.Format.PROMETHEUS:
            print_lines(out, *loads.prometheus(loaded))
        else:
            out.print(loads.table_of(loaded))
        write_json(loaded, json)
        return
    print_lines(out, *heading(topology))
    out.print(link_matrix(topology))
    print_lines(out, *legend(topology))
    write_json(topology, json)
    if plot is not None:
        from ..node_plot import plot_node

        plot_node(topology, plot)
        print_lines(out, f"drawn in {plot}")


def _leave() -> None:
    print("polypath: interrupted", file=sys.stderr, flush=True)
    os._exit(130)


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
            f"{figure(min(reached))} to {figure(max(reached))} measured, "
            f"by {min(lanes)} to {max(lanes)} lanes of a copy kernel"
        )
    return lines


def link_matrix(topology: dict[str, Any]) -> PlainTable:
    """The matrix of `nvidia-smi topo -m`, from row to column, with the GB/s of each link: next to
    its type, or below it where there are many memories. Of still more, those that are alike have
    one row."""
    memories = [memory["id"] for memory in (*topology["gpus"], *topology["hosts"])]
    links = {(link["from"], link["to"]): link for link in topology["links"]}
    groups = [[memory] for memory in memories]
    if len(memories) > _MAX_SINGLE:
        groups = alike(memories, links)
    is_wide = len(groups) > _WIDE
    names = [group[0] if len(group) == 1 else f"{group[0]} ... {group[-1]}" for group in groups]
    table = PlainTable("", *names, is_tight=is_wide)
    between = "\n" if is_wide else " "
    for name, start in zip(names, groups, strict=True):
        cells = []
        for end in groups:
            link = links.get((start[0], end[-1]))
            itself = start == end and len(start) == 1
            cells.append("X" if itself else link_cell(link, between) if link else "-")
        table.add_row(f"[bold]{name}[/bold]", *cells)
    return table


def alike(memories: list[str], links: dict[tuple[str, str], dict[str, Any]]) -> list[list[str]]:
    """Memories in a row that have the same links to and from each other and all others."""

    def figures(start: str, end: str) -> tuple[Any, ...] | None:
        link = links.get((start, end))
        return link and (link["type"], link["width"], link["gbps"])

    def are_alike(a: str, b: str) -> bool:
        return (
            a.rstrip("0123456789") == b.rstrip("0123456789")
            and figures(a, b) == figures(b, a)
            and all(
                figures(a, other) == figures(b, other) and figures(other, a) == figures(other, b)
                for other in memories
                if other not in (a, b)
            )
        )

    groups: list[list[str]] = []
    for memory in memories:
        if groups and all(are_alike(other, memory) for other in groups[-1]):
            groups[-1].append(memory)
        else:
            groups.append([memory])
    return groups


def link_cell(link: dict[str, Any], between: str) -> str:
    """ "NV4 93": type and width, then GB/s."""
    what = f"{LINK_TYPES[link['type']].short}{link['width'] or ''}"
    return f"{what}{between}{short_figure(link['gbps'])}"


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


def nodes(
    *,
    node: Annotated[
        str | None,
        Option("--node", "Only this node.", metavar="NAME|FILE"),
    ] = None,
    json: options.Json = None,
) -> None:
    """List the known simulated nodes."""
    known = [read_node(Path(node))] if node and Path(node).is_file() else known_nodes()
    if node and not Path(node).is_file():
        names = [entry["name"] for entry in known]
        known = [entry for entry in known if entry["name"] == node]
        if not known:
            raise InvalidArgument(f"--node '{node}' is not allowed: {', '.join(names)}, or a file")
    console(json).print(nodes_table(known))
    write_json(known, json)


def known_nodes() -> list[dict[str, Any]]:
    """Every node file, by file name, sorted; of two with one name, the one that the library
    takes."""
    files: dict[str, Path] = {}
    for directory in node_directories():
        for file in directory.glob("*.toml"):
            files.setdefault(file.stem, file)
    return [read_node(files[name]) for name in sorted(files)]


def read_node(file: Path) -> dict[str, Any]:
    """``{"name", "title", "gpus", "gpu", "file"}``: the number of GPUs, and the name of the
    first."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        gpus = content["gpu"]
        return {
            "name": content["name"],
            "title": content["title"],
            "gpus": sum(entry.get("count", 1) for entry in gpus),
            "gpu": gpus[0]["name"],
            "file": str(file),
        }
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{file}: {error}") from error
    except KeyError as error:
        raise InvalidArgument(f"{file}: {error} is missing") from error


def nodes_table(known: list[dict[str, Any]]) -> PlainTable:
    """Name, number and name of the GPUs, title."""
    table = PlainTable("name", "GPUs", "GPU", "title", right=("GPUs",), wrap=("title",))
    for node in known:
        cells = (node["name"], str(node["gpus"]), node["gpu"], node["title"])
        table.add_row(*(escape(cell) for cell in cells))
    return table
