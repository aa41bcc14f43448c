"""`polypath tune backend`: finds the fastest UNICONN backend here, by operation and size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from rich.markup import escape

from ..backend_tuning import BACKENDS, OPERATIONS, BackendTuning, Found, tune
from ..benchmark import clock_lines
from ..context import Context
from ..errors import InvalidArgument
from ..sizes import figure, format_size, parse_sizes
from ..uniconn_bench import backends_here
from . import options
from .arguments import Option, did_you_mean
from .output import PlainTable, console, print_lines, ratio, write_json
from .tune import NOT_KEPT, profile_lines, tune_progress

_SIZES = "64,256,1K,4K,16K,64K,256K,1M,4M,16M,64M,256M"
_SIMULATED_SIZES = "64K,1M,4M"


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Reads a list of these."""

    def read(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ValueError(f"'{name}' is not one of {', '.join(known)}{hint}")
        return list(dict.fromkeys(names))

    return read


def _rank_counts(text: str) -> list[int]:
    counts = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if not all(2 <= count <= 64 for count in counts):
        raise ValueError(f"'{text}' is not a list of 2 to 64, such as 2,4")
    return list(dict.fromkeys(counts))


def tune_backend(
    *,
    backends: Annotated[
        list[str] | None,
        Option(
            "--backends",
            f"{', '.join(BACKENDS)}; the first is preferred. Default those whose libraries are "
            "here, simulated polypath.",
            metavar="LIST",
            read=_names(BACKENDS),
        ),
    ] = None,
    ops: Annotated[
        list[str] | None,
        Option(
            "--ops",
            f"{', '.join(OPERATIONS)}. Default all.",
            metavar="LIST",
            read=_names(OPERATIONS),
        ),
    ] = None,
    sizes: Annotated[
        list[int] | None,
        options.sizes_option(
            "Of a message; of a rank's larger buffer. Default 64 to 256M in steps of four, "
            "simulated 64K,1M,4M."
        ),
    ] = None,
    ranks: Annotated[
        list[int] | None,
        Option(
            "--ranks",
            "On so many first GPUs, each by itself, such as 2,4. Default two and all.",
            metavar="LIST",
            read=_rank_counts,
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        options.count_option("--pairs", "Turns that are timed; default 9, simulated 1.", 1),
    ] = None,
    budget: Annotated[
        float,
        Option(
            "--budget",
            "Time for all of it, such as 60s or 5m.",
            metavar="TIME",
            read=options.seconds,
        ),
    ] = 60.0,
    again: Annotated[
        bool, Option("--again", "Also what was measured already, but for your edits.")
    ] = False,
    show: Annotated[bool, Option("--show", "Only show what was measured.")] = False,
    profile: options.Profile = None,
    mpirun: Annotated[
        str | None,
        options.text_option("--mpirun", "Starts MPI's ranks; default `make mpi`'s.", "FILE"),
    ] = None,
    node: options.Node = None,
    json: options.Json = None,
) -> None:
    """Find which UNICONN backend is fastest for each operation, size and number of ranks.

    All that begin here take turns, every byte is compared, and the profile gets each entry as soon
    as it is found; stopped by Ctrl-C, the same command goes on from there. AnyBackend follows it.
    The first backend is taken unless another one is faster in 8 of 9 turns and by 1 %.
    """
    out = console(json)
    if not show:
        options.require_kept(profile)
    if profile is not None:  # of the ranks' processes as well
        os.environ["POLYPATH_PROFILE"] = str(profile.absolute())
    with Context(node=node) as context:
        topology = context.topology()
        simulated = topology["simulated"]
        gpus = len(topology["gpus"])
        kept = bool(context.devices()["profile"]["file"])
        here = ["polypath"] if simulated else [b for b in BACKENDS if b in backends_here(context)]
    tuned = Found([], {})
    if not show:
        if gpus < 2:
            raise InvalidArgument("communication takes two GPUs at least, and there is one")
        counts = ranks or sorted({2, gpus})
        if max(counts) > gpus:
            raise InvalidArgument(f"--ranks {max(counts)}: there are {gpus} GPUs")
        if not kept:
            print_lines(out, NOT_KEPT)
        print_lines(out, *clock_lines(topology))
        request = BackendTuning(
            backends or here,
            ops or OPERATIONS,
            counts,
            sizes or parse_sizes(_SIMULATED_SIZES if simulated else _SIZES),
            turns=pairs or (1 if simulated else 9),
            calls=2 if simulated else 100,
            budget_s=budget,
            again=again,
        )
        name = node or (topology["name"] if simulated else None)
        with tune_progress() as progress:
            tuned = tune(request, name, mpirun, progress)
    with Context(node=node) as context:
        result = context.tuned()
    if not kept:
        result["comm"] = tuned.entries
    if not show:
        result.update(
            {"excluded": tuned.excluded, "stopped": tuned.stopped, "seconds": tuned.seconds}
        )
    entries = [entry for entry in result["comm"] if ops is None or entry["op"] in ops]
    for which, table in _tables(entries):
        print_lines(out, which)
        out.print(table)
    if entries:
        print_lines(out, "us a call, of the slowest rank; medians")
    for backend, why in tuned.excluded.items():
        print_lines(out, f"without {backend}: {why}")
    lines = [] if entries else [f"no backend was measured on {topology['name']}"]
    lines += profile_lines(result, len(entries), "entry" if len(entries) == 1 else "entries")
    print_lines(out, *lines)
    write_json(result, json)


def _tables(entries: Sequence[dict[str, Any]]) -> Iterator[tuple[str, PlainTable]]:
    """Each operation on each set of ranks with its table: a row a size."""
    for op, ranks in sorted({(entry["op"], entry["ranks"]) for entry in entries}):
        rows = [entry for entry in entries if (entry["op"], entry["ranks"]) == (op, ranks)]
        names = list(dict.fromkeys(time["backend"] for entry in rows for time in entry["times"]))
        figures = [f"{name} us" for name in names]
        table = PlainTable(
            *("size", *figures, "speedup", "best"), right=("size", *figures, "speedup"), keys=1
        )
        for entry in sorted(rows, key=lambda entry: entry["bytes"]):
            us = {time["backend"]: time["us"] for time in entry["times"]}
            first = next(iter(us.values()), 0)
            table.add_row(
                format_size(entry["bytes"]),
                *(figure(us[name]) if name in us else "-" for name in names),
                ratio(first, us.get(entry["backend"], 0)),
                escape(entry["backend"]) + (" [bold]edited[/bold]" if entry["edited"] else ""),
            )
        yield f"{op}, {ranks}", table
