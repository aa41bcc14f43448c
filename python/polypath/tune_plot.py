"""Plot of a tuned profile: what the cost model predicted against what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

_MARKERS = {"one way": "o", "both ways": "s", "window": "^"}
_COLOURS = ("#1f6fb4", "#c44e52", "#55a868", "#8172b2", "#937860", "#da8bc3")


def plot_tuned(choices: Sequence[dict[str, Any]], node: str, file: Path) -> None:
    """A point a choice: measured GB/s over predicted GB/s, and the line where both are equal.
    Colours are classes of pairs, shapes are patterns; hollow points run as graphs."""
    figure = Figure(figsize=(7.0, 5.6), layout="constrained")
    axes = figure.subplots()
    pairs = sorted({one["pair"] for one in choices})
    for index, pair in enumerate(pairs):
        colour = _COLOURS[index % len(_COLOURS)]
        for pattern, marker in _MARKERS.items():
            for executor, face in (("stream", colour), ("graph", "none")):
                points = [
                    one
                    for one in choices
                    if (one["pair"], one["pattern"], one["executor"]) == (pair, pattern, executor)
                ]
                if not points:
                    continue
                axes.scatter(
                    [one["predicted_gbps"] for one in points],
                    [one["measured_gbps"] for one in points],
                    marker=marker,
                    facecolors=face,
                    edgecolors=colour,
                    s=36,
                    label=f"{pair}; {pattern}" if executor == "stream" else None,
                )
    most = max((max(one["predicted_gbps"], one["measured_gbps"]) for one in choices), default=1.0)
    axes.plot([0, most], [0, most], color="#7f7f7f", linewidth=1, label="as predicted")
    axes.set_xlabel("predicted GB/s")
    axes.set_ylabel("measured GB/s")
    axes.set_title(f"Tuned choices of {node}; hollow: as graphs", fontsize=10)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    figure.savefig(file, dpi=150)
