"""Plots of benchmarks and of tuned choices, as files. The suffix of the file chooses the format."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from .benchmark import where
from .sizes import format_size

_NATIVE = "#7f7f7f"
_POLYPATH = "#1f6fb4"
_LIMIT = "#c44e52"
_COMPUTE = "#dfe3e8"
_CLASSES = ("#1f6fb4", "#c44e52", "#55a868", "#8172b2", "#937860", "#da8bc3", "#e8a33d", "#4c9fb0")
_PATTERNS = ("one way", "both ways", "window")
_PHASES = {
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


def plot_bench(documents: Sequence[dict[str, Any]], file: Path) -> None:
    """Draws benchmark documents side by side: GB/s over the size for native, polypath and the
    limit, and the speedup below."""
    figure = Figure(figsize=(5.2 * len(documents), 5.6), layout="constrained")
    axes = figure.subplots(2, len(documents), sharex="col", squeeze=False, height_ratios=(2, 1))
    for column, document in enumerate(documents):
        _draw_bandwidth(axes[0][column], document)
        _draw_speedup(axes[1][column], document)
    figure.savefig(file, dpi=150)


def plot_pages(document: dict[str, Any], file: Path) -> None:
    """Draws a document of `polypath bench pages`: GB/s over the size of a block, and the speedup
    below, a column for each direction."""
    native = f"the driver's {document['rows'][0]['native']}"
    _plot_sizes(document, file, "block_bytes", native, "bytes a block")


def plot_load(document: dict[str, Any], file: Path) -> None:
    """Draws a document of `polypath bench load`, as `plot_pages`, over the bytes of a read."""
    _plot_sizes(document, file, "bytes", "mmap, native copy", "bytes")


def _plot_sizes(
    document: dict[str, Any], file: Path, size_key: str, native: str, axis: str
) -> None:
    pairs = list(dict.fromkeys((row["src"], row["dst"]) for row in document["rows"]))
    figure = Figure(figsize=(5.2 * len(pairs), 5.6), layout="constrained")
    axes = figure.subplots(2, len(pairs), sharex="col", squeeze=False, height_ratios=(2, 1))
    for column, (src, dst) in enumerate(pairs):
        rows = [row for row in document["rows"] if (row["src"], row["dst"]) == (src, dst)]
        sizes = [row[size_key] for row in rows]
        upper, lower = axes[0][column], axes[1][column]
        for key, label, colour in (
            ("polypath_gbps", "polypath", _POLYPATH),
            ("native_gbps", native, _NATIVE),
        ):
            values = [row[key] for row in rows]
            upper.plot(sizes, values, label=label, color=colour, marker="o", markersize=4)
        upper.set_title(f"{src} to {dst}\n{where(document['node'])}", fontsize=10)
        upper.set_ylabel("GB/s")
        upper.set_ylim(bottom=0)
        upper.grid(alpha=0.3)
        upper.legend(loc="lower right", fontsize=8)
        speedups = [row["speedup"] for row in rows]
        lower.plot(sizes, speedups, color=_POLYPATH, marker="o", markersize=4)
        _speedup_over_sizes(lower, axis)
        lower.set_ylim(bottom=0)
    figure.savefig(file, dpi=150)


def plot_spread(document: dict[str, Any], file: Path) -> None:
    """Draws a document of `polypath bench spread`: what each GPU receives over the size, and the
    speedup below."""
    rows = document["rows"]
    sizes = [row["bytes"] for row in rows]
    figure = Figure(figsize=(5.2, 5.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex="col", height_ratios=(2, 1))
    for key, label, style in (
        ("limit_gbps", "limit", {"color": _LIMIT, "linestyle": "--"}),
        ("polypath_gbps", "polypath", {"color": _POLYPATH, "marker": "o"}),
        ("native_gbps", "native copies", {"color": _NATIVE, "marker": "s"}),
    ):
        upper.plot(sizes, [row[key] for row in rows], label=label, markersize=4, **style)
    between = f"{rows[0]['src']} to {len(rows[0]['gpus'])} GPUs"
    upper.set_title(f"{between}\n{where(document['node'])}", fontsize=10)
    upper.set_ylabel("GB/s a GPU")
    upper.set_ylim(bottom=0)
    upper.grid(alpha=0.3)
    upper.legend(loc="lower right", fontsize=8)
    lower.plot(sizes, [row["speedup"] for row in rows], color=_POLYPATH, marker="o", markersize=4)
    _speedup_over_sizes(lower, "bytes")
    lower.set_ylim(bottom=0)
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
    title = f"{document['op']}, {describe_transfers(document)}\n{where(document['node'])}"
    axes.set_title(title, fontsize=10)
    axes.set_ylabel("GB/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)


def _draw_speedup(axes: Axes, document: dict[str, Any]) -> None:
    rows = document["rows"]
    sizes = [row["bytes"] for row in rows]
    axes.plot(sizes, [row["speedup"] for row in rows], color=_POLYPATH, marker="o", markersize=4)
    _speedup_over_sizes(axes, "bytes a transfer")
    axes.set_ylim(bottom=0)


def _speedup_over_sizes(axes: Axes, label: str) -> None:
    """The axes of every plot of speedups, and the line of the native copy."""
    axes.axhline(1, color=_NATIVE, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(int(size))))
    axes.set_xlabel(label)
    axes.set_ylabel("times native")
    axes.grid(alpha=0.3)


def plot_collectives(document: dict[str, Any], file: Path) -> None:
    """Draws a benchmark of collectives: bus bandwidth and time over the size, for polypath and what
    it was compared with."""
    rows = document["rows"]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    bandwidth, latency = figure.subplots(1, 2)
    sizes = [row["bytes"] for row in rows]
    ways = [("polypath", _POLYPATH, "o", rows)]
    if all("baseline" in row for row in rows):
        baseline = [row["baseline"] for row in rows]
        ways.append((baseline[0]["name"], _NATIVE, "s", baseline))
    for label, color, marker, figures in ways:
        style = {"label": label, "color": color, "marker": marker, "markersize": 4}
        bandwidth.plot(sizes, [entry["bus_gbps"] for entry in figures], **style)
        latency.plot(sizes, [entry["us"] for entry in figures], **style)
    limits = [row["limit_bus_gbps"] for row in rows]
    bandwidth.plot(sizes, limits, label="limit", color=_LIMIT, linestyle="--")
    bandwidth.set_ylabel("bus GB/s")
    latency.set_ylabel("us a call")
    latency.set_yscale("log")
    for axes in (bandwidth, latency):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(int(size))))
        axes.set_xlabel("bytes")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    _save(figure, document, file)


def _save(figure: Figure, document: dict[str, Any], file: Path) -> None:
    """With a title that says what was measured, of how many ranks, where."""
    ranks, node = document["rows"][0]["ranks"], document["node"]
    figure.suptitle(f"{document['op']}, {ranks} ranks, {where(node)}", fontsize=10)
    figure.savefig(file, dpi=150)


def plot_uniconn(document: dict[str, Any], file: Path) -> None:
    """Draws a benchmark of UNICONN: time over the size, solid by UNICONN, dashed by the library
    itself, and UNICONN's speedup over it."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    time, ratio = figure.subplots(1, 2)
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in document["rows"]:
        window = f", window {row['window']}" if row.get("window", 1) > 1 else ""
        lines.setdefault(f"{row['backend']}{window}", []).append(row)
    for index, (label, rows) in enumerate(lines.items()):
        color = f"C{index}"
        places = [row.get("bytes") or row.get("matrix") or 0 for row in rows]
        time.plot(places, [row["us"] for row in rows], "o-", color=color, label=label, markersize=4)
        pairs = [(at, row) for at, row in zip(places, rows, strict=True) if row["native_us"]]
        if not pairs:
            continue
        own, compared = zip(*pairs, strict=True)
        time.plot(own, [row["native_us"] for row in compared], "--", color=color)
        ratio.plot(own, [row["speedup"] for row in compared], "o-", color=color, label=label)
        ratio.plot(own, [row["control"] for row in compared], ":", color=color)
    time.set_ylabel("us; dashed: the library itself")
    ratio.set_ylabel("speedup over native; dotted: the library against itself")
    time.set_yscale("log")
    for axes in (time, ratio):
        if all("bytes" in row for row in document["rows"]):
            axes.set_xscale("symlog", base=2)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(int(size))))
            axes.set_xlabel("bytes")
        axes.grid(alpha=0.3)
    time.legend(fontsize=8)
    _save(figure, document, file)


def plot_messaging(document: dict[str, Any], file: Path) -> None:
    """Draws the lines of `polypath bench messaging`: a panel a unit, a bar a line, and what the
    paper of 2017 reached."""
    rows = [row for row in document["rows"] if "value" in row]
    units = list(dict.fromkeys(row["unit"] for row in rows))
    counts = [sum(row["unit"] == unit for row in rows) for unit in units]
    figure = Figure(figsize=(9, 1.4 * len(units) + 0.27 * len(rows)), layout="constrained")
    panels = figure.subplots(len(units), 1, squeeze=False, height_ratios=[1 + n for n in counts])
    for unit, (axes,) in zip(units, panels, strict=True):
        chosen = [row for row in rows if row["unit"] == unit]
        places = range(len(chosen))
        axes.barh(places, [row["value"] for row in chosen], color=_POLYPATH, height=0.6)
        known = [
            (at, row["paper"]) for at, row in zip(places, chosen, strict=True) if "paper" in row
        ]
        if known:
            axes.plot(
                [limit for _, limit in known], [at for at, _ in known], "|", color=_LIMIT, ms=11
            )
        axes.set_yticks(places, [row["line"] for row in chosen], fontsize=7)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlabel(f"{unit}; a stroke: the paper of 2017")
        axes.grid(alpha=0.3, axis="x")
    node = document["node"]
    simulated = " (simulated)" if node["simulated"] else ""
    figure.suptitle(f"{document['op']}, {node['name']}{simulated}", fontsize=10)
    figure.savefig(file, dpi=150)


def plot_tuned(choices: Sequence[dict[str, Any]], node: str, file: Path) -> None:
    """A column a pattern, a line a class of pairs: the speedup over the native copy by size, of the
    faster executor."""
    pairs = sorted({entry["pair"] for entry in choices})
    figure = Figure(figsize=(11, 3.6 + 0.2 * len(pairs)), layout="constrained")
    columns = figure.subplots(1, len(_PATTERNS), sharey=True)
    for axes, pattern in zip(columns, _PATTERNS, strict=True):
        for index, pair in enumerate(pairs):
            best = _best_speedups(choices, pair, pattern)
            axes.plot(
                list(best),
                list(best.values()),
                color=_CLASSES[index % len(_CLASSES)],
                linestyle="-" if index < len(_CLASSES) else "--",
                marker="o",
                markersize=4,
                label=pair,
            )
        _speedup_over_sizes(axes, "bytes a transfer")
        axes.set_title(pattern, fontsize=10)
    columns[1].set_ylabel("")
    columns[2].set_ylabel("")
    handles, labels = columns[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", fontsize=8, frameon=False, ncols=2)
    figure.suptitle(f"Tuned choices of {node}, measured", fontsize=11)
    figure.savefig(file, dpi=150)


def _best_speedups(choices: Sequence[dict[str, Any]], pair: str, pattern: str) -> dict[int, float]:
    best: dict[int, float] = {}
    for entry in sorted(choices, key=lambda entry: entry["bytes"]):
        if (entry["pair"], entry["pattern"]) == (pair, pattern) and entry["native_gbps"]:
            speedup = entry["measured_gbps"] / entry["native_gbps"]
            best[entry["bytes"]] = max(speedup, best.get(entry["bytes"], 0.0))
    return best


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
        _draw_speedups(axes[1][column], chosen, "bytes", "bytes a message")
    figure.suptitle(_title_of_programs(document), fontsize=11)
    figure.savefig(file, dpi=150)


def plot_solver(document: dict[str, Any], file: Path) -> None:
    """Computation and communication, as parts of the baseline's iteration, by the size of the halo,
    and the speedup below."""
    rows = document["rows"]
    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    times, speedup = figure.subplots(2, 1, height_ratios=(2, 1))
    for shift, way, colour in ((-0.2, "baseline", _NATIVE), (0.2, "polypath", _POLYPATH)):
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
    _draw_speedups(speedup, rows, "halo_bytes", "bytes of a halo")
    figure.suptitle(_title_of_programs(document), fontsize=11)
    figure.savefig(file, dpi=150)


def _title_of_programs(document: dict[str, Any]) -> str:
    mesh = document["node"]["emulated_mesh_gbps"]
    emulated = "" if mesh is None else f", emulated mesh of {mesh:g} GB/s a link"
    return f"{document['op']}, {document['ranks']} ranks, {document['node']['name']}{emulated}"


def _draw_figures(axes: Axes, document: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    figure, unit = ("gbps", "GB/s") if "baseline_gbps" in rows[0] else ("latency_us", "us")
    sizes = [row["bytes"] for row in rows]
    for way, name, colour, marker in (
        ("polypath", "polypath", _POLYPATH, "o"),
        ("baseline", document["baseline"], _NATIVE, "s"),
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


def _draw_speedups(axes: Axes, rows: list[dict[str, Any]], key: str, label: str) -> None:
    """The median of the speedups of the pairs of runs, and their range."""
    sizes = [row[key] for row in rows]
    edge: tuple[Callable[..., float], ...] = (min, max)
    low, high = ([pick(row["speedups"]) for row in rows] for pick in edge)
    axes.fill_between(sizes, low, high, color=_POLYPATH, alpha=0.2, linewidth=0)
    axes.plot(sizes, [row["speedup"] for row in rows], color=_POLYPATH, marker="o", markersize=4)
    _speedup_over_sizes(axes, label)
    axes.set_ylabel("speedup")


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
    figure.suptitle(_title_of_phases(document), fontsize=11)
    figure.savefig(file, dpi=150)


def _title_of_phases(document: dict[str, Any]) -> str:
    row, node = document["rows"][0], document["node"]
    return f"CUDA graph, {row['src']} to {row['dst']} via {row['via']}, {where(node)}"


def _draw_times(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    counts = sorted({row["nodes"] for row in rows})
    for key, colour, label, line in _CURVES:
        times = [
            statistics.median(row[key] for row in rows if row["nodes"] == count) for count in counts
        ]
        axes.plot(counts, times, line, color=_PHASES[colour], label=label, marker="o", markersize=4)
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
            color=_PHASES[phase],
            label=_LABELS.get(phase, phase),
            width=0.7,
        )
        below = [low + share for low, share in zip(below, shares, strict=True)]
    axes.set_xticks(range(len(rows)), [format_size(row["bytes"]) for row in rows])
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_ylabel(f"{iteration} iteration")
