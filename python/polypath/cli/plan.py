"""`polypath plan`: how one transfer would go, and why so."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..context import Context
from ..sizes import format_size, rounded_size
from . import options
from .output import console, plain_table, print_lines, ratio, write_json

_MEMORY_HELP = "A memory: gpu0, gpu1, host0."


def plan(
    src: Annotated[str, typer.Argument(metavar="SRC", help=_MEMORY_HELP)],
    dst: Annotated[str, typer.Argument(metavar="DST", help=_MEMORY_HELP)],
    size: options.Size,
    node: options.Node = None,
    routes: options.Routes = None,
    json: options.Json = None,
) -> None:
    """Show the routes, shares and chunks of a transfer, what they reach, and what was left out."""
    with Context(node=node, routes=routes) as context:
        planned = context.plan(src, dst, size)
        topology = context.topology()
    out = console(json)
    transfer = planned["transfers"][0]
    simulated = " (simulated)" if topology["simulated"] else ""
    print_lines(
        out,
        f"{transfer['src']} to {transfer['dst']}, {format_size(transfer['bytes'])}, "
        f"on {topology['name']}{simulated}",
    )
    if transfer["native"]:
        print_lines(out, f"native copy: {transfer['reason']}")
    if transfer["routes"]:
        out.print(route_table(transfer))
    print_lines(out, *summary(planned))
    if transfer["left_out"]:
        out.print(left_out_table(transfer))
    write_json(planned, json)


def route_table(transfer: dict[str, Any]) -> Table:
    """The routes of a planned transfer."""
    figures = ("share", "bytes", "chunks", "chunk", "GB/s")
    table = plain_table("route", *figures, right=figures)
    for route in transfer["routes"]:
        table.add_row(
            route["route"],
            f"{route['share']:.1%}",
            f"{route['bytes']:,}",
            str(route["chunks"]),
            rounded_size(route["chunk_bytes"]),
            f"{route['rate_gbps']:.1f}",
        )
    return table


def left_out_table(transfer: dict[str, Any]) -> Table:
    """The routes that the plan does without, and why."""
    table = plain_table("left out", "why")
    table.columns[1].no_wrap = False
    for route in transfer["left_out"]:
        table.add_row(route["route"], escape(route["reason"]))
    return table


def summary(planned: dict[str, Any]) -> list[str]:
    """Prediction, native copy and bound, a line each."""
    predicted, limit = planned["predicted_gbps"], planned["limit_gbps"]
    return [
        f"predicted {predicted:8.1f} GB/s {planned['predicted_us']:10.1f} us, "
        f"{ratio(planned['native_us'], planned['predicted_us'])} times native, "
        f"{ratio(predicted, limit, '{:.1%}')} of the bound",
        f"native    {planned['native_gbps']:8.1f} GB/s {planned['native_us']:10.1f} us",
        f"bound     {limit:8.1f} GB/s, the maximum flow of the allowed routes",
    ]
