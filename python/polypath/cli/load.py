"""`polypath topo --load`: how loaded the node's links are now, as a table or for Prometheus."""

from __future__ import annotations

import enum
import time
from typing import Any

from ..context import Context
from ..sizes import figure
from .output import PlainTable

#: Seconds between the two looks that a rate is taken from.
WINDOW = 0.25


class Format(enum.StrEnum):
    TABLE = "table"
    PROMETHEUS = "prometheus"


def look(context: Context, seconds: float = WINDOW) -> dict[str, Any]:
    """What `Context.load` says, with ``busy_ratio`` of each link: the part of the last `seconds`
    in which it was busy."""
    first = context.load()
    time.sleep(seconds)
    second = context.load()
    return with_ratios(first, second)


def with_ratios(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """`second`, with ``busy_ratio`` and ``carried_gbps`` of each link since `first`. A process
    that is in one of them only does not count. A link that was measured as loaded is busy."""
    elapsed = second["time_us"] - first["time_us"]
    links = []
    for before, after in zip(first["links"], second["links"], strict=True):
        known = {process["pid"]: process["busy_us"] for process in before["processes"]}
        busy = sum(
            max(0.0, process["busy_us"] - known[process["pid"]])
            for process in after["processes"]
            if process["pid"] in known
        )
        ratio = min(1.0, busy / elapsed) if elapsed > 0 else 0.0
        if after["source"].startswith("measured"):
            ratio = 1.0
        links.append({**after, "busy_ratio": ratio, "carried_gbps": ratio * after["gbps"]})
    return {"time_us": second["time_us"], "links": links}


def table_of(load: dict[str, Any]) -> PlainTable:
    """A row for each directed link."""
    figures = ("busy", "GB/s", "wait us")
    table = PlainTable("from", "to", *figures, "state", right=figures)
    for link in load["links"]:
        table.add_row(
            link["from"],
            link["to"],
            f"{link['busy_ratio']:.0%}",
            figure(link["carried_gbps"]),
            f"{link['wait_us']:.0f}" if link["wait_us"] else "",
            state_of(link),
        )
    return table


def state_of(link: dict[str, Any]) -> str:
    """ "free", or the source of the report that the link is loaded."""
    if not link["loaded"]:
        return "free"
    by = f" {link['pid']}" if link["pid"] else ""
    return f"loaded: {link['source']}{by}"


def prometheus(load: dict[str, Any]) -> list[str]:
    """The text format of Prometheus, a gauge a line."""
    gauges = {
        "polypath_link_busy_ratio": ("part of the time that copies occupy the link", "busy_ratio"),
        "polypath_link_loaded": ("1: transfers leave the link out", "loaded"),
        "polypath_link_wait_microseconds": ("estimated wait of a copy on the link", "wait_us"),
    }
    lines = []
    for name, (meaning, key) in gauges.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
        for link in load["links"]:
            value = float(link[key])
            lines.append(f'{name}{{link="{link["from"]}->{link["to"]}"}} {value:g}')
    return lines
