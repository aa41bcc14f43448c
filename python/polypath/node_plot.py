"""Draws a node: GPUs in a row; above them the links between them as arcs, or an NVSwitch; below
them the host memories. GPUs of a large full mesh are a circle. A line's width is its capacity, its
colour its type; the legend gives the figures of all links that are alike once, and the capacities
that links share.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from .link_names import LINK_TYPES, shared_capacities
from .sizes import short_figure

_COLOURS = {
    "nvlink": "#3a8f3a",
    "nvswitch": "#1f6fb4",
    "pcie": "#d08a1d",
    "c2c": "#7b52ab",
    "bounce": "#9a9a9a",
}
_THINNEST, _WIDEST = 1.0, 8.0  # points
_SWITCH = "NVSwitch"

# Geometry; the unit is the GPUs' spacing.
_GPU_WIDTH, _GPU_HEIGHT = 0.7, 0.32
_BAR_HEIGHT = 0.28
_SWITCH_Y, _HOST_Y = 0.85, -1.05
_BAR_GAP = 0.6
_ARC_STEPS = 48
_MIN_CIRCLE = 6
"""GPUs of a full mesh from which on arcs would be a tangle."""
_WIDEST_FIGURE = 16.0  # inches


def plot_node(topology: dict[str, Any], file: Path) -> None:
    """Draws `Context.topology` into a file; its suffix chooses the format."""
    boxes, lines = layout(topology)
    most = max(line.capacity for line in lines)
    styles = {line.label: _style(line, most) for line in lines}
    gpus = len(topology["gpus"])
    is_circle = _is_large_mesh(topology)
    width = min(max(6.5, 1.5 * gpus + 1.5), _WIDEST_FIGURE)
    figure = Figure(figsize=(9, 11) if is_circle else (width, 6), layout="constrained")
    axes = figure.subplots()
    if is_circle:
        axes.set_aspect("equal")
    for line in lines:
        axes.plot(*zip(*line.points, strict=True), zorder=1, **styles[line.label])
    for box in boxes:
        axes.add_patch(_patch(box))
        size = 8 if gpus * 1.5 < _WIDEST_FIGURE else 7
        axes.text(box.x, box.y, box.text, ha="center", va="center", fontsize=size, zorder=3)
    axes.set_title(topology["title"] or topology["name"], fontsize=11)
    axes.set_axis_off()
    axes.margins(0.02)
    entries = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    shared = [f"shared: {capacity}" for capacity in shared_capacities(topology)]
    entries += [Line2D([], [], linestyle="", label=capacity) for capacity in shared]
    figure.legend(handles=entries, loc="outside lower center", fontsize=8, frameon=False, ncols=2)
    figure.savefig(file, dpi=150)


def _style(line: Line, most: float) -> dict[str, Any]:
    return {
        "color": _COLOURS[line.type],
        "linewidth": max(_THINNEST, _WIDEST * line.capacity / most),
        "linestyle": ":" if line.type == "bounce" else "-",
        "solid_capstyle": "butt",
    }


def _patch(box: Box) -> FancyBboxPatch:
    return FancyBboxPatch(
        (box.x - box.width / 2, box.y - box.height / 2),
        box.width,
        box.height,
        boxstyle="round,pad=0,rounding_size=0.05",
        facecolor="#f2f2f2",
        edgecolor="#444444",
        zorder=2,
    )


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
        if all(end.startswith("host") for end in self.ends):
            what += " to another host memory"
        if self.forward == self.backward:
            return f"{what}: {short_figure(self.forward)} GB/s a direction"
        target = self.ends[1].rstrip("0123456789")
        forward, backward = short_figure(self.forward), short_figure(self.backward)
        return f"{what}: {forward} GB/s to a {target}, {backward} from it"


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
    """Places every memory of `Context.topology`, and every pair of linked ones once. Links by an
    NVSwitch are one line from each GPU to the switch, and those to other host memories than the
    nearest one line between the two."""
    names = [host["id"] for host in topology["hosts"]]
    if _is_large_mesh(topology):
        gpus = _circle(topology["gpus"])
        radius = _radius(len(gpus))
        bottom = Box(0, -radius, 2 * radius + _GPU_WIDTH, 0, "")
        hosts = _host_bars(names, bottom)
        return Layout([*gpus.values(), *hosts.values()], _pair_lines(topology, gpus, hosts))
    gpus = {gpu["id"]: _gpu_box(gpu, i, 0) for i, gpu in enumerate(topology["gpus"])}
    row = Box((len(gpus) - 1) / 2, 0, len(gpus) - 1 + _GPU_WIDTH, 0, "")
    hosts = _host_bars(names, row)
    boxes = [*gpus.values(), *hosts.values()]
    lines = _switch_lines(topology, gpus)
    if lines:
        boxes.append(Box(row.x, _SWITCH_Y, row.width, _BAR_HEIGHT, _SWITCH))
    return Layout(boxes, lines + _pair_lines(topology, gpus, hosts))


def _is_large_mesh(topology: dict[str, Any]) -> bool:
    gpus = [gpu["id"] for gpu in topology["gpus"]]
    own = {(link["from"], link["to"]) for link in topology["links"] if link["type"] != "nvswitch"}
    return len(gpus) >= _MIN_CIRCLE and all((a, b) in own for a in gpus for b in gpus if a != b)


def _gpu_box(gpu: dict[str, Any], x: float, y: float) -> Box:
    return Box(x, y, _GPU_WIDTH, _GPU_HEIGHT, f"{gpu['id']}\n{_short(gpu['name'])}")


def _radius(gpus: int) -> float:
    return 0.375 * gpus


def _circle(gpus: list[dict[str, Any]]) -> dict[str, Box]:
    """The first half goes down on the left, where the first host memory is. The circle is turned a
    quarter of a step, so that no GPU is straight above another: each has a way down."""
    boxes = {}
    for i, gpu in enumerate(gpus):
        angle = 2 * math.pi * (i + 0.25) / len(gpus)
        radius = _radius(len(gpus))
        boxes[gpu["id"]] = _gpu_box(gpu, -radius * math.sin(angle), radius * math.cos(angle))
    return boxes


def _host_bars(hosts: list[str], row: Box) -> dict[str, Box]:
    """Host memories divide the width of the GPUs' row between them."""
    width = (row.width - _BAR_GAP * (len(hosts) - 1)) / len(hosts)
    left = row.x - row.width / 2
    return {
        host: Box(
            left + i * (width + _BAR_GAP) + width / 2, row.y + _HOST_Y, width, _BAR_HEIGHT, host
        )
        for i, host in enumerate(hosts)
    }


def _switch_lines(topology: dict[str, Any], gpus: dict[str, Box]) -> list[Line]:
    switched = [link for link in topology["links"] if link["type"] == "nvswitch"]
    lines = []
    for gpu, box in gpus.items():
        to = [link for link in switched if link["from"] == gpu]
        back = [link["gbps"] for link in switched if link["to"] == gpu]
        if to:
            rates = max(link["gbps"] for link in to), max(back, default=0)
            points = [(box.x, _GPU_HEIGHT / 2), (box.x, _SWITCH_Y - _BAR_HEIGHT / 2)]
            lines.append(Line((gpu, _SWITCH), "nvswitch", to[0]["width"], *rates, points))
    return lines


def _pair_lines(
    topology: dict[str, Any], gpus: dict[str, Box], hosts: dict[str, Box]
) -> list[Line]:
    links = {
        (link["from"], link["to"]): link for link in topology["links"] if link["type"] != "nvswitch"
    }
    host_of = {host["numa"]: host["id"] for host in topology["hosts"]}
    nearest = {
        gpu["id"]: host_of[gpu["numa"]] for gpu in topology["gpus"] if gpu["numa"] in host_of
    }
    between_hosts: set[frozenset[str]] = set()
    lines = []
    for (start, end), link in links.items():
        back = links.get((end, start))
        if back is not None and (end, start) < (start, end):
            continue  # drawn with the other direction
        if start in gpus and end in gpus:
            points = _between(gpus, start, end)
        else:
            gpu, host = (start, end) if start in gpus else (end, start)
            near = nearest.get(gpu, host)
            if gpu in gpus and host == near:
                points = _down(gpus[gpu], hosts[host])
            else:
                start, end = (near, host) if gpu in gpus else (start, end)
                if frozenset((start, end)) in between_hosts:
                    continue
                between_hosts.add(frozenset((start, end)))
                points = [(hosts[start].x, hosts[start].y), (hosts[end].x, hosts[end].y)]
        backward = back["gbps"] if back else 0
        lines.append(
            Line((start, end), link["type"], link["width"], link["gbps"], backward, points)
        )
    return lines


def _between(gpus: dict[str, Box], start: str, end: str) -> list[tuple[float, float]]:
    if len({box.y for box in gpus.values()}) > 1:  # a circle
        return [(gpus[start].x, gpus[start].y), (gpus[end].x, gpus[end].y)]
    return _arc(gpus, start, end)


def _arc(gpus: dict[str, Box], start: str, end: str) -> list[tuple[float, float]]:
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


def _down(gpu: Box, host: Box) -> list[tuple[float, float]]:
    """From a GPU to the nearest place of a host memory's bar."""
    reach = host.width / 2 - 0.1
    x = min(max(gpu.x, host.x - reach), host.x + reach)
    return [(gpu.x, gpu.y - gpu.height / 2), (x, host.y + host.height / 2)]


def _short(name: str) -> str:
    """ "NVIDIA A100-SXM4-40GB" -> "A100-SXM4", "NVIDIA H100 80GB HBM3" -> "H100"."""
    model = name.removeprefix("NVIDIA ").removeprefix("Tesla ")
    return "-".join(model.split(" 80GB")[0].split("-")[:2])
