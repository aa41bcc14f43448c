"""Plots of `polypath bench mpi` and `polypath bench jacobi`, as files. The suffix of the file
chooses the format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ..sizes import format_size

_BASELINE = "#7f7f7f"
_POLYPATH = "#1f6fb4"
_COMPUTE = "#dfe3e8"


def plot_messages(document: dict[str, Any], file: Path) -> None:
    """A column a window: bandwidth or latency over the size with and without polypath, and the
    speedup below."""
    rows = document["rows"]
    windows = sorted({row["window"] for row in rows})
    figure = Figure(figsize=(4.6 * len(windows), 5.6), layout="constrained")
    axes = figure.subplots(
        2, len(windows), sharex="col", sharey="row", squeeze=False, height_ratios=(2, 1)
    )
    for column, window in enumerate(windows):
        chosen = [row for row in rows if row["window"] == window]
        _draw_figures(axes[0][column], document, chosen)
        axes[0][column].set_title(f"window {window}", fontsize=10)
        _draw_speedup(axes[1][column], chosen, "bytes", "bytes a message")
    figure.suptitle(_title(document), fontsize=11)
    figure.savefig(file, dpi=150)


def plot_solver(document: dict[str, Any], file: Path) -> None:
    """Computation and communication, as parts of the baseline's iteration, by the size of the halo,
    and the speedup below."""
    rows = document["rows"]
    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    times, speedup = figure.subplots(2, 1, height_ratios=(2, 1))
    for shift, way, colour in ((-0.2, "baseline", _BASELINE), (0.2, "polypath", _POLYPATH)):
        places = [place + shift for place in range(len(rows))]
        compute, communication = (
            [row[way][part] / row["baseline"]["iteration_us"] for row in rows]
            for part in ("compute_us", "communication_us")
        )
        name = document["baseline"] if way == "baseline" else way
        label = "computation" if way == "baseline" else None
        times.bar(places, compute, 0.38, color=_COMPUTE, label=label)
        times.bar(
            places, communication, 0.38, compute, color=colour, label=f"communication, {name}"
        )
    labels = [f"{format_size(row['elements'])}\n{format_size(row['halo_bytes'])}" for row in rows]
    times.set_xticks(range(len(rows)), labels, fontsize=8)
    times.set_xlabel("elements; bytes of a halo")
    times.set_ylabel(f"of an iteration, {document['baseline']}")
    times.set_ylim(0, 1.35)
    times.legend(fontsize=8, loc="upper left", ncols=3)
    _draw_speedup(speedup, rows, "halo_bytes", "bytes of a halo")
    figure.suptitle(_title(document), fontsize=11)
    figure.savefig(file, dpi=150)


def _title(document: dict[str, Any]) -> str:
    mesh = document["node"]["emulated_mesh_gbps"]
    emulated = "" if mesh is None else f", emulated mesh of {mesh:g} GB/s a link"
    return f"{document['op']}, {document['ranks']} ranks, {document['node']['name']}{emulated}"


def _draw_figures(axes: Axes, document: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    figure, unit = ("gbps", "GB/s") if "baseline_gbps" in rows[0] else ("latency_us", "us")
    sizes = [row["bytes"] for row in rows]
    for way, name, colour, marker in (
        ("polypath", "polypath", _POLYPATH, "o"),
        ("baseline", document["baseline"], _BASELINE, "s"),
    ):
        values = [row[f"{way}_{figure}"] for row in rows]
        axes.plot(sizes, values, label=name, color=colour, marker=marker, markersize=4)
    axes.set_ylabel(unit)
    if figure == "gbps":
        axes.set_ylim(bottom=0)
    else:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _draw_speedup(axes: Axes, rows: list[dict[str, Any]], key: str, label: str) -> None:
    """The median of the speedups of the pairs of runs, and their range."""
    sizes = [row[key] for row in rows]
    edge: tuple[Callable[..., float], ...] = (min, max)
    low, high = ([pick(row["speedups"]) for row in rows] for pick in edge)
    axes.axhline(1, color=_BASELINE, linewidth=1)
    axes.fill_between(sizes, low, high, color=_POLYPATH, alpha=0.2, linewidth=0)
    axes.plot(sizes, [row["speedup"] for row in rows], color=_POLYPATH, marker="o", markersize=4)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(int(size))))
    axes.set_xlabel(label)
    axes.set_ylabel("speedup")
    axes.grid(alpha=0.3)
