"""Real copies by programs that know nothing of polypath: are they caught, and which way do they
go?"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..launch.environment import find_shim
from . import advice, statistics
from .children import Child, with_statistics
from .finding import Finding, State
from .routes import IMPORT, Leg, Plan


class Report(NamedTuple):
    """How one copy went."""

    way: str
    """How the program found the driver's function: one of `driver.WAYS`; "import" for memory of
    another process."""
    leg: Leg
    symbol: str
    bytes: int
    verified: bool
    caught: bool
    routes: dict[str, int]
    """Bytes by route when it was split, else empty."""
    finding: Finding


def preload_finding(environment: Mapping[str, str]) -> Finding:
    """Whether the loader takes the shim into a new process."""
    shim = find_shim()
    maps = "import pathlib; print(pathlib.Path('/proc/self/maps').read_text())"
    done = Child(["-c", maps], environment).end()
    if str(shim) in done.stdout:
        return Finding("preload", State.well, shim.name)
    lines = done.stderr.strip().splitlines()
    return Finding(
        "preload",
        State.wrong,
        f"{shim} is not loaded" + (f": {lines[0]}" if lines else ""),
        "install or build polypath anew (`make setup`) for this machine",
    )


def copy_trial(
    way: str, size: int, planned: Mapping[Leg, Plan], environment: Mapping[str, str]
) -> list[Report]:
    """Runs `trial_copies` with the driver's functions found in this way; one report a copy."""
    with tempfile.TemporaryDirectory() as folder:
        done = Child(
            ["-m", "polypath.doctor.trial_copies", way, str(size)],
            with_statistics(environment, folder),
        ).end()
        written = statistics.read(Path(folder))
    said = done.said()
    process = written[0] if written else None
    symbols = said.get("symbols", {})
    return [
        report(way, leg, symbols.get(f"{leg.src} {leg.dst}", ""), size, said, process, plan)
        for leg, plan in planned.items()
    ]


def import_trial(size: int, plan: Plan, environment: Mapping[str, str]) -> Report:
    """Runs the two programs of `trial_import`: the second copies memory of the first, `IMPORT`."""
    arguments = [str(size), str(secrets.randbits(64))]
    program = ["-m", "polypath.doctor.trial_import"]
    owner, importer = (memory.removeprefix("gpu") for memory in IMPORT)
    with tempfile.TemporaryDirectory() as folder:
        started = with_statistics(environment, folder)
        exporter = Child([*program, "export", owner, *arguments], started)
        line = exporter.line()
        handle = json.loads(line).get("handle") if line else None
        if handle is None:
            ended = exporter.end()._replace(stdout=line)
        else:
            ended = Child([*program, "import", importer, *arguments, handle], started).end()
            exporter.end()
        written = {process["pid"]: process for process in statistics.read(Path(folder))}
    said = ended.said()
    return report(
        "import", IMPORT, said.get("symbol", ""), size, said, written.get(ended.pid), plan
    )


def report(
    way: str,
    leg: Leg,
    symbol: str,
    size: int,
    said: Mapping[str, Any],
    process: dict[str, Any] | None,
    plan: Plan,
) -> Report:
    """Puts together what the trial program said, what the shim counted in its process, and what the
    plan expects."""
    call = process["calls"].get(symbol) if process else None
    caught = call is not None and call["calls"] > 0
    is_split = call is not None and call["issued"] > 0
    routes = statistics.bytes_by_route(process, *leg) if process and is_split else {}
    verified = bool(said.get("verified", False))
    what = f"{way}, {leg}"
    if said.get("error"):
        finding = Finding(what, State.wrong, said["error"], "does the same fail without polypath?")
    elif not verified:
        finding = Finding(
            what,
            State.wrong,
            "the bytes differ",
            "do not run programs under polypath here; please report it",
        )
    elif not caught:
        finding = Finding(
            what,
            State.wrong,
            "not caught",
            "does something else stand before the driver's functions? `LD_DEBUG=bindings` shows",
        )
    elif routes:
        finding = Finding(what, State.well, "split")
    elif plan["native"]:
        finding = Finding(what, State.note, f"native: {plan['reason']}")
    else:
        finding = _native(what, process)
    return Report(way, leg, symbol, size, verified, caught, routes, finding)


def _native(what: str, process: dict[str, Any] | None) -> Finding:
    """Of a copy that the plan would have split."""
    counted = statistics.reasons([process] if process else [], "native_by_reason")
    if not counted:
        text, hint = "the engine was not asked", "POLYPATH_LOG_LEVEL=info says why"
    else:
        text = ", ".join(counted)
        hint = "; ".join(dict.fromkeys(advice.on_native(reason).text for reason in counted))
    return Finding(what, State.wrong, f"native: {text}", hint)
