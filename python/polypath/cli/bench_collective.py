"""`polypath bench allreduce` and its family: collectives against NCCL, every element compared."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Annotated, Any

from rich.console import Console

from ..benchmark import clock_lines, document
from ..collective_bench import (
    MEASURED,
    CollectiveBench,
    rows_in_processes,
    rows_on_threads,
)
from ..context import Context
from ..errors import InvalidArgument
from ..sizes import figure, format_size, parse_sizes
from . import options
from .arguments import Option, did_you_mean
from .bench import collect, command_line, finish
from .output import PlainTable, console, print_lines, times, yes

_CAPTION = "us a call, of the slowest rank; bus GB/s as nccl-tests counts it; medians"


def _measured(text: str, *others: str) -> str:
    """Reads ``--algorithm``; ``others`` are allowed as well."""
    names = (*others, *MEASURED)
    if text not in names:
        meant = {"cells": "kernels", "flat": "kernels", "host": "mixed"}.get(text)
        hint = f"; {meant} is meant" if meant else did_you_mean(text, names)
        raise ValueError(f"'{text}' is not one of {', '.join(names)}{hint}")
    return text


def _against(text: str) -> str:
    """Reads ``--against``."""
    return text if "/" in text or ".so" in text else _measured(text, "nccl", "none")


def _command(op: str, about: str) -> Callable[..., None]:
    def command(
        *,
        sizes: Annotated[
            list[int] | None,
            options.sizes_option(
                "Of a rank's larger buffer, such as 64K,1M:1G; a range doubles. Default 8K:1G, "
                "simulated 64K:16M."
            ),
        ] = None,
        ranks: Annotated[
            int | None,
            options.count_option("--ranks", "On the first N GPUs; default all.", 1, 8),
        ] = None,
        gpus: options.Gpus = None,
        type: options.ElementType = "float32",
        op_: options.Operator = None,
        against: Annotated[
            str | None,
            Option(
                "--against",
                "nccl (libnccl.so.2), a library of NCCL, none, or polypath by "
                f"{', '.join(MEASURED)}; default nccl, simulated ring (allreduce) or none.",
                metavar="NAME",
                read=_against,
            ),
        ] = None,
        algorithm: Annotated[
            str | None,
            Option(
                "--algorithm",
                f"{', '.join(MEASURED)}; default what the plan chooses. "
                "kernels: cells, lines or flat.",
                metavar="NAME",
                read=_measured,
            ),
        ] = None,
        iterations: Annotated[
            int | None,
            options.count_option("--iterations", "Timed pairs; default 20, simulated 1.", 1),
        ] = None,
        calls: Annotated[
            int | None,
            options.count_option("--calls", "In a row, a sample; default 10, simulated 2.", 1),
        ] = None,
        communicators: Annotated[
            int,
            options.count_option(
                "--communicators",
                "Of each process, made and called one after another; of several the last is "
                "measured, against the first. Default 1.",
                1,
                6,
            ),
        ] = 1,
        threads: Annotated[
            bool,
            Option("--threads", "Ranks are threads, as on a simulated node, and not processes."),
        ] = False,
        node: options.Node = None,
        plot: options.Plot = None,
        json: options.Json = None,
    ) -> None:
        operation = options.operator_of(op, op_)
        with Context(node=node) as context:
            topology = context.topology()
            simulated = topology["simulated"]
            count = len(topology["gpus"])
            options.ranks_of(ranks, gpus)
            if ranks is not None and ranks > count:
                raise InvalidArgument(f"--ranks {ranks}: there are {count} GPUs")
            if gpus is not None and max(gpus) >= count:
                raise InvalidArgument(f"--gpus: there are {count} GPUs")
            if communicators > 1 and against is not None:
                raise InvalidArgument("--communicators measures against the first, not --against")
            # The ring's copies need peer access.
            has_ring = op == "allreduce" and all(
                link["type"] != "bounce" for link in topology["links"]
            )
            default = ("ring" if has_ring else "none") if simulated else "nccl"
            name = against or default
            request = CollectiveBench(
                op,
                sizes or parse_sizes("64K:16M" if simulated else "8K:1G"),
                len(gpus) if gpus else ranks or count,
                type=type,
                operation=operation,
                iterations=iterations or (1 if simulated else 20),
                calls=calls or (2 if simulated else 10),
                nccl=None if name in ("none", *MEASURED) else "" if name == "nccl" else name,
                baseline=name if name in MEASURED else None,
                algorithm=algorithm,
                communicators=communicators,
                gpus=gpus,
            )
            reports: Generator[dict[str, Any], None, None] = (
                rows_on_threads(context, request)
                if simulated or threads
                else rows_in_processes(request)
            )
            out = console(json)
            print_lines(out, *clock_lines(topology))
            names = [format_size(size) for size in request.sizes]
            rows = collect(
                f"{op} on {request.ranks} ranks", names, reports, lambda r: _show(out, r)
            )
            result = document(context, op, rows, command_line())
        finish(result, out, json, plot, _draw)

    command.__name__ = op
    command.__doc__ = f"""Measure {about} of all GPUs against NCCL, or against the ring
    over direct links; every element is compared, polypath's with the sum in rank order, bit by bit.

    Rows of calls of both in alternating pairs. Each rank is a process with one GPU; on a simulated
    node, which is timed in virtual time and has no NCCL, a thread.
    """
    return command


def _draw(result: dict[str, Any], file: Any) -> None:
    from ..plots import plot_collectives

    plot_collectives(result, file)


def _show(out: Console, rows: Sequence[dict[str, Any]]) -> None:
    names = ["size", "algorithm", "us", "bus GB/s", "predicted us"]
    baseline = any("baseline" in row for row in rows)
    if baseline:
        names += [rows[0]["baseline"]["name"], "times"]
    names += ["CPU us", "exact"]
    right = [name for name in names if name != "algorithm"]
    table = PlainTable(*names, right=right, caption=_CAPTION)
    for row in rows:
        cells = [
            format_size(row["bytes"]),
            row["algorithm"],
            figure(row["us"]),
            figure(row["bus_gbps"]),
            figure(row["predicted_us"]),
        ]
        if baseline:
            cells += [figure(row["baseline"]["us"]), times(row["speedup"])]
        table.add_row(*cells, figure(row["cpu_us"]), yes(row["exact"]))
    out.print(table)


allreduce = _command("allreduce", "an allreduce")
reduce_scatter = _command("reduce_scatter", "a reduce-scatter")
all_gather = _command("all_gather", "an all-gather")
broadcast = _command("broadcast", "a broadcast")
reduce = _command("reduce", "a reduce")
all_to_all = _command("all_to_all", "an all-to-all")
