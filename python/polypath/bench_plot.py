"""Plots, as files: a benchmark over sizes, and a node. The suffix of the file chooses the
format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from .sizes import format_size

_NATIVE = "#7f7f7f"
_POLYPATH = "#1f6fb4"
_LIMIT = "#c44e52"


def plot_bench(documents: Sequence[dict[str, Any]], file: Path) -> None:
    """Draws benchmark documents side by side: GB/s over the size for native, polypath and the
    limit, and the speedup below."""
    figure = Figure(figsize=(5.2 * len(documents), 5.6), layout="constrained")
    axes = figure.subplots(2, len(documents), sharex="col", squeeze=False, height_ratios=(2, 1))
    for column, document in enumerate(documents):
        _draw_bandwidth(axes[0][column], document)
        _draw_speedup(axes[1][column], document)
    figure.savefig(file, dpi=150)


def describe_transfers(document: dict[str, Any]) -> str:
    """ "gpu0 to gpu1", or how many transfers there are at once."""
    row = document["rows"][0]
    if len(row.get("transfers", [])) > 2:
        return f"{len(row['transfers'])} transfers at once"
    between = "and" if "transfers" in row else "to"
    return f"{row['src']} {between} {row['dst']}"


def _draw_bandwidth(axes: Axes, document: dict[str, Any]) -> None:
    rows = document["rows"]
    sizes = [row["bytes"] for row in rows]
    curves: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("limit_gbps", "limit", {"color": _LIMIT, "linestyle": "--"}),
        ("polypath_gbps", "polypath", {"color": _POLYPATH, "marker": "o"}),
        ("native_gbps", "native copy", {"color": _NATIVE, "marker": "s"}),
    )
    for key, label, style in curves:
        axes.plot(sizes, [row[key] for row in rows], label=label, markersize=4, **style)
    node = document["node"]
    where = f"{node['name']} (simulated, virtual time)" if node["simulated"] else node["name"]
    axes.set_title(f"{document['op']}, {describe_transfers(document)}\n{where}", fontsize=10)
    axes.set_ylabel("GB/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)


def _draw_speedup(axes: Axes, document: dict[str, Any]) -> None:
    rows = document["rows"]
    sizes = [row["bytes"] for row in rows]
    axes.axhline(1, color=_NATIVE, linewidth=1)
    axes.plot(sizes, [row["speedup"] for row in rows], color=_POLYPATH, marker="o", markersize=4)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(int(size))))
    axes.set_xlabel("bytes a transfer")
    axes.set_ylabel("times native")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
