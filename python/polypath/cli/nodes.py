"""`polypath nodes`: the node files that ``--node`` knows by name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from .._library import node_directories
from ..errors import InvalidArgument
from . import options
from .output import console, plain_table, write_json


def nodes(
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NAME|FILE", help="Only this node."),
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


def nodes_table(known: list[dict[str, Any]]) -> Table:
    """Name, number and name of the GPUs, title."""
    table = plain_table("name", "GPUs", "GPU", "title", right=("GPUs",))
    table.columns[-1].no_wrap = False
    for node in known:
        cells = (node["name"], str(node["gpus"]), node["gpu"], node["title"])
        table.add_row(*(escape(cell) for cell in cells))
    return table
