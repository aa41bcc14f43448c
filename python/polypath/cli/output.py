"""Where results go: tables to stdout, JSON to a file or stdout, progress to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from ..sizes import figure

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

_STDOUT = "-"
_FILE_WIDTH = 160
_MIN_TEXT = 22  # columns of a sentence that is broken into lines


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
        try:
            Path(target).write_text(text, encoding="utf-8")
        except OSError as error:  # that of a full disk names no file
            raise OSError(error.errno, error.strerror, target) from error


class PlainTable:
    """A table in the style of all commands. One that is too wide is shown in parts, each with the
    first columns again: no column is left out."""

    def __init__(
        self,
        *columns: str,
        right: Iterable[str] = (),
        wrap: Iterable[str] = (),
        keys: int = 1,
        caption: str = "",
        is_tight: bool = False,
        is_apart: bool = False,
    ) -> None:
        """``right`` names the columns of figures, ``wrap`` those whose texts may be broken into
        lines; ``keys``: number of first columns that say what a row is about; ``is_apart``: an
        empty line between rows; ``is_tight``: so, and columns side by side."""
        self.columns = columns
        self.rows: list[Sequence[str]] = []
        self.right = set(right)
        self.wrap = set(wrap)
        self.keys = keys
        self.caption = caption
        self.is_tight = is_tight
        self.is_apart = is_apart or is_tight

    def add_row(self, *cells: str) -> None:
        """Cells may hold markup of rich."""
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        parts = self._parts(options.max_width)
        for part in parts:
            table = self._table(part)
            if part is parts[-1] and self.caption:
                table.caption, table.caption_justify = self.caption, "left"
            yield table

    def _table(self, part: Sequence[int]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.leading = 1 if self.is_apart else 0
        if self.is_tight:
            table.padding = (0, 0)
        for index in part:
            name = self.columns[index]
            table.add_column(
                name,
                justify="right" if name in self.right else "left",
                no_wrap=name not in self.wrap,
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*(row[index] for index in part))
        return table

    def _parts(self, width: int) -> list[list[int]]:
        """Columns that are shown together, as few times as fits."""
        gap = 1 if self.is_tight else 3
        keys = list(range(self.keys))
        taken = 2 + sum(self._width(index) for index in keys) + gap * (self.keys - 1)
        parts, used = [[*keys]], taken
        for index in range(self.keys, len(self.columns)):
            more = gap + self._width(index)
            if used + more > width and len(parts[-1]) > self.keys:
                parts.append([*keys])
                used = taken
            parts[-1].append(index)
            used += more
        return parts

    def _width(self, index: int) -> int:
        cells = [self.columns[index], *(row[index] for row in self.rows)]
        lines = [line for cell in cells for line in Text.from_markup(cell).plain.splitlines()]
        widest = max((Text(line).cell_len for line in lines), default=0)
        return min(widest, _MIN_TEXT) if self.columns[index] in self.wrap else widest


def ratio(value: float, base: float, text: str = "{:.2f}") -> str:
    """``value / of`` in this format; "-" where there is nothing to compare with."""
    return text.format(value / base) if base else "-"


def times(value: float) -> str:
    """A speedup: "1.09", "0.97", "12.3"."""
    return figure(value) if value >= 10 else f"{value:.2f}"


def yes(value: bool) -> str:
    """A cell that says whether all is well."""
    return "yes" if value else "[bold red]NO[/bold red]"


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
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with bars(errors, *columns, TimeElapsedColumn()) as update:

        def bar(done: int, total: int, what: str) -> None:
            update(completed=done, total=total, description=f"{title}: {what}")

        yield bar


@contextlib.contextmanager
def bars(errors: Console, *columns: ProgressColumn) -> Iterator[Callable[..., None]]:
    """A bar with these columns while it lasts; what is yielded takes what rich's
    ``Progress.update`` does."""
    from rich.progress import Progress

    with Progress(*columns, console=errors, transient=True) as shown:
        task = shown.add_task("", total=None, left=0.0)
        yield lambda **changes: shown.update(task, **changes)
