"""`polypath bench mpi` and `polypath bench jacobi`: unmodified MPI and UCX programs, with and
without the shim."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from ..errors import InvalidArgument
from ..mpi.results import METHODS, SOLVER, Test, document, message_rows, solver_row
from ..mpi.runs import (
    DIRECT,
    Runs,
    Step,
    alternate,
    find_launcher,
    find_program,
    run_count,
    ways,
)
from ..sizes import figure, format_size, parse_sizes
from . import options
from .arguments import Option, one_of
from .bench import command_line, finish
from .output import PlainTable, console, print_lines, progress, times, yes

_WARMUP = 10  # iterations of the solver

Ranks = Annotated[
    int, options.count_option("--ranks", "Processes, each with a GPU of its own.", 2, 64)
]
Pairs = Annotated[
    int | None,
    options.count_option(
        "--pairs", "Runs with, and as many without polypath; default 3, simulated 1.", 1
    ),
]
Mpirun = Annotated[
    str | None,
    options.text_option(
        "--mpirun",
        "Start programs by this mpirun, in the environment as it is; default: `make mpi`'s.",
        metavar="FILE",
    ),
]


class Pattern(StrEnum):
    """Pairs of sending and receiving ranks."""

    pair = "pair"
    ring = "ring"


def power_list(text: str) -> list[int]:
    """Reads ``--powers``: such as 23,26:30."""
    powers: list[int] = []
    for part in text.split(","):
        first, colon, last = part.strip().partition(":")
        ends = (first, last if colon else first)
        low, high = (int(end) if end.isdecimal() else 0 for end in ends)
        if not 5 <= low <= high <= 32:
            raise ValueError(f"'{text}' is not a list of 5 to 32, such as 23,26:30")
        powers += range(low, high + 1)
    return powers


def bench_mpi(
    *,
    test: Annotated[
        Test,
        Option(
            "--test",
            "bw, bibw, latency: MPI, one way, both ways, ping-pong; put: UCX's puts.",
            metavar="TEST",
            read=one_of(Test),
        ),
    ] = Test.bw,
    ranks: Ranks = 2,
    windows: Annotated[
        list[int] | None,
        Option(
            "--windows",
            "bw, bibw, put: so many messages before waiting. Default 1,4,16.",
            metavar="COUNTS",
            read=options.window_list,
        ),
    ] = None,
    sizes: Annotated[
        list[int] | None,
        options.sizes_option(
            "Bytes of a message, such as 64K,1M:1G. Default 1M:256M, latency 1:4M, simulated 4K,4M."
        ),
    ] = None,
    pairs: Pairs = None,
    iterations: Annotated[
        int | None,
        options.count_option(
            "--iterations", "Of each size in a run; default 200, from 1M on 20, simulated 2.", 1
        ),
    ] = None,
    warmup: Annotated[
        int | None,
        options.count_option(
            "--warmup", "Untimed, before them; default 20, from 1M on 2, simulated 2.", 0
        ),
    ] = None,
    pattern: Annotated[
        Pattern,
        Option(
            "--pattern",
            "pair: ranks 0 and 1, 2 and 3 ...; ring: each to the next.",
            metavar="WHO",
            read=one_of(Pattern),
        ),
    ] = Pattern.pair,
    routes: options.Routes = None,
    emulate_mesh: options.EmulateMesh = None,
    setting: options.Settings = None,
    mpirun: Mpirun = None,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Compare MPI messages between GPUs with and without polypath; every byte is compared.

    The programs know nothing of polypath; they run with and without it in alternation, and figures
    are medians of the runs. Exit code 1 when bytes are wrong, or no copy was caught.
    """
    method = METHODS[test]
    if windows is not None and not method.windows:
        raise InvalidArgument(f"--windows is not for {test}")
    settings = options.given_settings(routes, emulate_mesh, setting)
    comparison = Comparison(method.program, ranks, pairs, settings, mpirun, node, plot)
    if sizes is None:
        sizes = default_sizes(test, comparison.simulated)
    if comparison.simulated:
        iterations, warmup = iterations or 2, 2 if warmup is None else warmup
    arguments = ["--pattern", str(pattern), "--sizes", ",".join(map(str, sizes))]
    if method.windows:
        arguments += ["--window", ",".join(map(str, windows or (1, 4, 16)))]
    for name, value in (("--iterations", iterations), ("--warmup", warmup)):
        arguments += [] if value is None else [name, str(value)]

    out = console(json)
    print_lines(out, *comparison.heading(str(pattern)))
    total = comparison.run_count
    with progress(f"mpi {test}") as step:
        runs = comparison.run(arguments, lambda number, what: step(number, total, what))
        step(total, total, "done")
    rows = message_rows(test, runs, not comparison.simulated)
    result = document(f"mpi {test}", comparison.ways, runs, rows, command_line())
    result["pattern"] = str(pattern)
    out.print(messages_table(rows, comparison.ways.name, method.figure))
    print_lines(out, *runs.messages, *statistics_lines(result["statistics"]))

    def draw(result: dict[str, Any], file: Path) -> None:
        from ..plots import plot_messages

        plot_messages(result, file)

    finish(result, out, json, plot, draw)


def bench_jacobi(
    *,
    powers: Annotated[
        list[int] | None,
        Option(
            "--powers",
            "Grids of 8 x 2^K elements for these K, such as 23,26:30. Default 23:28, simulated 22.",
            metavar="LIST",
            read=power_list,
        ),
    ] = None,
    ranks: Ranks = 4,
    pairs: Pairs = None,
    iterations: Annotated[
        int | None,
        options.count_option("--iterations", "Of the solver; default 200, simulated 4.", 2),
    ] = None,
    routes: options.Routes = None,
    emulate_mesh: options.EmulateMesh = None,
    setting: options.Settings = None,
    mpirun: Mpirun = None,
    node: options.Node = None,
    plot: options.Plot = None,
    json: options.Json = None,
) -> None:
    """Compare a Jacobi solver with halo exchange with and without polypath, bit by bit.

    The solver (examples/jacobi) knows nothing of polypath; it runs with and without it in
    alternation, and figures are medians of the runs. Exit code 1 when its results differ in a
    single bit, or no copy was caught.
    """
    settings = options.given_settings(routes, emulate_mesh, setting)
    comparison = Comparison(SOLVER, ranks, pairs, settings, mpirun, node, plot)
    chosen = powers or ([22] if comparison.simulated else range(23, 29))
    iterations = iterations or (4 if comparison.simulated else 200)
    arguments = ["--iterations", str(iterations), "--warmup", str(min(_WARMUP, iterations // 2))]

    out = console(json)
    print_lines(out, *comparison.heading("in a ring"))
    every = Runs([], [], [], [])
    rows = []
    number = 0
    total = comparison.run_count * len(chosen)
    with progress(SOLVER) as step:
        for power in chosen:

            def begin(run: int, what: str, power: int = power, before: int = number) -> None:
                step(before + run, total, f"8 x 2^{power}, {what}")

            runs = comparison.run(["--size", str(power), *arguments], begin)
            number += comparison.run_count
            rows.append(solver_row(runs, not comparison.simulated))
            every.extend(runs)
        step(total, total, "done")
    result = document(SOLVER, comparison.ways, every, rows, command_line())
    out.print(solver_table(rows, comparison.ways.name))
    print_lines(out, *statistics_lines(result["statistics"]))

    def draw(result: dict[str, Any], file: Path) -> None:
        from ..plots import plot_solver

        plot_solver(result, file)

    finish(result, out, json, plot, draw)


class Comparison:
    """One program in two ways, as the options say."""

    def __init__(
        self,
        program: str,
        ranks: int,
        pairs: int | None,
        settings: dict[str, str],
        mpirun: str | None,
        node: str | None,
        plot: Path | None,
    ) -> None:
        """Raises `InvalidArgument`, `NoDevice`, and `ProgramNotFound`, before anything is run."""
        self.name = program
        self.ranks = ranks
        self._program = find_program(program)
        self._launcher = find_launcher(mpirun)
        self.ways = ways(node, settings)
        self.simulated = self.ways.simulated
        self.pairs = pairs or (1 if self.simulated else 3)
        if plot is not None and self.simulated:
            raise InvalidArgument("--plot: times on a simulated node mean nothing")

    def run(self, arguments: Sequence[str], step: Step) -> Runs:
        """All runs with these arguments; ``step`` gets numbers below `run_count`. Raises
        `ProgramFailed`."""
        return alternate(
            self._launcher.command(self.ranks, self._program, arguments),
            {**self.ways.baseline, **self._launcher.settings},
            {**self.ways.polypath, **self._launcher.settings},
            self.pairs,
            not self.simulated,
            step,
        )

    @property
    def run_count(self) -> int:
        """Number of program runs in one `run`."""
        return run_count(self.pairs, not self.simulated)

    def heading(self, what: str) -> list[str]:
        """What runs where, and what it is compared with."""
        node = self.ways.node
        title = f"{self.name}, {self.ranks} ranks, {what}, on {node['name']}"
        if self.simulated:
            return [
                f"{title} (simulated, functional mode)",
                "times mean nothing here and are left out; bytes and routes are real",
            ]
        if self.ways.name == DIRECT:
            return [
                f"{title}, emulated mesh of {node['emulated_mesh_gbps']:g} GB/s a link",
                f"{DIRECT}: under polypath, by direct routes alone",
            ]
        return [title, f"{self.ways.name}: without polypath"]


def statistics_lines(statistics: dict[str, Any]) -> list[str]:
    """How the copies of all runs under the shim went, from `mpi.results.summary`."""
    lines = [
        f"with polypath: {statistics['calls']} copies of {statistics['processes']} processes, "
        f"{statistics['asked']} large enough, {statistics['split']} split"
    ]
    if statistics["routes"]:
        lines.append(f"bytes of those: {shares_text(statistics['routes'])}")
    for kind, what in (("native_by_reason", "not split"), ("left_out_by_reason", "left out")):
        counts = [f"{count} x {reason}" for reason, count in statistics[kind].items() if count]
        if counts:
            lines.append(f"{what}: {', '.join(counts)}")
    return lines


def shares_text(routes: Sequence[dict[str, Any]]) -> str:
    """ "direct 42%, via gpu2 58%"; of several pairs of memories by kind, "direct 42%, via gpu
    58%"."""
    several = len({(route["src"], route["dst"]) for route in routes}) > 1
    shares: dict[str, float] = {}
    for route in routes:
        name = route["route"].rstrip("0123456789") if several else route["route"]
        shares[name] = shares.get(name, 0.0) + route["share"]
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def default_sizes(test: Test, simulated: bool) -> list[int]:
    """Few where times mean nothing."""
    if simulated:
        return parse_sizes("4K,4M")
    return parse_sizes("1:4M" if test is Test.latency else "1M:256M")


def messages_table(rows: Sequence[dict[str, Any]], baseline: str, name: str) -> PlainTable:
    """One row a window and size; ``baseline`` is its name, ``name`` "gbps" or "latency_us". Rows
    without times make a table without them."""
    timed = rows[0]["speedup"] is not None
    keys = (f"baseline_{name}", f"polypath_{name}", "speedup") if timed else ()
    names = (baseline, "polypath", "speedup") if timed else ()
    windows = ("window",) if any(row["window"] > 1 for row in rows) else ()
    figures = (*windows, "size", *names, "messages")
    unit = "GB/s (1e9 bytes/s), sums over all ranks" if name == "gbps" else "us"
    table = PlainTable(
        *(*figures, "verified"),
        right=figures,
        keys=len(windows) + 1,
        caption=f"{unit}; medians of the runs" if timed else "",
    )
    for row in rows:
        table.add_row(
            *(str(row[key]) for key in windows),
            format_size(row["bytes"]),
            *((times if key == "speedup" else figure)(row[key]) for key in keys),
            str(row["messages"]),
            yes(row["verified"]),
        )
    return table


def solver_table(rows: Sequence[dict[str, Any]], baseline: str) -> PlainTable:
    """One row a grid; ``baseline`` is its name. Rows without times make a table without them."""
    timed = rows[0]["speedup"] is not None
    times = (baseline, "polypath", "speedup", f"{baseline} comm.", "polypath comm.")
    figures = ("elements", "halo", *(times if timed else ()), "residual")
    table = PlainTable(
        *(*figures, "same bits"),
        right=figures,
        keys=2,
        caption="us an iteration, and of that communication; medians of the runs" if timed else "",
    )
    for row in rows:
        table.add_row(
            format_size(row["elements"]),
            format_size(row["halo_bytes"]),
            *(time_cells(row) if timed else ()),
            f"{row['residuals'][-1]:.6g}",
            yes(row["verified"]),
        )
    return table


def time_cells(row: dict[str, Any]) -> list[str]:
    """An iteration, its speedup, and the communication in it."""
    ways = (row["baseline"], row["polypath"])
    return [
        *(figure(way["iteration_us"]) for way in ways),
        times(row["speedup"]),
        *(figure(way["communication_us"]) for way in ways),
    ]
