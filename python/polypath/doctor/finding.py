"""One thing that was looked at, how it is, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple


class State(enum.StrEnum):
    well = enum.auto()
    note = enum.auto()
    """Worth knowing; nothing that works less well than it can here."""
    wrong = enum.auto()


class Finding(NamedTuple):
    what: str
    state: State
    text: str
    advice: str = ""


def all_well(findings: Iterable[Finding]) -> bool:
    """Whether nothing is wrong."""
    return all(finding.state is not State.wrong for finding in findings)
