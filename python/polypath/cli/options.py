"""Options that several commands have, and how their texts are read."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from ..errors import InvalidArgument
from ..sizes import parse_size, parse_sizes
from .arguments import Argument, Option, whole

_PLOT_SUFFIXES = (".png", ".svg", ".pdf")
_STDOUT = "-"


def window_list(text: str) -> list[int]:
    """Reads ``--window``: counts such as 1,4,16."""
    counts = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if not all(1 <= count <= 64 for count in counts):
        raise ValueError(f"'{text}' is not a list of 1 to 64, such as 1,4,16")
    return counts


def seconds(text: str) -> float:
    """Reads ``--budget``: seconds, such as 60, 60s or 5m."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text.strip())
    if not match or float(match[1]) == 0:
        raise ValueError(f"'{text}' is no time: seconds such as 60s, or 5m")
    return float(match[1]) * {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600}[match[2]]


def microseconds(text: str) -> int:
    """Reads ``--beside-period``: a time such as 20ms or 500us."""  # words: ok
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)", text.strip())
    us = float(match[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[match[2]] if match else 0.0
    if us < 1:
        raise ValueError(f"'{text}' is no time: write 20ms or 500us")
    return round(us)


class Setting(NamedTuple):
    """The value of ``--setting``."""

    name: str
    value: str


def setting(text: str) -> Setting:
    """Reads ``--setting``: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"'{text}' is not NAME=VALUE, such as staging_size=128M")
    return Setting(name, value)


NEED_OF_PLOTS = "plots need matplotlib: pip install 'polypath[plot]'"


def has_matplotlib() -> bool:
    """Whether plots can be drawn: matplotlib is an optional dependency."""
    return importlib.util.find_spec("matplotlib") is not None


def require_matplotlib() -> None:
    """Raises `InvalidArgument` where plots cannot be drawn."""
    if not has_matplotlib():
        raise InvalidArgument(NEED_OF_PLOTS)


def plot_file(text: str) -> Path:
    """Reads ``--plot``: a file that can be written, whose suffix is a format of plots."""
    require_matplotlib()
    file = writable_file(text)
    if file.suffix.lower() not in _PLOT_SUFFIXES:
        raise ValueError(f"'{text}' does not end in one of {', '.join(_PLOT_SUFFIXES)}")
    return file


def json_target(text: str) -> str:
    """Reads ``--json``: a file that can be written, or "-"."""
    return text if text == _STDOUT else str(writable_file(text))


def writable_file(text: str) -> Path:
    """A file that can be made or written over: what is measured for minutes must not be lost for a
    slip in a name. Tries it; a file that was not there is not there afterwards."""
    file = Path(text)
    if not file.name or file.is_dir():
        raise ValueError(f"'{text}' is a folder; name a file in it")
    if not file.parent.is_dir():
        raise ValueError(f"'{text}': there is no folder {file.parent}")
    is_new = not file.exists()
    if is_new or file.is_file():  # a device or pipe is not opened to no purpose
        try:
            file.open("ab").close()
        except OSError as error:
            raise ValueError(f"'{text}' cannot be written: {error.strerror}") from error
    if is_new:
        file.unlink()
    return file


def profile_file(text: str) -> Path:
    """Reads ``--profile``: a file, there or not yet."""
    file = Path(text)
    if not file.name or (file.exists() and not file.is_file()):
        raise ValueError(f"{text}: is no regular file, and a profile is one")
    return file


def require_kept(profile: Path | None) -> None:
    """Raises `InvalidArgument` where a search could not keep what it finds in the profile that
    ``--profile`` names, or POLYPATH_PROFILE."""
    import tempfile

    named = os.environ.get("POLYPATH_PROFILE", "auto")
    if profile is None and named in ("", "auto", "off"):
        return
    name = "POLYPATH_PROFILE" if profile is None else "--profile"
    text = named if profile is None else str(profile)
    try:
        # A profile takes the place of the one before: what counts is its folder, which is made.
        folder = profile_file(text).parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from error
    except OSError as error:
        raise InvalidArgument(
            f"{name}: '{text}' cannot be written: {folder}: {error.strerror}"
        ) from error


def missing_profile(command: str, arguments: Mapping[str, Any]) -> str | None:
    """What to say of a profile that is named and not there, before a command that neither makes it
    nor says so itself."""
    makes_it = command.split()[0] == "tune" and not arguments["show"]
    if makes_it or arguments.get("measure") or command in ("nodes", "info", "doctor", "run"):
        return None
    file, name = arguments.get("profile"), "--profile"
    if file is None:
        from ..launch.environment import missing_profile as missing

        file, name = missing(), "POLYPATH_PROFILE"
    if file is None or Path(file).exists():
        return None
    return f"{name}: there is no file {file}: `polypath tune` makes it, until then defaults serve"


def require_apart(files: Mapping[str, Any]) -> None:
    """Raises `InvalidArgument` where two of the options that name files to write name one."""
    options: dict[Path, str] = {}
    for name in ("plot", "json", "profile"):
        text = files.get(name)
        if text is None or text == _STDOUT:
            continue
        file = Path(text).resolve()
        if file in options:
            raise InvalidArgument(f"--{options[file]} and --{name} name one file, {text}")
        options[file] = name


def sizes_option(help: str) -> Option:
    """``--sizes`` of a command with these defaults."""
    return Option("--sizes", f"{help} Powers of 1024.", metavar="SIZES", read=parse_sizes)


def count_option(name: str, help: str, least: int, most: int | None = None) -> Option:
    return Option(name, help, metavar="N", read=whole(least, most))


def text_option(name: str, help: str, metavar: str = "MEMORY") -> Option:
    return Option(name, help, metavar=metavar)


def _gpus(text: str) -> list[int]:
    """Reads ``--gpus``."""
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise ValueError(f"'{text}' is no list of GPUs, such as 0,1")
    return [int(part) for part in parts]


Gpus = Annotated[
    list[int] | None,
    Option(
        "--gpus",
        "The GPU of each rank, such as 0,1; the others may carry a part.",
        metavar="LIST",
        read=_gpus,
    ),
]


def ranks_of(ranks: int | None, gpus: list[int] | None) -> int | list[int] | None:
    """What ``--ranks`` and ``--gpus`` say, of which one may be given."""
    if ranks is not None and gpus is not None:
        raise InvalidArgument("--ranks and --gpus are both given")
    return ranks if gpus is None else gpus


Node = Annotated[
    str | None,
    Option(
        "--node",
        "Run on this simulated node: a name of `polypath nodes`, or a node file.",
        metavar="NAME|FILE",
    ),
]
Json = Annotated[
    str | None,
    Option("--json", "Write the result as JSON; - is stdout.", metavar="FILE|-", read=json_target),
]
Plot = Annotated[
    Path | None,
    Option(
        "--plot",
        f"Draw it into this file ({', '.join(_PLOT_SUFFIXES)}).",
        metavar="FILE",
        read=plot_file,
    ),
]
Profile = Annotated[
    Path | None,
    Option(
        "--profile",
        "Profile to use instead of the node's own.",
        metavar="FILE",
        read=profile_file,
    ),
]
Routes = Annotated[
    str | None,
    Option(
        "--routes", "Kinds of routes allowed: all, or a list of direct, gpu, host.", metavar="KINDS"
    ),
]
EmulateMesh = Annotated[
    str | None,
    Option(
        "--emulate-mesh",
        "On this machine's NVSwitch: as if each pair of GPUs had a link of its own with so many "
        "GB/s, carried by a kernel.",
        metavar="GBPS",
    ),
]
Settings = Annotated[
    list[Setting] | None,
    Option(
        "--setting",
        "Any other setting of `polypath info -c`; may be repeated.",
        metavar="NAME=VALUE",
        read=setting,
        repeated=True,
    ),
]
Program = Annotated[
    list[str] | None, Argument("-- PROGRAM ...", "the program and its arguments.", rest=True)
]
Size = Annotated[int, Argument("SIZE", "Bytes, such as 64M.", read=parse_size)]
Sizes = Annotated[
    list[int] | None,
    sizes_option("Such as 64K,1M:1G; a range doubles. Default 1M:1G, simulated 1M:512M."),
]


def given_settings(
    routes: str | None, emulate_mesh: str | None, others: Sequence[Setting] | None
) -> dict[str, str]:
    """The settings that these options give, by name."""
    named = {"routes": routes, "emulate_mesh": emulate_mesh}
    return {
        **dict(others or []),
        **{name: value for name, value in named.items() if value is not None},
    }


#: Options that the commands of collectives share.
ElementType = Annotated[str, text_option("--type", "Of the elements; default float32.", "TYPE")]
Operator = Annotated[
    str | None,
    text_option(
        "--op",
        "allreduce, reduce_scatter, reduce: sum, product, min, max or avg; default sum.",
        "OPERATOR",
    ),
]


def _sum_order(text: str) -> str:
    """Reads ``--order``."""
    if text not in ("rank", "tree"):
        raise ValueError(f"'{text}' is neither rank nor tree")
    return text


SumOrder = Annotated[
    str | None,
    Option(
        "--order",
        "Of sums of floats: one rank after another, or as a balanced binary tree over the ranks.",
        metavar="rank|tree",
        read=_sum_order,
    ),
]


def operator_of(op: str, operator: str | None) -> str:
    """The operator of a collective. Raises `InvalidArgument` where one is given that combines
    nothing."""
    combining = ("allreduce", "reduce_scatter", "reduce")
    if operator is not None and op not in combining:
        raise InvalidArgument(f"--op is for {', '.join(combining)}; {op} combines nothing")
    return operator or "sum"
