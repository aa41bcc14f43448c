"""`polypath bench --beside`: options, and the table."""  # words: ok

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rich.console import Console

from ..benchmark import Operation, Pair, document
from ..beside import Copies, Traffic, read_copies, require_possible, run, share_machine
from ..context import Context
from ..errors import InvalidArgument
from ..sizes import figure, format_size, parse_size, parse_sizes
from . import options
from .arguments import Option
from .output import PlainTable, print_lines, times, yes

_CAPTION = (
    "GB/s (1e9 bytes/s), medians of the later half of each phase; first: the worst of the first "
    "five by polypath; back: ms after the traffic until 0.97 of the idle rate"
)

SameProcess = Annotated[bool, Option("--beside-same-process", "Let this process make the traffic.")]


@dataclass(frozen=True)
class BesideOptions:
    """Traffic next to which is measured as well."""

    copies: Annotated[
        list[Copies] | None,
        Option(
            "--beside",
            "Measure also beside other traffic: h2d:gpuN, d2h:gpuN, d2d:gpuA:gpuB, or a list of "
            "these.",
            metavar="COPIES",
            read=read_copies,
        ),
    ] = None
    block: Annotated[
        int | None,
        Option("--beside-block", "Bytes of each of its copies; default 64M.", "SIZE", parse_size),
    ] = None
    queue: Annotated[
        int | None,
        options.count_option(
            "--beside-queue", "Its copies queued at any time; default 2, simulated 1.", 1, 1024
        ),
    ] = None
    period: Annotated[
        int | None,
        Option(
            "--beside-period",
            "On for so long, off for so long, such as 20ms; default: without pause.",
            "TIME",
            options.microseconds,
        ),
    ] = None
    rounds: Annotated[
        int | None,
        options.count_option(
            "--beside-rounds", "Turns of the idle and the loaded node; default 3, simulated 1.", 1
        ),
    ] = None
    under_polypath: Annotated[
        bool, Option("--beside-polypath", "Run the process that copies under polypath as well.")
    ] = False

    def traffic(self, excluded: Mapping[str, Any], same_process: bool = False) -> Traffic | None:
        """The traffic, for which the machine is shared from now on; None: none is requested.

        Raises `InvalidArgument` for options that need it, that exclude each other, and for those of
        ``excluded``, values by names, that are set."""
        if self.copies is None:
            values = {
                "--beside-block": self.block,
                "--beside-queue": self.queue,
                "--beside-period": self.period,
                "--beside-rounds": self.rounds,
                "--beside-polypath": self.under_polypath,
                "--beside-same-process": same_process,
            }
            for name, value in values.items():
                if value:
                    raise InvalidArgument(f"{name} needs --beside")
            return None
        if self.under_polypath and same_process:
            raise InvalidArgument("--beside-polypath and --beside-same-process exclude each other")
        for name, value in excluded.items():
            if value:
                raise InvalidArgument(f"{name} is not for --beside")
        share_machine()
        return Traffic(
            copies=self.copies,
            block=self.block or 64 << 20,
            queue=self.queue,
            period_us=self.period or 0,
            under_polypath=self.under_polypath,
            same_process=same_process,
            rounds=self.rounds,
        )


def measure_beside(
    context: Context,
    out: Console,
    operation: Operation,
    pairs: Sequence[Pair],
    traffic: Traffic,
    node: str | None,
    sizes: Sequence[int] | None,
    iterations: int | None,
    warmup: int | None,
) -> dict[str, Any]:
    """Runs the rows, prints their table, and returns the document. None stands for the defaults."""
    from .bench import collect, command_line, heading

    topology = context.topology()
    require_possible(traffic, topology)
    sizes = sizes or parse_sizes("16M,64M,256M")
    who = "another process under polypath" if traffic.under_polypath else "another process"
    if traffic.same_process:
        who = "this process"
    elif topology["virtual_time"]:
        who = "the simulated node"
    copies = ", ".join(str(each) for each in traffic.copies)
    print_lines(
        out,
        heading(operation, pairs, topology),
        f"beside {copies} in blocks of {format_size(traffic.block)} by {who}",
    )
    reports = run(
        context, pairs, sizes, traffic, node, iterations=iterations or 40, warmup=warmup or 3
    )
    rows = collect(
        operation,
        [format_size(size) for size in sizes],
        reports,
        lambda rows: out.print(beside_table(rows)),
    )
    return {
        **document(context, operation, rows, command_line()),
        "beside": {
            **traffic._asdict(),
            "copies": [str(each) for each in traffic.copies],
        },
    }


def beside_table(rows: Sequence[dict[str, Any]]) -> PlainTable:
    """One row a size: both ways on the idle node and on the loaded one. GB/s."""
    figures = ("native", "polypath", "native loaded", "loaded", "speedup", "first", "back")
    table = PlainTable(
        *("size", *figures, "verified"),
        right=("size", *figures),
        caption=_CAPTION,
    )
    for row in rows:
        idle, loaded = row["idle"], row["loaded"]
        back = row["recovery_ms"]
        table.add_row(
            format_size(row["bytes"]),
            figure(idle["native_gbps"]),
            figure(idle["polypath_gbps"]),
            figure(loaded["native_gbps"]),
            figure(loaded["polypath_gbps"]),
            times(loaded["speedup"]),
            figure(loaded["polypath_first_gbps"]),
            "-" if back is None else figure(back),
            yes(row["verified"]),
        )
    return table
