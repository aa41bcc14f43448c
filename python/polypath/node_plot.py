"""Draws a node. A line's width is its capacity, its colour its type; the legend gives the figures
of all links that are alike once, and the capacities that links share.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from .links import shared_capacities
from .node_layout import Box, Line, layout

_COLOURS = {
    "nvlink": "#3a8f3a",
    "nvswitch": "#1f6fb4",
    "pcie": "#d08a1d",
    "c2c": "#7b52ab",
    "bounce": "#9a9a9a",
}
_THINNEST, _WIDEST = 1.0, 8.0  # points


def plot_node(topology: dict[str, Any], file: Path) -> None:
    """Draws `Context.topology` into a file; its suffix chooses the format."""
    boxes, lines = layout(topology)
    most = max(line.capacity for line in lines)
    styles = {line.label: _style(line, most) for line in lines}
    figure = Figure(figsize=(max(6.5, 1.5 * len(topology["gpus"]) + 1.5), 6), layout="constrained")
    axes = figure.subplots()
    for line in lines:
        axes.plot(*zip(*line.points, strict=True), zorder=1, **styles[line.label])
    for box in boxes:
        axes.add_patch(_patch(box))
        axes.text(box.x, box.y, box.text, ha="center", va="center", fontsize=8, zorder=3)
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
