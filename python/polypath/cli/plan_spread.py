"""`polypath plan spread`: how the same bytes would get to several GPUs, and why."""

from __future__ import annotations

from typing import Any

from ..context import Context
from ..errors import InvalidArgument
from ..sizes import figure, format_size
from . import options
from .bench_spread import Gpus, Source, ends_of
from .output import PlainTable, console, print_lines, write_json


def plan_spread(
    size: options.Size,
    *,
    src: Source = None,
    gpus: Gpus = None,
    node: options.Node = None,
    json: options.Json = None,
) -> None:
    """Show which GPU would fetch which part of a spread, and what is predicted."""
    with Context(node=node) as context:
        topology = context.topology()
        source, pageable, chosen = ends_of(topology, src, gpus)
        if pageable:
            raise InvalidArgument(
                "spreads of pageable memory follow `polypath plan host0:pageable`"
            )
        planned = context.plan_spread(source, chosen, size)
    out = console(json)
    simulated = " (simulated)" if topology["simulated"] else ""
    print_lines(
        out,
        f"spread of {format_size(planned['bytes'])} from {planned['src']} to "
        f"{', '.join(planned['gpus'])}, on {topology['name']}{simulated}",
        f"{'a native copy for each' if planned['native'] else 'by all links'}: {planned['reason']}",
        f"predicted {figure(planned['predicted_gbps'])} GB/s a GPU, native copies "
        f"{figure(planned['native_gbps'])}, limit {figure(planned['limit_gbps'])}",
    )
    if planned["parts"]:
        out.print(_table(planned))
    write_json(planned, json)


def _table(planned: dict[str, Any]) -> PlainTable:
    table = PlainTable(
        *("fetched by", "bytes", "share", "chunk", "GB/s", "sent on to"),
        right=("bytes", "share", "chunk", "GB/s"),
        keys=1,
        caption="GB/s: 1e9 bytes/s, while all carry data",
    )
    for part in planned["parts"]:
        table.add_row(
            part["gpu"],
            format_size(part["bytes"]),
            f"{part['share']:.1%}",
            format_size(part["chunk_bytes"]),
            figure(part["rate_gbps"]),
            ", ".join(link["to"] for link in part["forward"]),
        )
    return table
