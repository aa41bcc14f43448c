#!/usr/bin/env python3
"""Writes the pages that have their source elsewhere, as Markdown into the folder given: the
settings (from the library's table), every command's options (from its help) and the Python API
(from its docstrings). Also two lists: public headers (their pages are by docs/Doxyfile), and
decisions (docs/adr)."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import polypath
from polypath.cli import GROUPS, call

#: The public modules, and what each is for.
MODULES = {
    "polypath": "transfers, plans, measurements",
    "polypath.comm": "ranks, symmetric memory, signals, collectives",
    "polypath.messaging": "queues and pools for kernels",
    "polypath.matching": "message matching",
    "polypath.uniconn": "UNICONN",
}


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "A call's argument comes before the environment, then the tuned profile, then the default. "
        "`polypath info -c` prints each setting with its value and where that came from.",
        "",
        "| setting | environment | default | allowed | meaning |",
        "|---|---|---|---|---|",
    ]
    for row in polypath.settings():
        default = f"`{row['default']}`" if row["default"] else ""
        lines.append(
            f"| `{row['name']}` | `{row['environment']}` | {default} "
            f"| {row['allowed']} | {row['meaning']} |"
        )
    return "\n".join(lines) + "\n"


def help_of(command: str) -> str:
    """What `polypath COMMAND --help` prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        call([*command.split(), "--help"], "polypath")
    return output.getvalue().rstrip()


def commands_page() -> str:
    os.environ["COLUMNS"] = "98"
    lines = [
        "# Options of all commands",
        "",
        "The help of every command. [command-line.md](command-line.md) has an example of each.",
        "",
    ]
    for group, commands in GROUPS.items():
        lines += [f"## {group}", ""]
        for command in commands:
            lines += [
                f"### polypath {command.name}",
                "",
                "```text",
                help_of(command.name),
                "```",
                "",
            ]
    return "\n".join(lines)


def public_names(module: object) -> Iterator[str]:
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_")
            and (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__ == module.__name__  # type: ignore[attr-defined]
        ]
    return iter(names)


def description(value: object) -> str:
    """A docstring as Markdown."""
    text = (inspect.getdoc(value) or "").replace("``", "`")
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([<>*_])", r"\\\1", part) for part in parts
    )


def signature_of(name: str, value: object) -> str:
    """`name(parameters) -> result`, with annotations as they are in the source, without self."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    parameters = [
        parameter.replace(annotation=_Bare(parameter.annotation))
        if parameter.annotation is not parameter.empty
        else parameter
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    result = signature.return_annotation
    bare = signature.replace(
        parameters=parameters,
        return_annotation=signature.empty if result is signature.empty else _Bare(result),
    )
    return f"{name}{bare}"


class _Bare:
    """An annotation without quotation marks."""

    def __init__(self, annotation: object) -> None:
        self._text = getattr(annotation, "__forward_arg__", annotation)

    def __repr__(self) -> str:
        return str(getattr(self._text, "__name__", self._text))


def members_of(value: type) -> Iterator[tuple[str, object]]:
    for name, member in vars(value).items():
        if name.startswith("_"):
            continue
        if isinstance(member, (classmethod, staticmethod)):
            yield name, getattr(value, name)
        elif inspect.isfunction(member) or isinstance(member, property):
            yield name, member


def class_lines(name: str, value: type) -> list[str]:
    lines = [f"### class `{signature_of(name, value)}`", "", description(value), ""]
    for member_name, member in members_of(value):
        title = member_name if isinstance(member, property) else signature_of(member_name, member)
        lines += [f"#### `{title}`", "", description(member), ""]
    return lines


def python_page() -> str:
    lines = [
        "# Python API",
        "",
        "Classes and functions with their docstrings. [python.md](python.md) explains them with "
        "examples; [pytorch.md](pytorch.md) has `polypath.torch`.",
        "",
    ]
    seen: set[int] = set()
    for module_name, purpose in MODULES.items():
        module = importlib.import_module(module_name)
        lines += [f"## {module_name}: {purpose}", ""]
        for name in public_names(module):
            value = getattr(module, name)
            if id(value) in seen:
                continue
            seen.add(id(value))
            if inspect.isclass(value):
                lines += class_lines(name, value)
            elif callable(value):
                lines += [f"### `{signature_of(name, value)}`", "", description(value), ""]
    return "\n".join(lines) + "\n"


#: What a reader looks for, and the header that has it.
HEADERS = {
    "C": {
        "polypath.h": "contexts, transfers, plans, counters",
        "types.h": "element types, reduction operators",
        "comm.h": "communicators, symmetric memory, signals, collectives",
        "comm_mpi.h": "communicators of programs that use MPI",
        "messaging.h": "what kernels send each other: queues, channels, pools, matching",
        "uniconn.h": "UNICONN",
        "lab.h": "benchmarks, tuner, cost of CUDA graphs",
    },
    "C++": {
        "polypath.hpp": "owners and exceptions over polypath.h",
        "comm.hpp": "the same over comm.h",
        "uniconn.hpp": "UNICONN",
    },
    "Kernels": {
        "device.cuh": "all of the following",
        "device/queue.cuh": "queues of several groups",
        "device/spsc_queue.cuh": "queues from one group to one",
        "device/channel.cuh": "messages with tags",
        "device/active_messages.cuh": "functions that another GPU executes",
        "device/pool.cuh": "memory of one GPU",
        "device/shared_pool.cuh": "memory of several GPUs",
        "device/collectives.cuh": "collectives from kernels",
        "device/matcher_mpi.cuh": "matching in MPI's order",
        "device/match_partitioned.cuh": "matching without a source wildcard",
        "device/match_hashed.cuh": "matching without order",
        "device/matcher_grid.cuh": "matching by a whole GPU",
        "device/platform.cuh": "indices, barriers, warp operations, loads and stores",
        "device/scope.cuh": "loads, stores and fences with a scope",
        "device/group.cuh": "threads, warps and blocks as groups",
        "device/tile.cuh": "copies and sums in bulk",
        "device/wait.cuh": "waits that end",
    },
}


def html_name(header: str) -> str:
    """The page that Doxygen writes for a public header: by its path where others have its name."""
    root = Path(__file__).parents[1]
    name = header.rsplit("/", 1)[-1]
    if len(list(root.glob(f"[a-z]*/include/**/{name}"))) > 1:
        name = str(next(root.glob(f"[a-z]*/include/polypath/{header}")).relative_to(root))
    return name.replace("_", "__").replace("/", "_2").replace(".", "_8") + ".html"


def api_page() -> str:
    lines = [
        "# C, C++ and device API",
        "",
        "Doxygen's pages of all public headers: [files](../api/files.html), "
        "[classes](../api/annotated.html).",
        "",
    ]
    for part, headers in HEADERS.items():
        lines += [f"## {part}", "", "| header | what is in it |", "|---|---|"]
        for header, what in headers.items():
            lines.append(f"| [`polypath/{header}`](../api/{html_name(header)}) | {what} |")
        lines.append("")
    return "\n".join(lines)


def decisions_page(folder: Path) -> str:
    lines = [
        "# Decisions",
        "",
        "Each says what was decided, why, and what was rejected.",
        "",
    ]
    for file in sorted((folder / "adr").glob("[0-9]*.md")):
        title = file.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        lines.append(f"- [{title}]({file.name})")
    return "\n".join(lines) + "\n"


def main() -> None:
    folder = Path(sys.argv[1])
    pages = {
        "settings.md": settings_page(),
        "commands.md": commands_page(),
        "python-api.md": python_page(),
        "api.md": api_page(),
        "adr/index.md": decisions_page(folder),
    }
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
