"""`polypath bench pages`: batches of small blocks at random places, the driver's batch against
polypath's."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape

from ..benchmark import Operation, Pair, clock_lines, document, transfers_of, where
from ..beside import Traffic, require_possible, run_blocks
from ..context import Context
from ..sizes import figure, format_size, parse_sizes
from . import bench_beside, options
from .arguments import Option, whole
from .bench import collect, command_line, finish
from .output import PlainTable, console, print_lines, times, yes

OPERATION = "pages"
_ALLOWED = (Operation.h2d, Operation.d2h, Operation.p2p)
_CAPTION = (
    "GB/s (1e9 bytes/s), medians, from the call to the end of the copies; CPU: us of a call; "
    "gpu2 28%: 28% of the bytes by the kernel of gpu2"
)
_QUEUED = "; queued: polypath on a stream that holds work when the call begins"
# Bytes of all blocks, where no count is given.
_MOST_BYTES = 1 << 30
_MOST_BLOCKS = 16384
_MOST_SIMULATED = 64 << 20


def operations(text: str) -> list[Operation]:
    """Reads ``--test``: h2d, d2h, p2p, or a list of these."""
    chosen = [part.strip() for part in text.split(",")]
    if not chosen or any(part not in [str(each) for each in _ALLOWED] for part in chosen):
        raise ValueError(f"'{text}' is no list of h2d, d2h, p2p")
    return [Operation(part) for part in dict.fromkeys(chosen)]


def bench_pages(
    *,
    test: Annotated[
        list[Operation] | None,
        Option("--test", "h2d, d2h, p2p, or a list; default all.", "LIST", operations),
    ] = None,
    gpu: Annotated[str | None, options.text_option("--gpu", "Default gpu0.", "GPU")] = None,
    sizes: Annotated[
        list[int] | None,
        options.sizes_option("Bytes of a block; default 4K,16K,64K,256K."),
    ] = None,
    count: Annotated[
        int | None,
        Option(
            "--count",
            "Blocks of a batch; default 16384, but 1 GiB at most (simulated 64 MiB).",
            metavar="N",
            read=whole(1, 1 << 20),
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        options.count_option("--iterations", "Timed pairs; default 10, simulated 1.", 1),
    ] = None,
    warmup: Annotated[
        int | None,
        options.count_option("--warmup", "Untimed pairs first; default 2, simulated 0.", 0),
    ] = None,
    routes: options.Routes = None,
    beside: bench_beside.BesideOptions,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Compare the driver's batch of small copies with polypath's, in alternating pairs; blocks are
    at random places on both sides, and every byte is compared.

    The driver's batch is cuMemcpyBatchAsync, or single copies where it has none. Times include what
    the CPU takes for the call. Exit code 1 when a row is not verified.
    """
    traffic = beside.traffic({"--plot": plot})
    out = console(json)
    with Context(node=node, routes=routes) as context:
        topology = context.topology()
        chosen = test or [
            each for each in _ALLOWED if each is not Operation.p2p or len(topology["gpus"]) > 1
        ]
        pairs = [_pair(each, topology, gpu) for each in chosen]
        blocks = [
            (size, count or _default_count(size, topology["simulated"]))
            for size in sizes or parse_sizes("4K,16K,64K,256K")
        ]
        print_lines(out, f"{OPERATION}, on {where(topology)}", *clock_lines(topology))
        if traffic is None:
            result = measure(context, out, pairs, blocks, iterations, warmup)
        else:
            result = measure_beside(context, out, pairs, blocks, traffic, node, iterations, warmup)

    def draw(result: dict[str, Any], file: Path) -> None:
        from ..plots import plot_pages

        plot_pages(result, file)

    finish(result, out, json, plot, draw)


def _pair(operation: Operation, topology: dict[str, Any], gpu: str | None) -> Pair:
    to_gpu = operation is Operation.h2d
    return transfers_of(operation, topology, None if to_gpu else gpu, gpu if to_gpu else None)[0]


def _default_count(size: int, simulated: bool) -> int:
    most = _MOST_SIMULATED if simulated else _MOST_BYTES
    return max(1, min(_MOST_BLOCKS, most // size))


def _names(pairs: Sequence[Pair], blocks: Sequence[tuple[int, int]]) -> list[str]:
    return [
        f"{pair.src} to {pair.dst}, {count} x {format_size(size)}"
        for pair in pairs
        for size, count in blocks
    ]


def measure(
    context: Context,
    out: Console,
    pairs: Sequence[Pair],
    blocks: Sequence[tuple[int, int]],
    iterations: int | None = None,
    warmup: int | None = None,
) -> dict[str, Any]:
    """Runs the rows, prints their table, and returns the document. None stands for the defaults."""
    simulated = context.topology()["simulated"]
    iterations = iterations or (1 if simulated else 10)
    warmup = (0 if simulated else 2) if warmup is None else warmup

    def reports() -> Generator[dict[str, Any], None, None]:
        for pair in pairs:
            for size, count in blocks:
                yield context.bench_blocks(pair.src, pair.dst, size, count, iterations, warmup)

    rows = collect(
        OPERATION, _names(pairs, blocks), reports(), lambda rows: out.print(pages_table(rows))
    )
    return document(context, OPERATION, rows, command_line())


def measure_beside(
    context: Context,
    out: Console,
    pairs: Sequence[Pair],
    blocks: Sequence[tuple[int, int]],
    traffic: Traffic,
    node: str | None = None,
    iterations: int | None = None,
    warmup: int | None = None,
) -> dict[str, Any]:
    """The same on the idle node and next to other traffic."""
    require_possible(traffic, context.topology())
    warmup = 2 if warmup is None else warmup

    def reports() -> Generator[dict[str, Any], None, None]:
        for pair in pairs:
            yield from run_blocks(context, pair, blocks, traffic, node, iterations or 20, warmup)

    def show(rows: Sequence[dict[str, Any]]) -> None:
        figures = ("native", "polypath", "native loaded", "loaded", "speedup", "first")
        table = PlainTable(
            *("copies", "block", *figures, "verified"),
            right=("block", *figures),
            keys=2,
            caption="GB/s (1e9 bytes/s), medians; loaded: next to the traffic; first: the worst of "
            "the first five",
        )
        for row in rows:
            idle, loaded = row["idle"], row["loaded"]
            table.add_row(
                f"{row['src']} to {row['dst']}",
                format_size(row["block_bytes"]),
                figure(idle["native_gbps"]),
                figure(idle["polypath_gbps"]),
                figure(loaded["native_gbps"]),
                figure(loaded["polypath_gbps"]),
                times(loaded["speedup"]),
                figure(loaded["polypath_first_gbps"]),
                yes(row["verified"]),
            )
        out.print(table)

    rows = collect(OPERATION, _names(pairs, blocks), reports(), show)
    return {
        **document(context, OPERATION, rows, command_line()),
        "beside": {**traffic._asdict(), "copies": [str(each) for each in traffic.copies]},
    }


def pages_table(rows: Sequence[dict[str, Any]]) -> PlainTable:
    """One row a direction and size."""
    is_queued = any(row["queued"] is not None for row in rows)
    figures = (
        *("native", "polypath", "speedup"),
        *(("queued",) if is_queued else ()),
        *("native CPU", "CPU"),
    )
    table = PlainTable(
        *("copies", "block", "count", *figures, "verified", "kernels"),
        right=("block", "count", *figures),
        wrap=("kernels",),
        keys=2,
        caption=_CAPTION + (_QUEUED if is_queued else ""),
    )
    for row in rows:
        table.add_row(
            f"{row['src']} to {row['dst']}",
            format_size(row["block_bytes"]),
            str(row["count"]),
            figure(row["native_gbps"]),
            figure(row["polypath_gbps"]),
            times(row["speedup"]),
            *((figure(row["queued"]["polypath_gbps"]),) if is_queued else ()),
            figure(row["native_issue_us"]),
            figure(row["issue_us"]),
            yes(row["verified"]),
            escape(_kernels(row)),
        )
    return table


def _kernels(row: dict[str, Any]) -> str:
    shares = [
        f"{route['route'].removeprefix('via ')} {route['share']:.0%}" for route in row["routes"]
    ]
    if row["native_share"] >= 0.005:
        shares.append(f"native {row['native_share']:.0%}")
    return ", ".join(shares)
