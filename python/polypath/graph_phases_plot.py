"""Plot of the phases of a CUDA graph, as a file: their times by number of nodes, and their parts of
the latency by message size. The suffix of the file chooses the format."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from .sizes import format_size

_COLOURS = {
    "create": "#8c8c8c",
    "construct": "#dd8452",
    "instantiate": "#c44e52",
    "launch": "#1f6fb4",
    "wait": "#dfe3e8",
    "patch": "#4f9a5b",
    "later launch": "#8fc1e3",
}
_LABELS = {"wait": "wait for the bytes"}
# Key, colour, label, line: of the first iteration, then of later ones.
_CURVES: tuple[tuple[str, str, str, str], ...] = (
    ("create_us", "create", "create", "-"),
    ("construct_us", "construct", "construct", "-"),
    ("instantiate_us", "instantiate", "instantiate", "-"),
    ("first_launch_us", "launch", "first launch", "-"),
    ("launch_us", "later launch", "later launch", "--"),
    ("patch_us", "patch", "patch", "--"),
)


def plot_graph_phases(document: dict[str, Any], file: Path) -> None:
    """Draws a document of `polypath bench graph-phases`. Left: the CPU time of each phase by number
    of nodes, the median over the sizes. Right: of the largest number of nodes, each phase's part of
    the latency of a first and of a later iteration, by message size."""
    rows = document["rows"]
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    axes = figure.subplot_mosaic([["times", "first"], ["times", "later"]], width_ratios=(1, 1.15))
    _draw_times(axes["times"], rows)
    nodes = max(row["nodes"] for row in rows)
    largest = [row for row in rows if row["nodes"] == nodes]
    for iteration in ("first", "later"):
        _draw_parts(axes[iteration], largest, iteration)
    axes["first"].set_title(f"parts of the latency, {nodes} nodes", fontsize=10)
    axes["first"].tick_params(labelbottom=False)
    axes["later"].set_xlabel("bytes of the message")
    handles, labels = axes["first"].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower right", ncols=len(labels), fontsize=8)
    figure.suptitle(_title(document), fontsize=11)
    figure.savefig(file, dpi=150)


def _title(document: dict[str, Any]) -> str:
    row, node = document["rows"][0], document["node"]
    where = f"{node['name']} (simulated, virtual time)" if node["simulated"] else node["name"]
    return f"CUDA graph, {row['src']} to {row['dst']} via {row['via']}, {where}"


def _draw_times(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    counts = sorted({row["nodes"] for row in rows})
    for key, colour, label, line in _CURVES:
        times = [
            statistics.median(row[key] for row in rows if row["nodes"] == count) for count in counts
        ]
        axes.plot(
            counts, times, line, color=_COLOURS[colour], label=label, marker="o", markersize=4
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda us, _: f"{us:g}"))
    axes.set_xlabel("nodes of the graph")
    axes.set_ylabel("CPU time of the phase, us")
    axes.set_title("times of the phases", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _draw_parts(axes: Axes, rows: Sequence[dict[str, Any]], iteration: str) -> None:
    below = [0.0] * len(rows)
    for phase in rows[0]["parts"][iteration]:
        shares = [row["parts"][iteration][phase] for row in rows]
        axes.bar(
            range(len(rows)),
            shares,
            bottom=below,
            color=_COLOURS[phase],
            label=_LABELS.get(phase, phase),
            width=0.7,
        )
        below = [low + share for low, share in zip(below, shares, strict=True)]
    axes.set_xticks(range(len(rows)), [format_size(row["bytes"]) for row in rows])
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_ylabel(f"{iteration} iteration")
