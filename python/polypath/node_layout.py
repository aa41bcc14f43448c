"""Where the parts of a node lie in its drawing: GPUs in a row, links between them as arcs above (or
an NVSwitch as a bar), host memories as bars below. Geometry only; the unit is the GPUs' spacing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .links import LINK_TYPES

_GPU_WIDTH, _GPU_HEIGHT = 0.7, 0.32
_BAR_HEIGHT = 0.28
_SWITCH_Y, _HOST_Y = 0.95, -1.05
_BAR_GAP = 0.2
_ARC_STEPS = 48


class Line(NamedTuple):
    """Both directions of the link between two memories; 0 GB/s where there is none."""

    ends: tuple[str, str]
    type: str
    width: int
    forward: float
    backward: float
    points: list[tuple[float, float]]

    @property
    def capacity(self) -> float:
        return max(self.forward, self.backward)

    @property
    def label(self) -> str:
        """Type, width and GB/s: the same for all links that are alike."""
        what = LINK_TYPES[self.type].title + (f" x{self.width}" if self.width else "")
        if self.forward == self.backward:
            return f"{what}: {self.forward:g} GB/s a direction"
        target = self.ends[1].rstrip("0123456789")
        return f"{what}: {self.forward:g} GB/s to a {target}, {self.backward:g} from it"


class Box(NamedTuple):
    """A memory or a switch, by its centre."""

    x: float
    y: float
    width: float
    height: float
    text: str


class Layout(NamedTuple):
    boxes: list[Box]
    lines: list[Line]


def layout(topology: dict[str, Any]) -> Layout:
    """Places every memory and link of `Context.topology`."""
    gpus = {
        gpu["id"]: Box(i, 0, _GPU_WIDTH, _GPU_HEIGHT, f"{gpu['id']}\n{_short(gpu['name'])}")
        for i, gpu in enumerate(topology["gpus"])
    }
    row = Box((len(gpus) - 1) / 2, 0, len(gpus) - 1 + _GPU_WIDTH, 0, "")
    hosts = _host_bars([host["id"] for host in topology["hosts"]], row)
    switched = any(link["type"] == "nvswitch" for link in topology["links"])
    switch = [Box(row.x, _SWITCH_Y, row.width, _BAR_HEIGHT, "NVSwitch")] if switched else []
    return Layout([*gpus.values(), *hosts.values(), *switch], _lines(topology, gpus, hosts))


def _host_bars(hosts: list[str], row: Box) -> dict[str, Box]:
    """Host memories divide the width of the GPUs' row between them."""
    width = (row.width - _BAR_GAP * (len(hosts) - 1)) / len(hosts)
    left = row.x - row.width / 2
    return {
        host: Box(left + i * (width + _BAR_GAP) + width / 2, _HOST_Y, width, _BAR_HEIGHT, host)
        for i, host in enumerate(hosts)
    }


def _lines(topology: dict[str, Any], gpus: dict[str, Box], hosts: dict[str, Box]) -> list[Line]:
    links = {(link["from"], link["to"]): link for link in topology["links"]}
    lines = []
    for (start, end), link in links.items():
        back = links.get((end, start))
        if back is not None and (end, start) < (start, end):
            continue  # drawn with the other direction
        if start in gpus and end in gpus:
            points = _between_gpus(gpus, start, end, link["type"] == "nvswitch")
        elif start in hosts and end in hosts:
            points = [(hosts[start].x, _HOST_Y), (hosts[end].x, _HOST_Y)]
        else:
            gpu, host = (gpus[start], hosts[end]) if start in gpus else (gpus[end], hosts[start])
            points = [
                (gpu.x, gpu.y - gpu.height / 2),
                (_nearest_inside(host, gpu.x), host.y + host.height / 2),
            ]
        backward = back["gbps"] if back else 0
        lines.append(
            Line((start, end), link["type"], link["width"], link["gbps"], backward, points)
        )
    return lines


def _between_gpus(
    gpus: dict[str, Box], start: str, end: str, switched: bool
) -> list[tuple[float, float]]:
    if switched:
        first, second = gpus[start].x, gpus[end].x
        return [(first, 0), (first, _SWITCH_Y), (second, _SWITCH_Y), (second, 0)]
    left, right = sorted((gpus[start].x, gpus[end].x))
    # Arcs leave a GPU side by side: the farther they go, the nearer to its middle.
    inset = _GPU_WIDTH * 0.42 * (1 - (right - left) / len(gpus))
    left, right = left + inset, right - inset
    middle, radius = (left + right) / 2, (right - left) / 2
    return [
        (
            middle - radius * math.cos(math.pi * step / _ARC_STEPS),
            _GPU_HEIGHT / 2 + 0.75 * radius * math.sin(math.pi * step / _ARC_STEPS),
        )
        for step in range(_ARC_STEPS + 1)
    ]


def _nearest_inside(bar: Box, x: float) -> float:
    reach = bar.width / 2 - 0.1
    return min(max(x, bar.x - reach), bar.x + reach)


def _short(name: str) -> str:
    """ "NVIDIA A100-SXM4-40GB" -> "A100-SXM4"."""
    return "-".join(name.removeprefix("NVIDIA ").split("-")[:2])
