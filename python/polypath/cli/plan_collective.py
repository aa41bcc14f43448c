"""`polypath plan allreduce` and its family: how a collective would go, and why so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from rich.markup import escape

from ..collective_bench import ALGORITHMS
from ..context import Context
from ..errors import InvalidArgument
from ..sizes import figure, format_size, rounded_size
from . import options
from .arguments import Option, did_you_mean
from .output import PlainTable, console, print_lines, ratio, times, write_json
from .plan import rate_and_time


def _gbps(text: str) -> float:
    """Reads ``--network``."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise ValueError(f"'{text}' is no rate in GB/s, such as 25")
    return value


def _algorithm(text: str) -> str:
    """Reads ``--algorithm``."""
    if text not in ALGORITHMS:
        hint = {
            "kernels": "; cells, lines or flat is meant",
            "published": "; --compare shows it",
        }.get(text, did_you_mean(text, ALGORITHMS))
        raise ValueError(f"'{text}' is not one of {', '.join(ALGORITHMS)}{hint}")
    return text


def _command(op: str, about: str) -> Callable[..., None]:
    def command(
        size: options.Size,
        *,
        node: options.Node = None,
        ranks: Annotated[
            int | None,
            options.count_option("--ranks", "On the first N GPUs; default all.", 1, 64),
        ] = None,
        gpus: options.Gpus = None,
        type: options.ElementType = "float32",
        op_: options.Operator = None,
        nodes: Annotated[
            int, options.count_option("--nodes", "On so many such nodes, for allreduce.", 1, 65536)
        ] = 1,
        network: Annotated[
            float | None,
            Option(
                "--network",
                "GB/s from each node to the others, one direction; needed for --nodes.",
                metavar="GBPS",
                read=_gbps,
            ),
        ] = None,
        algorithm: Annotated[
            str | None,
            Option(
                "--algorithm",
                f"This one: {', '.join(ALGORITHMS)}.",
                metavar="NAME",
                read=_algorithm,
            ),
        ] = None,
        blocks: Annotated[
            int, options.count_option("--blocks", "Blocks of a kernel at most.", 1, 1024)
        ] = 0,
        order: options.SumOrder = None,
        compare: Annotated[
            bool,
            Option("--compare", "Predict all algorithms, and the ring over direct links."),
        ] = False,
        json: options.Json = None,
    ) -> None:
        if nodes > 1 and network is None:
            raise InvalidArgument("--nodes needs --network, the rate between them in GB/s")
        if nodes == 1 and network is not None:
            raise InvalidArgument("--network is for --nodes, of which there is one")
        operation = options.operator_of(op, op_)
        with Context(node=node) as context:
            planned = context.plan_collective(
                op,
                size,
                type=type,
                operation=operation,
                ranks=options.ranks_of(ranks, gpus),
                nodes=nodes,
                network_gbps=network or 0,
                algorithm=algorithm,
                max_blocks=blocks,
                compare=compare,
                order=order,
            )
            topology = context.topology()
        out = console(json)
        print_lines(out, *heading(planned, topology))
        if planned["stages"]:
            out.print(stage_table(planned))
        print_lines(out, *summary(planned))
        if len(planned["candidates"]) > 1:
            out.print(left_out_table(planned))
        write_json(planned, json)

    command.__doc__ = about
    return command


_SHOWN = (
    "its algorithm and stages, the order of sums, what it reaches, and why other algorithms were "
    "left out.\n\n    All times and rates are predictions."
)
allreduce = _command("allreduce", f"Show how an allreduce would go: {_SHOWN}")
reduce_scatter = _command("reduce_scatter", f"Show how a reduce-scatter would go: {_SHOWN}")
all_gather = _command("all_gather", f"Show how an all-gather would go: {_SHOWN}")
broadcast = _command("broadcast", f"Show how a broadcast from rank 0 would go: {_SHOWN}")
reduce = _command("reduce", f"Show how a reduce to rank 0 would go: {_SHOWN}")
all_to_all = _command("all_to_all", f"Show how an all-to-all would go: {_SHOWN}")


def heading(planned: dict[str, Any], topology: dict[str, Any]) -> list[str]:
    """What is planned, and how it runs."""
    ranks = len(planned["gpus"])
    where = f"{topology['name']}{' (simulated)' if topology['simulated'] else ''}"
    if planned["nodes"] > 1:
        where = f"each of {planned['nodes']} nodes like {where}"
    lines = [
        f"{planned['op']}, {format_size(planned['bytes'])} of {planned['type']}, "
        f"{ranks} rank{'s' if ranks > 1 else ''} on {where}",
        f"{planned['algorithm']}: {planned['reason']}",
    ]
    if planned["islands"]:
        islands = " | ".join(
            " ".join(f"r{rank}" for rank in island) for island in planned["islands"]
        )
        lanes = planned["lanes"]
        lines.append(f"islands: {islands}; {lanes} lane{'s' if lanes > 1 else ''}")
    if planned["kernel"]:
        kernel = planned["kernel"]
        slots = f", tiles of {rounded_size(kernel['slot_bytes'])}" if kernel["slot_bytes"] else ""
        stages = "two stages" if kernel["stages"] == 2 else "one stage"
        lines.append(f"one kernel a rank, {stages}, {kernel['blocks']} blocks{slots}")
    if planned["chunks"]:
        chunks = f"{planned['chunks']} chunks of {rounded_size(planned['chunk_bytes'])}"
        if planned["host_bytes"]:
            part = planned["host_bytes"]
            chunks = (
                f"the last {rounded_size(part)}, {100 * part / planned['bytes']:.1f} %, "
                f"through host memory: {chunks} a rank"
            )
        lines.append(chunks)
    if planned["relays"]:
        over = ", ".join(
            f"gpu{relay['gpu']} ({100 * relay['share']:.1f} %, {figure(relay['gbps'])} GB/s)"
            for relay in planned["relays"]
        )
        lines.append(f"over idle GPUs as well: {over}")
    if planned["order"]:
        is_tree = planned["sum_order"] == "tree"
        same = "" if planned["rank_order"] or is_tree else ", which is not the order of ranks"
        lines.append(f"order of the {planned['operator']}: {planned['order']}{same}")
    return lines


def stage_table(planned: dict[str, Any]) -> PlainTable:
    """The stages; they overlap, so their times do not add up."""
    figures = ("links", "GB/s", "us")
    table = PlainTable("stage", *figures, "what moves", right=figures, wrap=("what moves",))
    for stage in planned["stages"]:
        moves = stage["moves"] or ", ".join(stage["links"])
        table.add_row(
            stage["stage"],
            str(len(stage["links"])),
            figure(stage["busiest_gbps"]),
            figure(stage["us"]),
            escape(moves),
        )
    return table


def left_out_table(planned: dict[str, Any]) -> PlainTable:
    """The algorithms that were not taken, and why."""
    figures = ("us", "GB/s", "bound")
    against = planned["times_ring"] or {}
    columns = (*figures, "times ring") if against else figures
    table = PlainTable("left out", *columns, "why", right=columns, wrap=("why",))
    for candidate in planned["candidates"][1:]:
        cells = [
            "-" if candidate["us"] is None else figure(candidate["us"]),
            "-" if candidate["bus_gbps"] is None else figure(candidate["bus_gbps"]),
            figure(candidate["limit_bus_gbps"]),
        ]
        if against:
            speedup = against.get(candidate["algorithm"])
            cells.append("-" if speedup is None else times(speedup))
        table.add_row(candidate["algorithm"], *cells, escape(candidate["reason"]))
    return table


def summary(planned: dict[str, Any]) -> list[str]:
    """Prediction and bounds, a line each."""
    bus, limit, links = (
        planned[key] for key in ("bus_gbps", "limit_bus_gbps", "link_limit_bus_gbps")
    )
    facts = [f"{ratio(bus, limit, '{:.1%}')} of the bound"]
    if planned["times_ring"]:
        taken = planned["times_ring"].get(planned["algorithm"])
        if taken is not None:
            facts.insert(0, f"{times(taken)} times the ring over direct links")
    lines = [f"predicted {rate_and_time(bus, planned['predicted_us'])}, {', '.join(facts)}"]
    if limit:
        lines.append(
            f"bound     {figure(limit):>6} GB/s of bus bandwidth by all trees, "
            f"{figure(links)} by links between GPUs alone"
        )
    if planned["published_us"]:
        lines.append(
            f"three stages as published (one leader an island, eight chunks): "
            f"{figure(planned['published_us'])} us, "
            f"{ratio(planned['published_us'], planned['predicted_us'])} times as long"
        )
    if planned["unproven"]:
        lines.append("A prediction for machines that nobody measured.")
    return lines
