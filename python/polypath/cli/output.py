"""Where results go: tables to stdout, JSON to a file or stdout, progress to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_STDOUT = "-"
_FILE_WIDTH = 160


def console(json_target: str | None = None) -> Console:
    """The console of tables. Quiet when JSON has stdout; wide when stdout is not a terminal, so
    that tables in files and pipes are not broken at 80 columns."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _FILE_WIDTH
    return Console(quiet=json_target == _STDOUT, highlight=False, width=width)


def print_lines(out: Console, *lines: str) -> None:
    """Prints text as it is: no markup, and lines as long as they are."""
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def write_json(value: Any, target: str | None) -> None:
    """Writes to the target of ``--json``; None writes nothing."""
    if target is None:
        return
    text = json.dumps(value, indent=2) + "\n"
    if target == _STDOUT:
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, encoding="utf-8")


def plain_table(*columns: str, right: Iterable[str] = ()) -> Table:
    """A table in the style of all commands; ``right`` names the columns of figures."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    figures = set(right)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in figures else "left",
            no_wrap=True,
            overflow="fold",
        )
    return table


def ratio(value: float, of: float, text: str = "{:.2f}") -> str:
    """``value / of`` in this format; "-" where there is nothing to compare with."""
    return text.format(value / of) if of else "-"


#: Called before each step with its number from 0, the number of steps, and its name.
Step = Callable[[int, int, str], None]


@contextlib.contextmanager
def progress(title: str) -> Iterator[Step]:
    """Progress on stderr: a bar on a terminal, which goes when it is done; else a line a step."""
    errors = Console(stderr=True, highlight=False)
    if not errors.is_terminal:

        def line(done: int, total: int, what: str) -> None:
            if done < total:
                print(f"{title}: {done + 1}/{total} {what}", file=sys.stderr, flush=True)

        yield line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bars:
        task = bars.add_task(title, total=None)

        def bar(done: int, total: int, what: str) -> None:
            bars.update(task, completed=done, total=total, description=f"{title}: {what}")

        yield bar
