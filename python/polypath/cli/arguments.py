"""From a command's function to its command line.

Each parameter of a command is annotated ``Annotated[type, Option(...)]``, or ``Argument`` for one
without a name; its default is the function's. One that is annotated with a dataclass, whose fields
are so annotated, stands for the options of all its fields.
"""

from __future__ import annotations

import argparse
import difflib
import enum
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

from ..errors import InvalidArgument

_T = TypeVar("_T")
_Choice = TypeVar("_Choice", bound=enum.StrEnum)


@dataclass(frozen=True)
class Option:
    """``--name VALUE``; of a parameter that is a bool, ``--name`` alone."""

    name: str
    help: str
    metavar: str = "TEXT"
    read: Callable[[str], Any] = str
    """A `ValueError` of it becomes an error that names the option."""
    short: str = ""
    repeated: bool = False
    """May be given several times: a list."""


@dataclass(frozen=True)
class Argument:
    """A value without a name."""

    metavar: str
    help: str
    read: Callable[[str], Any] = str
    rest: bool = False
    """A list of this word and all after it, as they are: a program and its arguments."""
    is_optional: bool = False
    """None where it is missing."""


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Reads a whole number in these bounds."""
    allowed = f"at least {least}" if most is None else f"{least} to {most}"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            raise ValueError(f"'{text}' is not a whole number, {allowed}")
        return value

    return read


def one_of(choices: type[_Choice]) -> Callable[[str], _Choice]:
    """Reads one of the words of an enumeration."""

    def read(text: str) -> _Choice:
        names = [str(choice) for choice in choices]
        if text not in names:
            raise ValueError(
                f"'{text}' is not one of {', '.join(names)}{did_you_mean(text, names)}"
            )
        return choices(text)

    return read


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown word: empty when nothing is like it."""
    names = list(known)
    close = alike(text, names) or difflib.get_close_matches(text, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def alike(text: str, known: Iterable[str]) -> list[str]:
    """Names equal to the word but for hyphens, underscores and capitals."""

    def bare(name: str) -> str:
        return name.replace("-", "").replace("_", "").lower()

    return [name for name in known if bare(name) == bare(text)]


class CommandLine:
    """The arguments of one command."""

    def __init__(self, name: str, function: Callable[..., None]) -> None:
        """``name``: with that of the program."""
        self._names: list[str] = ["-h", "--help"]
        self._with_value: set[str] = set()
        self._rest: str | None = None
        self._groups: dict[str, Any] = {}
        paragraphs = (function.__doc__ or "").split("\n\n")
        self._parser = _Parser(
            prog=name,
            description="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs),
            formatter_class=_Formatter,
            allow_abbrev=False,
            add_help=False,
        )
        # -1K is a value, not an option: the reader of the value refuses it.
        self._parser._negative_number_matcher = re.compile(r"-\.?\d")
        shown = []
        for parameter, hint in get_type_hints(function, include_extras=True).items():
            if parameter == "return":
                continue
            if is_dataclass(hint):
                self._add_group(parameter, hint)
                continue
            kind, declared = get_args(hint)
            default = (function.__kwdefaults__ or {}).get(parameter, ...)
            if isinstance(declared, Argument):
                name_shown = declared.metavar
                shown.append(f"[{name_shown}]" if declared.is_optional else name_shown)
                self._add_argument(parameter, declared)
            else:
                self._add_option(parameter, declared, kind is bool, default)
        self._parser.add_argument("-h", "--help", action="help", help="Show this and leave.")
        self._parser.usage = " ".join([name.replace("%", "%%"), "[OPTIONS]", *shown])

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Parameters by name. Raises `InvalidArgument`; leaves with the help where it is asked
        for."""
        words, rest = self._split(list(words))
        for word in words:
            name = word.partition("=")[0]
            if name.startswith("--") and name not in self._names:
                raise InvalidArgument(f"there is no option {name}{did_you_mean(name, self._names)}")
        values, unknown = self._parser.parse_known_args(words)
        if unknown:
            raise InvalidArgument(f"{unknown[0]} is one argument too many")
        parameters = {**vars(values), **({self._rest: rest or None} if self._rest else {})}
        for parameter, group in self._groups.items():
            names = [field.name for field in fields(group)]
            parameters[parameter] = group(
                **{name: parameters.pop(f"{parameter}.{name}") for name in names}
            )
        return parameters

    def _split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Own words, and the words of the program to run."""
        if self._rest is None:
            return words, []
        at = 0
        while at < len(words) and words[at].startswith("-") and words[at] != "--":
            at += 2 if words[at] in self._with_value else 1
        return words[:at], words[at + (words[at : at + 1] == ["--"]) :]

    def _add_argument(self, parameter: str, declared: Argument) -> None:
        if declared.rest:
            self._rest = parameter
            self._parser.epilog = f"{declared.metavar}: {declared.help}"
            return
        self._parser.add_argument(
            parameter,
            metavar=declared.metavar,
            help=declared.help,
            type=_reader(declared.read),
            nargs="?" if declared.is_optional else None,
        )

    def _add_group(self, parameter: str, group: Any) -> None:
        self._groups[parameter] = group
        hints = get_type_hints(group, include_extras=True)
        for field in fields(group):
            kind, declared = get_args(hints[field.name])
            self._add_option(f"{parameter}.{field.name}", declared, kind is bool, field.default)

    def _add_option(self, parameter: str, declared: Option, is_flag: bool, default: Any) -> None:
        names = [declared.short, declared.name] if declared.short else [declared.name]
        self._names += names
        settings: dict[str, Any] = {"dest": parameter, "default": default, "help": declared.help}
        if is_flag:
            settings["action"] = "store_true"
        else:
            self._with_value.update(names)
            settings |= {"metavar": declared.metavar, "type": _reader(declared.read)}
            if declared.repeated:
                settings["action"] = "append"
        settings["help"] = settings["help"].replace("%", "%%")
        self._parser.add_argument(*names, **settings)


def _reader(read: Callable[[str], _T]) -> Callable[[str], _T]:
    def parse(text: str) -> _T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(message.removeprefix("argument "))

    def print_help(self, file: Any = None) -> None:
        """As argparse's, which would say nothing of a stdout that cannot be written."""
        print(self.format_help(), end="", file=file)


class _Formatter(argparse.HelpFormatter):
    """Paragraphs stay apart, and words with hyphens whole."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            textwrap.fill(paragraph, width, break_on_hyphens=False)
            for paragraph in text.split("\n\n")
        )
