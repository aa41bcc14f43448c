"""`polypath run`: an unmodified program over every path."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

from ..context import Context
from ..errors import InvalidArgument
from ..launch import command, environment
from ..launch.measure import measure_once
from ..launch.preloaded import others_with_dlsym, passed_over
from . import options
from .arguments import Option


def run(
    program: options.Program,
    *,
    routes: options.Routes = None,
    emulate_mesh: options.EmulateMesh = None,
    setting: options.Settings = None,
    stats: Annotated[
        str | None,
        Option(
            "--stats",
            "Say how each process's copies went, at its end: on stderr, or in FILE.PID.json.",
            metavar="text|FILE.json",
            read=environment.statistics_target,
        ),
    ] = None,
    reproducible: Annotated[
        bool,
        Option(
            "--reproducible",
            "Take every sum of floats of NCCL's in rank order: the same bits whatever its size.",
        ),
    ] = False,
    strict: Annotated[
        bool, Option("--strict", "Stop a program where --reproducible cannot be promised.")
    ] = False,
    order: options.SumOrder = None,
    no_measure: Annotated[
        bool,
        Option("--no-measure", "Do not measure a node that was never measured (3 s, once) first."),
    ] = False,
    anyway: Annotated[
        bool, Option("--anyway", "Run also a program whose copies will not be caught.")
    ] = False,
    print_only: Annotated[
        bool, Option("--print", "Run nothing; print the variables to set, for job scripts.")
    ] = False,
    node: options.Node = None,
) -> None:
    """Run an unmodified program so that its copies take every path.

    Such as `polypath run -- mpirun -n 4 ./app`. The program replaces this process: process number,
    signals and exit code are its own. On a machine that was never measured, its capacities are
    measured first, and kept as its profile.

    Exit codes of polypath itself: 125 when the program's copies would not be caught, and of a
    program that --strict stopped, 126 when it cannot be executed, 127 when there is none.
    """
    if not program and not print_only:
        raise InvalidArgument("give the program to run: polypath run -- mpirun -n 4 ./app")
    settings = options.given_settings(routes, emulate_mesh, setting)
    changed = {
        **environment.assignments(os.environ, node),
        **environment.settings_environment(settings),
    }
    check_node(node)
    if strict and not reproducible:
        raise InvalidArgument("--strict is for --reproducible")
    if order is not None:
        changed["POLYPATH_SUM_ORDER"] = order
    if reproducible:
        changed.update(environment.reproducible(strict))
    if stats is not None:
        changed[environment.STATISTICS] = stats
    file = check_program(program, anyway) if program else None
    if print_only:
        for name, value in changed.items():
            print(f"export {name}={shlex.quote(value)}")
        return
    assert program is not None
    assert file is not None
    if not no_measure and node is None and not environment.is_preloaded(os.environ):
        measure_once()
    for other in others_with_dlsym(os.environ, environment.preloaded_libraries()):
        print(f"polypath: {passed_over(other)}", file=sys.stderr)
    sys.stdout.flush()
    try:
        os.execve(file, program, {**os.environ, **changed})
    except OSError as error:
        raise command.CommandRefused(
            f"{file} cannot be executed: {error.strerror}", command.NOT_EXECUTABLE
        ) from error


def check_node(node: str | None) -> None:
    """Raises `InvalidArgument` for a simulated node that cannot be used."""
    if node is not None:
        Context(node=node).close()


def check_program(program: list[str], anyway: bool) -> str:
    """The file to execute, with a slash: without, it would be looked up in PATH again. Raises
    `CommandRefused`."""
    file = command.find_program(program[0])
    shim = command.read_elf(environment.find_shim())
    if shim is None:
        raise InvalidArgument(f"{environment.find_shim()} is no library")
    reason = command.why_not_caught(file, program[1:], shim)
    if reason is not None and not anyway:
        raise command.CommandRefused(
            f"{reason}, or --anyway to run it without polypath", command.NOT_CAUGHT
        )
    return str(file) if os.sep in str(file) else f"./{file}"
