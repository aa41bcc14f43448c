"""What `polypath bench graph-phases` runs: the phases of a CUDA graph by message size and number of
nodes, and their parts of an iteration's latency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .benchmark import Pair
from .context import Context

OPERATION = "graph-phases"
MOST_NODES = 256
_ALLOWED_NODES = (
    f"an even number from 2 to {MOST_NODES}; a range 2:64 (each twice the last); or a list of "
    "these, with commas"
)


def parse_nodes(text: str) -> list[int]:
    """Numbers of nodes of a list such as ``2,8:64``, in the order given. ``ValueError`` says what
    is allowed."""
    counts: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        low = _node_count(first)
        high = _node_count(last) if colon else low
        if high < low:
            raise ValueError(f"'{part}' is not {_ALLOWED_NODES}; no range runs down")
        while low <= high:
            counts.append(low)
            low *= 2
    return counts


def _node_count(text: str) -> int:
    count = int(text) if text.strip().isdecimal() else 0
    if not 2 <= count <= MOST_NODES or count % 2:
        raise ValueError(f"'{text}' is not {_ALLOWED_NODES}")
    return count


def run(
    context: Context,
    pair: Pair,
    sizes: Sequence[int],
    nodes: Sequence[int],
    iterations: int,
) -> Iterator[dict[str, Any]]:
    """One row of the document for each size (bytes) and, within it, each number of nodes: what
    `Context.graph_phases` says, with "src", "dst" and "parts"."""
    for size in sizes:
        for count in nodes:
            report = context.graph_phases(pair.src, pair.dst, size, count, iterations)
            yield {"src": pair.src, "dst": pair.dst, **report, "parts": parts(report)}


def parts(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Parts, 0 to 1, of the whole latency::

        {"first": {"create", "construct", "instantiate", "launch", "wait"},
         "later": {"launch", "wait"}}

    "first": of the iteration that makes a graph; "later": of one that finds it made. "wait": from
    the return of the launch to the end of the bytes. The others are the CPU time of their calls.
    """
    calls = {
        "first": {
            "create": report["create_us"],
            "construct": report["construct_us"],
            "instantiate": report["instantiate_us"],
            "launch": report["first_launch_us"],
        },
        "later": {"launch": report["launch_us"]},
    }
    whole = {"first": report["first_latency_us"], "later": report["latency_us"]}
    result: dict[str, dict[str, float]] = {}
    for iteration, times in calls.items():
        shares = {phase: us / whole[iteration] for phase, us in times.items()}
        # Each time is a median of its own: their sum may exceed that of the whole by a little.
        result[iteration] = {**shares, "wait": max(0.0, 1 - sum(shares.values()))}
    return result
