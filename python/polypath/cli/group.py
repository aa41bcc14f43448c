"""The command line's way with errors: one line that says what to do, an exit code, no traceback.

Exit codes: 0; 1 when something went wrong while running, or a benchmark's bytes were not verified;
2 for arguments, settings and files that are not usable, and when there is no GPU and no node was
named; 125 to 127 for a program that `polypath run` cannot run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from ..errors import InvalidArgument, LibraryNotFound, NoDevice, PolypathError
from ..launch.command import CommandRefused

# The root of Typer's usage errors; which module it lies in differs between Typer's releases.
_UsageError: Any = typer.BadParameter.__bases__[0]


class OneLineErrors(TyperGroup):
    """A group of commands whose errors are one line on stderr. A command's name may be two words,
    such as "bench graph-phases"; it goes before the command of the first word."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        two_words = " ".join(args[:2])
        command = self.get_command(ctx, two_words) if len(args) > 1 else None
        if command is not None:
            return two_words, command, args[2:]
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except _UsageError as error:
            code = _report(error.format_message(), 2)
        except (InvalidArgument, NoDevice, LibraryNotFound) as error:
            code = _report(str(error), 2)
        except CommandRefused as error:
            code = _report(str(error), error.code)
        except PolypathError as error:
            code = _report(str(error), 1)
        except OSError as error:
            if error.filename is None:
                raise
            code = _report(f"{error.filename}: {error.strerror}", 2)
        except (KeyboardInterrupt, typer.Abort):
            code = _report("interrupted", 130)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)


def _report(message: str, code: int) -> int:
    print(f"polypath: {' '.join(message.split())}", file=sys.stderr)
    return code
