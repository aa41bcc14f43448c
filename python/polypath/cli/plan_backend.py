"""`polypath plan backend`: the UNICONN backend that AnyBackend would take, and why."""

from __future__ import annotations

from typing import Annotated, Any

from ..backend_tuning import OPERATIONS
from ..context import Context
from ..sizes import figure, format_size
from . import options
from .arguments import Argument, Option, did_you_mean
from .output import PlainTable, console, print_lines, write_json


def _operation(text: str) -> str:
    if text not in OPERATIONS:
        hint = did_you_mean(text, OPERATIONS)
        raise ValueError(f"'{text}' is not one of {', '.join(OPERATIONS)}{hint}")
    return text


def plan_backend(
    op: Annotated[str, Argument("OPERATION", f"{', '.join(OPERATIONS)}.", read=_operation)],
    size: options.Size,
    *,
    ranks: Annotated[
        int | None,
        options.count_option("--ranks", "On the first N GPUs; default all.", 2, 64),
    ] = None,
    mpi: Annotated[
        bool, Option("--mpi", "Of a program with MPI, whose ranks mpirun started.")
    ] = False,
    node: options.Node = None,
    json: options.Json = None,
) -> None:
    """Show which backend AnyBackend takes for an operation, and what was measured of each."""
    with Context(node=node) as context:
        planned = context.plan_backend(op, size, ranks=ranks, with_mpi=mpi)
        topology = context.topology()
    out = console(json)
    simulated = " (simulated)" if topology["simulated"] else ""
    print_lines(
        out,
        f"{planned['op']} of {format_size(planned['bytes'])}, {planned['ranks']}, "
        f"on {topology['name']}{simulated}",
        f"by {planned['backend']}: {planned['reason']}",
    )
    out.print(_table(planned))
    entry = planned["entry"]
    if entry is None:
        print_lines(out, "`polypath tune backend` measures, and keeps what it finds in the profile")
    else:
        print_lines(
            out,
            f"measured with {format_size(entry['bytes'])}, turns: {entry['pairs']}; us a call, of "
            "the slowest rank",
        )
    write_json(planned, json)


def _table(planned: dict[str, Any]) -> PlainTable:
    table = PlainTable("backend", "us", "GB/s", "serves", right=("us", "GB/s"), wrap=("serves",))
    entry = planned["entry"]
    for backend in planned["backends"]:
        known = backend["us"] is not None
        table.add_row(
            backend["backend"],
            figure(backend["us"]) if known else "-",
            figure(entry["bytes"] / backend["us"] / 1e3) if known and backend["us"] else "-",
            "yes" if backend["serves"] else f"no: {backend['why']}",
        )
    return table
