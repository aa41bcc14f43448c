"""`polypath bench uniconn`: UNICONN's calls against direct calls of its backend's library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from ..benchmark import clock_lines, document
from ..context import Context
from ..errors import InvalidArgument
from ..sizes import figure, format_size, parse_sizes
from ..uniconn_bench import BACKENDS, TESTS, UniconnBench, backends_here, rows
from ..uniconn_loc import source_lines
from . import options
from .arguments import Option
from .bench import collect, command_line, finish
from .output import PlainTable, console, print_lines, times, write_json, yes

_SIZES = {"latency": "0,1:16M", "bandwidth": "1:16M", "jacobi": "64K"}
_SIMULATED_SIZES = {"latency": "0,8:64M", "bandwidth": "64K:64M", "jacobi": "16M"}
_MATRICES = ("serena-like", "queen-like", "small")


_LINES = "lines"
_MODES = ("host", "partial", "device")
#: Options that have an effect in some tests alone, by parameter.
_ONLY_FOR = {
    "backends": ("--backends", TESTS),
    "sizes": ("--sizes", ("latency", "bandwidth", "jacobi")),
    "window": ("--window", ("bandwidth",)),
    "ranks": ("--ranks", ("jacobi", "cg")),
    "rows_": ("--rows", ("jacobi",)),
    "exchange": ("--exchange", ("jacobi",)),
    "matrix": ("--matrix", ("cg",)),
    "pairs": ("--pairs", TESTS),
    "iterations": ("--iterations", ("jacobi", "cg")),
}
_BACKENDS_OF_KERNELS = ("polypath", "any")


def _test(text: str) -> str:
    names = (*TESTS, _LINES)
    if text not in names:
        raise ValueError(f"'{text}' is not one of {', '.join(names)}")
    return text


def _backends(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in BACKENDS:
            raise ValueError(f"'{name}' is not one of {', '.join(BACKENDS)}")
    return names


def _sizes(text: str) -> list[int]:
    """A list of sizes in which 0 is one."""
    parts = text.split(",")
    others = ",".join(part for part in parts if part.strip() != "0")
    return ([0] if len(others) < len(text) else []) + (parse_sizes(others) if others else [])


def bench_uniconn(
    *,
    test: Annotated[
        str,
        Option(
            "--test",
            "latency, bandwidth: between two GPUs; jacobi, cg: a solver's iteration; lines: of "
            "source, by each library.",
            metavar="TEST",
            read=_test,
        ),
    ] = "latency",
    backends: Annotated[
        list[str] | None,
        Option(
            "--backends",
            f"{', '.join(BACKENDS)}. Default those whose libraries are here.",
            metavar="LIST",
            read=_backends,
        ),
    ] = None,
    sizes: Annotated[
        list[int] | None,
        Option(
            "--sizes",
            "Bytes of a message, of jacobi of a row; 0,1:1G for example, a range doubles. Default "
            "up to 16M.",
            metavar="SIZES",
            read=_sizes,
        ),
    ] = None,
    window: Annotated[
        list[int] | None,
        Option(
            "--window",
            "bandwidth: so many messages before waiting. Default 1,16,64, simulated 1,4.",
            metavar="COUNTS",
            read=options.window_list,
        ),
    ] = None,
    ranks: Annotated[
        int | None, options.count_option("--ranks", "Of a solver; default all GPUs.", 1, 64)
    ] = None,
    rows_: Annotated[
        int | None,
        options.count_option("--rows", "jacobi: rows of the grid; default 16384, simulated 8.", 1),
    ] = None,
    exchange: Annotated[
        str | None,
        options.text_option(
            "--exchange", "jacobi: with the neighbours both at once, or in turns.", "both|turns"
        ),
    ] = None,
    mode: Annotated[
        str,
        options.text_option(
            "--mode",
            "Of a solver: the host sends, or kernels do over polypath, by themselves or with the "
            "host's signals.",
            "host|partial|device",
        ),
    ] = "host",
    matrix: Annotated[
        str | None,
        options.text_option(
            "--matrix",
            f"cg: {', '.join(_MATRICES)}; default all but small, simulated small.",
            "NAME",
        ),
    ] = None,
    pairs: Annotated[
        int | None, options.count_option("--pairs", "Timed pairs; default 9, simulated 1.", 1)
    ] = None,
    iterations: Annotated[
        int | None,
        options.count_option("--iterations", "Of a solver in a row; default 1000, simulated 4.", 1),
    ] = None,
    mpirun: Annotated[
        str | None,
        options.text_option("--mpirun", "Starts MPI's ranks; default `make mpi`'s.", "FILE"),
    ] = None,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Compare UNICONN's calls with the same calls of the library of each backend, in
    alternating pairs, with a control: the library against itself.

    Messages are compared to the last byte, and solvers' results by both ways to the last bit. On a
    simulated node times are virtual, and a solver's sweeps take the time of the memory that a
    kernel would read and write.
    """
    arguments = locals()
    for name, (option, tests) in _ONLY_FOR.items():
        if arguments[name] is not None and test not in tests:
            raise InvalidArgument(f"{option} is for --test {', '.join(tests)}, not for {test}")
    exchange = exchange or "both"
    if exchange not in ("both", "turns"):
        raise InvalidArgument(f"--exchange {exchange}: both or turns is wanted")
    if mode not in _MODES:
        raise InvalidArgument(f"--mode {mode}: {', '.join(_MODES)} is wanted")
    if mode != "host":
        if test not in ("jacobi", "cg"):
            raise InvalidArgument(f"--mode {mode}: --test jacobi or cg is wanted")
        for name in backends or ():
            if name not in _BACKENDS_OF_KERNELS:
                raise InvalidArgument(
                    f"--mode {mode}: kernels of these programs communicate over polypath, or any "
                    f"that is polypath, and not over {name}"
                )
        backends = backends or ["polypath"]
    if test == _LINES and plot is not None:
        raise InvalidArgument("--plot: lines of source are not drawn")
    with Context(node=node) as context:
        topology = context.topology()
        if test == _LINES:
            out = console(json)
            result = document(context, "uniconn lines", source_lines(), command_line())
            _show_lines(out, result["rows"])
            write_json(result, json)
            return
        simulated = topology["simulated"]
        gpus = len(topology["gpus"])
        count = 2 if test in ("latency", "bandwidth") else ranks or gpus
        if count > gpus:
            raise InvalidArgument(f"{count} ranks are wanted, and there are {gpus} GPUs")
        defaults = _SIMULATED_SIZES if simulated else _SIZES
        requests = _wanted(
            test,
            backends or backends_here(context),
            count,
            sizes if sizes is not None else _sizes(defaults[test]) if test != "cg" else [],
            window or ([1, 4] if simulated else [1, 16, 64]),
            pairs or (1 if simulated else 9),
            2 if simulated else 100,
            {
                "rows": str(rows_ or (8 if simulated else 16384)),
                "exchange": exchange,
                "mode": mode,
                "iterations": str(iterations or (4 if simulated else 1000)),
                "compute": "gpu"
                if not simulated
                else "timed"
                if test == "jacobi" and mode == "host"
                else "host",
            },
            [matrix] if matrix else ["small"] if simulated else list(_MATRICES[:2]),
        )
        name = node or (topology["name"] if simulated else None)
        out = console(json)
        print_lines(out, *clock_lines(topology))
        reports = (row for request in requests for row in rows(request, name, mpirun))
        names = [
            f"{request.backend}, {format_size(size)}"
            for request in requests
            for size in request.sizes or [0]
        ]
        results = collect(f"uniconn {test}", names, reports, lambda r: _show(out, r))
        result = document(context, f"uniconn {test}", results, command_line())
    finish(result, out, json, plot, _draw)


def _wanted(
    test: str,
    backends: Sequence[str],
    ranks: int,
    sizes: Sequence[int],
    windows: Sequence[int],
    pairs: int,
    calls: int,
    solver: dict[str, str],
    matrices: Sequence[str],
) -> list[UniconnBench]:
    """The programs to run, one after another."""
    requests: list[UniconnBench] = []
    for backend in backends:
        if test == "bandwidth":
            requests += [
                UniconnBench(test, backend, ranks, sizes, value, pairs, calls) for value in windows
            ]
        elif test == "cg":
            requests += [
                UniconnBench(test, backend, ranks, (), 1, pairs, calls, {**solver, "matrix": value})
                for value in matrices
            ]
        else:
            more = solver if test == "jacobi" else {}
            requests.append(UniconnBench(test, backend, ranks, sizes, 1, pairs, calls, more))
    return requests


def _draw(result: dict[str, Any], file: Path) -> None:
    from ..plots import plot_uniconn

    plot_uniconn(result, file)


def _show_lines(out: Console, results: Sequence[dict[str, Any]]) -> None:
    table = PlainTable(
        "what",
        "lines",
        right=["lines"],
        caption="without blank ones, comments, includes",
    )
    for row in results:
        table.add_row(row["what"], str(row["lines"]))
    out.print(table)


def _columns(test: str) -> Iterator[str]:
    yield "backend"
    if test == "cg":
        yield "matrix"
    else:
        yield "size"
    if test in ("jacobi", "cg"):
        yield "mode"
    if test == "bandwidth":
        yield from ("window", "GB/s")
    yield from ("us", "native us", "speedup", "control", "CPU ns", "more CPU ns", "right")


def _show(out: Console, results: Sequence[dict[str, Any]]) -> None:
    names = list(_columns(results[0]["test"]))
    table = PlainTable(
        *names,
        right=[name for name in names if name not in ("backend", "matrix", "mode")],
        caption="medians of pairs; speedup: native time over UNICONN's; control: the library "
        "against itself; CPU ns of a call, of a solver's iteration",
    )
    for row in results:
        native = row["native_us"] is not None
        cells = {
            "backend": row["backend"],
            "matrix": row.get("matrix", ""),
            "size": format_size(row.get("bytes", 0)),
            "window": str(row.get("window", "")),
            "mode": row.get("mode", ""),
            "GB/s": figure(row.get("gbps", 0)),
            "us": figure(row["us"]),
            "native us": figure(row["native_us"]) if native else "-",
            "speedup": times(row["speedup"]) if native else "-",
            "control": times(row["control"]) if native else "-",
            "CPU ns": str(row["cpu_ns"]),
            "more CPU ns": str(row["more_cpu_ns"]) if native else "-",
            "right": yes(row["verified"]),
        }
        table.add_row(*(cells[name] for name in names))
    out.print(table)
