"""`polypath bench` and `polypath demo`: native copy against polypath, verified; and what all
benchmarks of the command line share."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape

from ..benchmark import Operation, Pair, document, run, transfers_of, where
from ..context import Context
from ..errors import InvalidArgument, NoDevice, PolypathError
from ..sizes import figure, format_size, parse_sizes
from . import bench_beside, options
from .arguments import Argument, Option, one_of
from .output import PlainTable, console, print_lines, progress, ratio, times, write_json, yes

_DEMO_NODE = "narval"
_CAPTION = "GB/s (1e9 bytes/s), medians; gpu2 28%/9: 28% of the bytes via gpu2 in 9 chunks"

Show = Callable[[Sequence[dict[str, Any]]], None]
Draw = Callable[[dict[str, Any], Path], None]


def collect(
    title: str, names: Sequence[str], reports: Generator[dict[str, Any], None, None], show: Show
) -> list[dict[str, Any]]:
    """The rows of a benchmark: takes one report for each of these names, with progress on stderr,
    and shows them at the end, also when a later one fails. Closes the reports in every case."""
    rows: list[dict[str, Any]] = []
    try:
        with contextlib.closing(reports), progress(title) as step:
            for done, name in enumerate(names):
                step(done, len(names), name)
                rows.append(next(reports))
            step(len(names), len(names), "done")
    except PolypathError:
        if rows:
            show(rows)
        raise
    show(rows)
    return rows


def finish(
    result: dict[str, Any], out: Console, json: str | None, plot: Path | None, draw: Draw
) -> None:
    """Writes and draws the document of a benchmark; leaves with exit code 1 when a row is not
    verified. Raises `PolypathError` when the shim had to catch copies and caught none: then a
    program was compared with itself."""
    write_json(result, json)
    if plot is not None:
        draw(result, plot)
        print_lines(out, f"drawn in {plot}")
    if result.get("statistics", {}).get("calls") == 0:
        raise PolypathError(
            "no copy was caught, so the program was compared with itself: "
            "`polypath doctor` says what is wrong"
        )
    if not all(row["verified"] for row in result["rows"]):
        raise SystemExit(1)


def command_line() -> str:
    """The command as it was typed, however Python was started."""
    return shlex.join(["polypath", *sys.argv[1:]])


class Executor(StrEnum):
    """How schedules are run."""

    auto = "auto"
    stream = "stream"
    graph = "graph"


def bench(
    operation: Annotated[
        Operation,
        Argument(
            "OPERATION",
            "p2p: GPU to GPU; h2d: host to GPU; d2h: GPU to host; bidir: both directions of a "
            "pair; ring: each GPU to the next; pageable: host memory that is not pinned, to the "
            "GPU and back.",
            read=one_of(Operation),
        ),
    ],
    *,
    src: Annotated[
        str | None, options.text_option("--src", "Source, such as gpu0 or host0.")
    ] = None,
    dst: Annotated[
        str | None, options.text_option("--dst", "Destination, such as gpu1 or host0.")
    ] = None,
    sizes: options.Sizes = None,
    iterations: Annotated[
        int | None,
        options.count_option("--iterations", "Timed pairs; default 20, simulated 1.", 1),
    ] = None,
    warmup: Annotated[
        int | None,
        options.count_option("--warmup", "Untimed pairs first; default 3, simulated 1.", 1),
    ] = None,
    both_directions: Annotated[
        bool, Option("--both-directions", "ring: also each GPU to the one before it.")
    ] = False,
    routes: options.Routes = None,
    executor: Annotated[
        Executor | None,
        Option(
            "--executor",
            "What runs transfers: auto (what was tuned, or streams), stream, graph.",
            metavar="KIND",
            read=one_of(Executor),
        ),
    ] = None,
    compare_executors: Annotated[
        bool,
        Option("--compare-executors", "Also time each plan as streams against the same as graphs."),
    ] = False,
    window: Annotated[
        list[int] | None,
        Option(
            "--window",
            "p2p, bidir: so many transfers outstanding before waiting, such as 1,4,16.",
            metavar="COUNTS",
            read=options.window_list,
        ),
    ] = None,
    beside: bench_beside.BesideOptions,
    beside_same_process: bench_beside.SameProcess = False,
    emulate_mesh: options.EmulateMesh = None,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Compare native copies with polypath, in alternating pairs; every byte is compared.

    GB/s are medians. For bidir, ring and windows, bytes count a transfer and GB/s are sums. Exit
    code 1 when a row is not verified. `polypath bench graph-phases`, `polypath bench mpi` and
    `polypath bench jacobi` have options of their own.
    """
    if window is not None and operation not in (Operation.p2p, Operation.bidir):
        raise InvalidArgument(f"--window is for p2p and bidir, not for {operation}")
    excluded = {"--window": window, "--compare-executors": compare_executors, "--plot": plot}
    traffic = beside.traffic(excluded, beside_same_process)
    chosen = None if executor is None else str(executor)
    settings = {"routes": routes, "executor": chosen, "emulate_mesh": emulate_mesh}
    out = console(json)
    with Context(node=node, **settings) as context:
        pairs = transfers_of(operation, context.topology(), src, dst, both_directions)
        # What is not pinned goes alone: a copy of it returns when it is done.
        alone = operation is Operation.pageable
        results = []
        for group in [[pair] for pair in pairs] if alone else [pairs]:
            if traffic is None:
                result = measure(
                    *(context, out, operation, group, sizes, iterations, warmup, window),
                    compare_executors,
                )
            else:
                result = bench_beside.measure_beside(
                    context, out, operation, group, traffic, node, sizes, iterations, warmup
                )
            results.append(result)

    def draw(_: dict[str, Any], file: Path) -> None:
        from ..plots import plot_bench

        plot_bench(results, file)

    rows = [row for result in results for row in result["rows"]]
    finish({**results[0], "rows": rows}, out, json, plot, draw)


def demo(
    *,
    node: options.Node = None,
    sizes: options.Sizes = None,
    out: Annotated[
        Path,
        Option("--out", "Folder of the plot; made when missing.", metavar="FOLDER", read=Path),
    ] = Path("out"),
    json: options.Json = None,
) -> None:
    """Compare native copies with polypath on this machine's GPUs, or on a simulated node where
    there are none, and save a plot (with matplotlib)."""
    plots = options.has_matplotlib()
    if plots:
        out.mkdir(parents=True, exist_ok=True)
    printer = console(json)
    context, first_line = _open(node)
    print_lines(printer, first_line)
    results: list[dict[str, Any]] = []
    with context:
        topology = context.topology()
        operations = [Operation.p2p, Operation.h2d]
        if len(topology["gpus"]) < 2:
            operations.remove(Operation.p2p)
        for operation in operations:
            pairs = transfers_of(operation, topology)
            some = sizes or parse_sizes("1M:512M")
            results.append(measure(context, printer, operation, pairs, some))

    if plots:
        from ..plots import plot_bench

        plot = out / f"demo-{topology['name'].replace(' ', '-').replace('/', '-')}.png"
        plot_bench(results, plot)
        print_lines(printer, f"plot: {plot}")
    else:
        print_lines(printer, f"no plot: {options.NEED_OF_PLOTS}")
    write_json(results, json)
    if not all(row["verified"] for result in results for row in result["rows"]):
        raise SystemExit(1)


def _open(node: str | None) -> tuple[Context, str]:
    """A context, and one line that says what it runs on."""
    try:
        context = Context(node=node)
    except NoDevice:
        context = Context(node=_DEMO_NODE)
        return context, f"No GPU here, so a node is simulated: {where(context.topology())}"
    topology = context.topology()
    if topology["simulated"]:
        return context, f"The node is simulated: {where(topology)}"
    return context, f"This machine: {topology['title'] or topology['name']}"


def measure(
    context: Context,
    out: Console,
    operation: Operation,
    pairs: Sequence[Pair],
    sizes: Sequence[int] | None = None,
    iterations: int | None = None,
    warmup: int | None = None,
    windows: Sequence[int] | None = None,
    compare_executors: bool = False,
) -> dict[str, Any]:
    """Runs the rows, prints their table, and returns the document. None stands for the defaults; in
    virtual time, one pair tells all."""
    simulated = context.topology()["simulated"]
    sizes = sizes or parse_sizes("1M:512M" if simulated else "1M:1G")
    iterations = iterations or (1 if simulated else 20)
    warmup = warmup or (1 if simulated else 3)
    print_lines(out, heading(operation, pairs, context.topology()))
    runs = [(size, window) for window in windows or (1,) for size in sizes]
    names = [format_size(size) + (f" x {window}" if windows else "") for size, window in runs]
    reports = run(context, pairs, runs, iterations, warmup, compare_executors)

    def show(rows: Sequence[dict[str, Any]]) -> None:
        out.print(bench_table(rows))
        if compare_executors:
            out.print(executor_table(rows))

    rows = collect(operation, names, reports, show)
    return document(context, operation, rows, command_line())


def heading(operation: Operation, pairs: Sequence[Pair], topology: dict[str, Any]) -> str:
    """ "p2p, gpu0 to gpu1, on narval (simulated, virtual time)"."""
    between = ", ".join(f"{pair.src} to {pair.dst}" for pair in pairs[:2])
    if len(pairs) > 2:
        between = f"{len(pairs)} transfers at once, {between} ..."
    return f"{operation}, {between}, on {where(topology)}"


def bench_table(rows: Sequence[dict[str, Any]]) -> PlainTable:
    """One row a size: native copy, polypath, and how near that is to the limit. GB/s."""
    keys = ("window", "size") if any(row["window"] > 1 for row in rows) else ("size",)
    figures = ("native", "polypath", "speedup", "limit", "of limit")
    table = PlainTable(
        *(*keys, *figures, "verified", "executor", "routes"),
        right=(*keys, *figures),
        wrap=("routes",),
        keys=len(keys),
        caption=_CAPTION,
    )
    for row in rows:
        table.add_row(
            *((str(row["window"]),) if "window" in keys else ()),
            format_size(row["bytes"]),
            figure(row["native_gbps"]),
            figure(row["polypath_gbps"]),
            times(row["speedup"]),
            figure(row["limit_gbps"]),
            ratio(row["polypath_gbps"], row["limit_gbps"], "{:.0%}"),
            yes(row["verified"]),
            executor_text(row),
            escape(routes_text(row)),
        )
    return table


def executor_table(rows: Sequence[dict[str, Any]]) -> PlainTable:
    """Streams against graphs for the same plans: time on the GPUs, and of the CPU to issue."""
    figures = ("size", "copies", "stream", "graph", "stream CPU", "graph CPU", "graph/stream CPU")
    table = PlainTable(*figures, right=figures, caption="us, medians of alternating pairs")
    for row in rows:
        compared = row["executors"]
        if compared is None:
            continue
        table.add_row(
            format_size(row["bytes"]),
            str(row["copies"]),
            *(
                figure(compared[name])
                for name in ("stream_us", "graph_us", "stream_issue_us", "graph_issue_us")
            ),
            ratio(compared["graph_issue_us"], compared["stream_issue_us"]),
        )
    return table


def counted_text(counted: dict[str, Any]) -> str:
    """ "direct 91%, host0 8%, native 1%": how the transfers of a window went, all together."""
    shares: dict[str, float] = {}
    for route in counted["routes"]:
        name = route["route"].removeprefix("via ")
        shares[name] = shares.get(name, 0.0) + route["share"]
    shares["native"] = counted["native_share"]
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)


def executor_text(row: dict[str, Any]) -> str:
    """What carried the transfers that were split."""
    split, graphs = row["counted"]["split"], row["counted"]["graphs"]
    if split == 0:
        return "-"
    return "stream" if graphs == 0 else "graph" if graphs >= split else "both"


def routes_text(row: dict[str, Any]) -> str:
    """ "direct 32%, gpu2 31%/8": shares, and the chunks of staged routes. For several transfers,
    how many routes there are of each kind."""
    if row["window"] > 1:
        return counted_text(row["counted"])
    if row["native"]:
        return f"native: {row['reason']}"
    if "transfers" in row:
        counts: dict[str, int] = {}
        for route in row["routes"]:
            kind = route["route"].rstrip("0123456789")
            counts[kind] = counts.get(kind, 0) + 1
        return ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return ", ".join(
        f"{route['route'].removeprefix('via ')} {route['share']:.0%}"
        + (f"/{route['chunks']}" if route["chunks"] > 1 else "")
        for route in row["routes"]
    )
