"""The examples of the documentation: read them, run them, or write their output anew.

    python tests/python/doc_examples.py       writes the output of every command anew

A block ```console holds a command after "$ " and what it prints. Simulated nodes run in virtual
time, so that the output is the same everywhere; folders are written as in a home folder. A block
```python is a program of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import mpi_stack

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COMMANDS = DOCS / "command-line.md"
OVERHEADS = DOCS / "graph-overheads.md"
TUNING = DOCS / "tuning.md"
PROGRAMS = DOCS / "python.md"

_NEED_MPI = ("polypath bench mpi", "polypath bench jacobi")
_CONSOLE = re.compile(r"(?<=^```console\n)\$ (.*)\n((?:.*\n)*?)(?=^```$)", re.MULTILINE)
_PYTHON = re.compile(r"(?<=^```python\n)((?:.*\n)*?)(?=^```$)", re.MULTILINE)


def commands(text: str) -> list[tuple[str, str]]:
    """Every command with the output that the document gives."""
    return _CONSOLE.findall(text)


def programs(text: str) -> list[str]:
    return _PYTHON.findall(text)


#: Runs Python with arguments, in a folder, with an environment.
Start = Callable[[Sequence[str], Path, Mapping[str, str]], subprocess.CompletedProcess[str]]


def start_python(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a new Python."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )


def run(arguments: list[str], start: Start = start_python) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments in an empty folder, as on a machine without a GPU."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("POLYPATH_", "XDG_")) or name == "POLYPATH_LIBRARY"
    }
    with tempfile.TemporaryDirectory() as folder:
        settings = {"COLUMNS": "116", "CUDA_VISIBLE_DEVICES": "", "HOME": folder}
        done = start(arguments, Path(folder), {**inherited, **settings})
    done.stdout = done.stdout.replace(folder, "~").replace(str(ROOT), "~/polypath")
    return done


def output(command: str, start: Start = start_python) -> str:
    """What a command prints, tables and messages, without the spaces that end lines and without the
    progress on stderr."""
    program, *arguments = shlex.split(command)
    assert program == "polypath", command
    done = run(["-m", "polypath", *arguments], start)
    text = done.stdout if done.returncode == 0 else done.stdout + done.stderr
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


def cannot_run(command: str) -> str | None:
    """Why this command cannot be run here; None when it can."""
    return mpi_stack.why_not() if command.startswith(_NEED_MPI) else None


def _written_anew(match: re.Match[str]) -> str:
    why = cannot_run(match[1])
    if why is not None:
        print(f"left as it is: {match[1]} ({why})", file=sys.stderr)
        return match[0]
    return f"$ {match[1]}\n{output(match[1])}"


def main() -> None:
    for document in (COMMANDS, OVERHEADS, TUNING):
        document.write_text(_CONSOLE.sub(_written_anew, document.read_text()))


if __name__ == "__main__":
    main()
