"""The command line: which commands there are, and its way with errors: one line that says what to
do, an exit code, no traceback.

Exit codes: 0; 1 when something went wrong while running, or a benchmark's bytes were not verified;
2 for arguments, settings and files that are not usable, and when there is no GPU and no node was
named; 125 to 127 for a program that `polypath run` cannot run.

A command's module is imported when it is called.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from ..errors import FileError, InvalidArgument, LibraryNotFound, NoDevice, PolypathError

ABOUT = "One transfer over every path of a node: GPUs, NVLink and host memory at once."


class Command(NamedTuple):
    name: str
    """One word or two."""
    place: str
    """Its module here, and its function there."""
    about: str

    def load(self) -> Callable[..., None]:
        module, function = self.place.split(":")
        loaded: Callable[..., None] = getattr(
            importlib.import_module(f".{module}", __name__), function
        )
        return loaded


GROUPS = {
    "Look": [
        Command("topo", "nodes:topo", "Show GPUs, host memories and the links between them."),
        Command("nodes", "nodes:nodes", "List the known simulated nodes."),
        Command("plan", "plan:plan", "Show the routes, shares and chunks of a transfer."),
        *(
            Command(f"plan {name}", f"plan_collective:{name}", f"Show how {what} would go.")
            for name, what in (
                ("allreduce", "an allreduce of all GPUs"),
                ("reduce_scatter", "a reduce-scatter"),
                ("all_gather", "an all-gather"),
                ("broadcast", "a broadcast"),
                ("reduce", "a reduce"),
                ("all_to_all", "an all-to-all"),
            )
        ),
        Command(
            "plan spread", "plan_spread:plan_spread", "Show how the same bytes reach all GPUs."
        ),
        Command(
            "plan backend", "plan_backend:plan_backend", "Show which backend of UNICONN's is taken."
        ),
        Command("info", "info:info", "Show the settings and the devices."),
    ],
    "Measure": [
        Command("demo", "bench:demo", "Compare native copies with polypath on what is here."),
        Command("bench", "bench:bench", "Compare native copies with polypath."),
        *(
            Command(f"bench {name}", f"bench_collective:{name}", f"Compare {what} with NCCL's.")
            for name, what in (
                ("allreduce", "an allreduce"),
                ("reduce_scatter", "a reduce-scatter"),
                ("all_gather", "an all-gather"),
                ("broadcast", "a broadcast"),
                ("reduce", "a reduce"),
                ("all_to_all", "an all-to-all"),
            )
        ),
        Command("bench pages", "bench_pages:bench_pages", "Compare batches of small blocks."),
        Command("bench load", "bench_load:bench_load", "Compare reads of a file to a GPU."),
        Command("bench spread", "bench_spread:bench_spread", "Compare the same bytes to all GPUs."),
        Command("bench mpi", "bench_mpi:bench_mpi", "Compare MPI messages between GPUs."),
        Command("bench jacobi", "bench_mpi:bench_jacobi", "Compare a solver of MPI ranks."),
        Command(
            "bench uniconn", "bench_uniconn:bench_uniconn", "Compare UNICONN with its libraries."
        ),
        Command(
            "bench messaging",
            "bench_messaging:bench_messaging",
            "Measure messages of kernels, without the CPU.",
        ),
        Command(
            "bench graph-phases", "graph_phases:graph_phases", "Measure the phases of a CUDA graph."
        ),
        Command("tune", "tune:tune", "Find the best routes, shares and chunks for this node."),
        Command(
            "tune backend", "tune_backend:tune_backend", "... the fastest of UNICONN's backends."
        ),
        Command("tune collectives", "tune_collective:collectives", "... the fastest collectives."),
        *(
            Command(f"tune {name}", f"tune_collective:{name}", f"... the fastest {what}.")
            for name, what in (
                ("allreduce", "allreduce"),
                ("reduce_scatter", "reduce-scatter"),
                ("all_gather", "all-gather"),
                ("broadcast", "broadcast"),
                ("reduce", "reduce"),
                ("all_to_all", "all-to-all"),
            )
        ),
    ],
    "Run programs": [
        Command(
            "load", "load_file:load", "Load the tensors of a file, and show how long it takes."
        ),
        Command("run", "run:run", "Run an unmodified program over every path."),
        Command("doctor", "doctor:doctor", "Show which copies are caught, and what to do."),
    ],
}
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}


def app(prog_name: str = "polypath") -> NoReturn:
    """Runs the command that the process's arguments name, and leaves."""
    _open_streams()
    code = _run(prog_name)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = code or 1
        if not isinstance(error, BrokenPipeError):  # the reader has seen enough, as head(1)
            _report(f"stdout: {error.strerror}", code)
        # What is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _open_streams() -> None:
    """Opens standard streams that the caller had closed. Every write to such a stdout fails, and
    output to such a stderr is lost."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _run(program: str) -> int:
    """The exit code; errors have been told."""
    try:
        call(sys.argv[1:], program)
    except (FileError, InvalidArgument, NoDevice, LibraryNotFound) as error:
        return _report(str(error), 2)
    except PolypathError as error:
        return _report(str(error), getattr(error, "code", 1))
    except BrokenPipeError:
        return 1
    except OSError as error:
        if error.filename is not None:
            return _report(f"{error.filename}: {error.strerror}", 2)
        return 1 if _is_of_stdout() else _report(error.strerror or str(error), 1)
    except KeyboardInterrupt:
        return _report("interrupted", 130)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    return 0


def _is_of_stdout() -> bool:
    """Whether stdout is what cannot be written: then its last flush fails as well, and tells."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def call(words: Sequence[str], program: str) -> None:
    """Runs one command. Raises `PolypathError`, `OSError`, and `SystemExit` for an exit code."""
    if not words or words[0] in ("-h", "--help"):
        print(overview(program))
        return
    if words[0] == "--version":
        from .. import version

        print(version())
        return
    for count in (2, 1):
        command = COMMANDS.get(" ".join(words[:count]))
        if command is not None and (count == 2 or not _likely(words)):
            from .arguments import CommandLine
            from .options import missing_profile, require_apart

            function = command.load()
            arguments = CommandLine(f"{program} {command.name}", function).read(words[count:])
            require_apart(arguments)
            if error := missing_profile(command.name, arguments):
                print(f"polypath: warning: {error}", file=sys.stderr)
            function(**arguments)
            return
    raise InvalidArgument(_unknown(words, program))


def _likely(words: Sequence[str]) -> list[str]:
    """Commands of two words that these two are likely to mean: "plan all_reduce"."""
    if len(words) < 2 or words[1].startswith("-"):
        return []
    from .arguments import alike

    of_first = {name.split()[1]: name for name in COMMANDS if name.startswith(f"{words[0]} ")}
    return [of_first[name] for name in alike(words[1], of_first)]


def _unknown(words: Sequence[str], program: str) -> str:
    """What to say of words that begin with no command."""
    from .arguments import alike, did_you_mean

    help_of_all = f": `{program} --help` lists them"
    if words[0].startswith("-"):
        if any(word in COMMANDS for word in words[1:]):
            return f"{words[0]}: options stand behind the command: {program} COMMAND [OPTIONS]"
        hint = did_you_mean(words[0], ["--help", "--version"]) or help_of_all
        return f"there is no option {words[0]}{hint}"
    if likely := _likely(words):
        return f"there is no command {' '.join(words[:2])}; did you mean {likely[0]}?"
    lasts = list(dict.fromkeys(name.split()[-1] for name in COMMANDS))
    if last := alike(words[0], lasts):
        names = [name for name in COMMANDS if name.split()[-1] == last[0]]
        return f"there is no command {words[0]}; did you mean {' or '.join(names)}?"
    hint = did_you_mean(words[0], COMMANDS) or help_of_all
    return f"there is no command {words[0]}{hint}"


def overview(program: str) -> str:
    """The commands, in groups."""
    lines = [ABOUT, "", f"Usage: {program} COMMAND ..."]
    width = max(map(len, COMMANDS))
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {command.name:{width}}  {command.about}" for command in commands]
    return "\n".join(
        [
            *lines,
            "",
            f"Options of a command: {program} COMMAND --help. Version: {program} --version.",
        ]
    )


def _report(message: str, code: int) -> int:
    print(f"polypath: {' '.join(message.split())}", file=sys.stderr)
    return code
