"""Options that several commands have, and how their texts are read."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import typer

from .. import sizes
from ..benchmark import Operation
from ..errors import InvalidArgument
from ..graph_phases import parse_nodes
from ..launch.settings import parse_setting

_T = TypeVar("_T")
_PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def reader(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """A parser of an option: turns the `ValueError` of ``read`` into an error that names it."""

    def parse(text: str | _T) -> _T:
        if not isinstance(text, str):
            return text
        try:
            return read(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    parse.__name__ = read.__name__
    return parse


class SizeList(list[int]):
    """The value of ``--sizes``: a class of its own, since for Typer a list is an option to
    repeat."""


def size_list(text: str) -> SizeList:
    """Reads ``--sizes``."""
    return SizeList(sizes.parse_sizes(text))


def window_list(text: str) -> SizeList:
    """Reads ``--window``: counts such as 1,4,16."""
    counts = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if not all(1 <= count <= 64 for count in counts):
        raise ValueError(f"'{text}' is not a list of 1 to 64, such as 1,4,16")
    return SizeList(counts)


def power_list(text: str) -> SizeList:
    """Reads ``--powers``: such as 23,26:30."""
    powers: list[int] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"(\d+)(?::(\d+))?", part.strip())
        first, last = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (0, 0)
        if not 5 <= first <= last <= 32:
            raise ValueError(f"'{text}' is not a list of 5 to 32, such as 23,26:30")
        powers += range(first, last + 1)
    return SizeList(powers)


class NodeCounts(list[int]):
    """The value of ``--nodes``, for the same reason."""


def node_counts(text: str) -> NodeCounts:
    """Reads ``--nodes``."""
    return NodeCounts(parse_nodes(text))


class SettingValue(NamedTuple):
    """The value of ``--setting``."""

    name: str
    value: str


def setting_value(text: str) -> SettingValue:
    """Reads ``--setting``."""
    return SettingValue(*parse_setting(text))


def seconds(text: str) -> float:
    """Reads ``--budget``: seconds, such as 60, 60s or 5m."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text.strip())
    if not found or float(found[1]) == 0:
        raise ValueError(f"'{text}' is no time: seconds such as 60s, or 5m")
    return float(found[1]) * {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600}[found[2]]


def operation(text: str) -> Operation:
    """Reads the operation of a benchmark."""
    names = [str(name) for name in Operation]
    if text not in names:
        raise ValueError(f"'{text}' is not one of {', '.join(names)}")
    return Operation(text)


def require_matplotlib() -> None:
    """Raises `InvalidArgument` where plots cannot be drawn: matplotlib is an optional
    dependency."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidArgument("plots need matplotlib: pip install 'polypath[plot]'")


def plot_file(text: str) -> Path:
    """A file whose suffix is a format that plots can have."""
    require_matplotlib()
    file = Path(text)
    if file.suffix.lower() not in _PLOT_SUFFIXES:
        raise ValueError(f"'{text}' does not end in one of {', '.join(_PLOT_SUFFIXES)}")
    return file


Node = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="NAME|FILE",
        help="Run on this simulated node: a name of `polypath nodes`, or a node file.",
    ),
]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE|-", help="Write the result as JSON; - is stdout."),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        parser=reader(plot_file),
        help=f"Draw it into this file ({', '.join(_PLOT_SUFFIXES)}).",
    ),
]
Routes = Annotated[
    str | None,
    typer.Option(
        "--routes",
        metavar="KINDS",
        help="Kinds of routes allowed: all, or a list of direct, gpu, host.",
    ),
]
EmulateMesh = Annotated[
    str | None,
    typer.Option(
        "--emulate-mesh",
        metavar="GBPS",
        help="On this machine's NVSwitch: as if each pair of GPUs had a link of its own with "
        "so many GB/s, carried by a kernel.",
    ),
]
Settings = Annotated[
    list[SettingValue] | None,
    typer.Option(
        "--setting",
        metavar="NAME=VALUE",
        parser=reader(setting_value),
        help="Any other setting of `polypath info -c`; may be repeated.",
    ),
]
Program = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- PROGRAM ...", help="The program and its arguments."),
]
BenchOperation = Annotated[
    Operation,
    typer.Argument(
        metavar="OPERATION",
        parser=reader(operation),
        help="p2p: GPU to GPU; h2d: host to GPU; d2h: GPU to host; bidir: both directions of "
        "a pair; ring: each GPU to the next.",
    ),
]
Size = Annotated[
    int,
    typer.Argument(metavar="SIZE", parser=reader(sizes.parse_size), help="Bytes, such as 64M."),
]
Windows = Annotated[
    SizeList | None,
    typer.Option(
        "--window",
        metavar="COUNTS",
        parser=reader(window_list),
        help="p2p, bidir: so many transfers outstanding before waiting, such as 1,4,16.",
    ),
]
Budget = Annotated[
    float,
    typer.Option(
        "--budget",
        metavar="TIME",
        parser=reader(seconds),
        help="Time for a local search in all, such as 60s or 5m.",
    ),
]
Sizes = Annotated[
    SizeList | None,
    typer.Option(
        "--sizes",
        metavar="SIZES",
        parser=reader(size_list),
        help="Sizes such as 64K,1M:1G; a range doubles. Default 1M:1G, simulated 1M:512M.",
    ),
]
PhaseSizes = Annotated[
    SizeList | None,
    typer.Option(
        "--sizes",
        metavar="SIZES",
        parser=reader(size_list),
        help="Sizes such as 2M,16M:64M; a range doubles. Default 2M:512M.",
    ),
]
GraphNodes = Annotated[
    NodeCounts | None,
    typer.Option(
        "--nodes",
        metavar="COUNTS",
        parser=reader(node_counts),
        help="Nodes of the graph, such as 2,8:64; a range doubles. Default 2:64.",
    ),
]
Ranks = Annotated[
    int, typer.Option("--ranks", min=2, max=64, help="Processes, each with a GPU of its own.")
]
Pairs = Annotated[
    int | None,
    typer.Option(
        "--pairs", min=1, help="Runs with, and as many without polypath; default 3, simulated 1."
    ),
]
Mpirun = Annotated[
    str | None,
    typer.Option(
        "--mpirun",
        metavar="FILE",
        help="Start programs by this mpirun, in the environment as it is; default: `make mpi`'s.",
    ),
]
MessageSizes = Annotated[
    SizeList | None,
    typer.Option(
        "--sizes",
        metavar="SIZES",
        parser=reader(size_list),
        help="Bytes of a message, such as 64K,1M:1G. Default 1M:256M, latency 1:4M, "
        "simulated 4K,4M.",
    ),
]
MessageWindows = Annotated[
    SizeList | None,
    typer.Option(
        "--windows",
        metavar="COUNTS",
        parser=reader(window_list),
        help="bw, bibw, put: so many messages before waiting. Default 1,4,16.",
    ),
]
Powers = Annotated[
    SizeList | None,
    typer.Option(
        "--powers",
        metavar="LIST",
        parser=reader(power_list),
        help="Grids of 8 x 2^K elements for these K, such as 23,26:30. Default 23:28, "
        "simulated 22.",
    ),
]
