"""`polypath plan`: how one transfer would go, and why so."""

from __future__ import annotations

from typing import Annotated, Any

from rich.markup import escape

from ..context import Context
from ..sizes import figure, format_size, rounded_size
from . import options
from .arguments import Argument
from .load import state_of
from .output import PlainTable, console, print_lines, ratio, write_json

_MEMORY_HELP = "A memory: gpu0, gpu1, host0; host0:pageable where it is not pinned."


def plan(
    src: Annotated[str, Argument("SRC", _MEMORY_HELP)],
    dst: Annotated[str, Argument("DST", _MEMORY_HELP)],
    size: options.Size,
    *,
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
    elif transfer["copy_threads"]:
        print_lines(out, transfer["reason"])
    if transfer["routes"]:
        out.print(route_table(transfer))
    print_lines(out, *summary(planned))
    if transfer["excluded"]:
        out.print(left_out_table(transfer))
    print_lines(out, *loaded_lines(planned))
    write_json(planned, json)


def loaded_lines(planned: dict[str, Any]) -> list[str]:
    """The links that count as loaded now, and why."""
    return [
        f"now {link['from']} to {link['to']} is {state_of(link)}: transfers leave it out"
        for link in planned["loaded"]
    ]


def route_table(transfer: dict[str, Any]) -> PlainTable:
    """The routes of a planned transfer."""
    figures = ("share", "bytes", "chunks", "chunk", "GB/s")
    table = PlainTable("route", *figures, right=figures)
    for route in transfer["routes"]:
        table.add_row(
            route["route"],
            f"{route['share']:.1%}",
            f"{route['bytes']:,}",
            str(route["chunks"]),
            rounded_size(route["chunk_bytes"]),
            figure(route["rate_gbps"]),
        )
    return table


def left_out_table(transfer: dict[str, Any]) -> PlainTable:
    """The routes that the plan does without, and why."""
    table = PlainTable("left out", "why", wrap=("why",))
    for route in transfer["excluded"]:
        table.add_row(route["route"], escape(route["reason"]))
    return table


def summary(planned: dict[str, Any]) -> list[str]:
    """Prediction, native copy and bound, a line each."""
    predicted, limit = planned["predicted_gbps"], planned["limit_gbps"]
    facts = [f"{ratio(predicted, limit, '{:.1%}')} of the bound"]
    native = "not allowed by the settings: without the direct route there is no native copy"
    if planned["native_us"]:
        faster = ratio(planned["native_us"], planned["predicted_us"])
        facts.insert(0, f"{faster} times native")
        native = rate_and_time(planned["native_gbps"], planned["native_us"])
    elif planned["predicted_us"] == 0:
        native = "takes no time"
    return [
        f"predicted {rate_and_time(predicted, planned['predicted_us'])}, {', '.join(facts)}",
        f"native    {native}",
        f"bound     {figure(limit):>6} GB/s, the maximum flow of the allowed routes",
    ]


def rate_and_time(gbps: float, us: float) -> str:
    """In columns."""
    return f"{figure(gbps):>6} GB/s {figure(us):>7} us"
