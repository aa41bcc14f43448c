"""Real copies by a program that knows nothing of polypath: are they caught, and which way do they
go?"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ..context import Context
from ..launch.environment import find_shim
from ..sizes import parse_sizes
from . import advice, statistics
from .finding import Finding, State

_SIZES = parse_sizes("16M:256M")
_TIMEOUT_S = 120
_PACKAGE = Path(__file__).resolve().parents[1]
_BYTES_DIFFER = "the bytes differ: do not run programs under polypath here, and report it"


class Leg(NamedTuple):
    """One copy of the trial, by names of memories: "host", "gpu0", "gpu1"."""

    src: str
    dst: str

    def __str__(self) -> str:
        return f"{self.src} to {self.dst}"


class Report(NamedTuple):
    """How one copy went."""

    way: str
    """How the program found the driver's function: one of `driver.WAYS`, or "import"."""
    leg: Leg
    symbol: str
    bytes: int
    verified: bool
    caught: bool
    routes: dict[str, int]
    """Bytes by route when it was split, else empty."""
    finding: Finding


#: The copy from another process's memory.
IMPORT = Leg("gpu1", "gpu0")

#: One transfer of `Context.plan`.
Plan = dict[str, Any]


def legs(gpu_count: int) -> list[Leg]:
    """The copies of `trial_copies`, in its order."""
    names = ["host", "gpu0", *(["gpu1"] if gpu_count > 1 else []), "host"]
    return [Leg(src, dst) for src, dst in pairwise(names)]


def plans(context: Context, wanted: Iterable[Leg]) -> tuple[int, dict[Leg, Plan]]:
    """The smallest size at which all these copies are split, or the largest tried; and the plan of
    each for it."""
    found: dict[Leg, Plan] = {}
    for size in _SIZES:
        found = {leg: context.plan(*leg, size)["transfers"][0] for leg in wanted}
        if not any(plan["native"] for plan in found.values()):
            break
    return size, found


def route_findings(planned: Mapping[Leg, Plan]) -> list[Finding]:
    """Which routes are open, by the plan of each copy, and what to do about those that are not."""
    findings = []
    for leg, plan in planned.items():
        taken = ", ".join(f"{route['route']} {route['share']:.0%}" for route in plan["routes"])
        findings.append(Finding(f"routes {leg}", State.well, taken))
        for reason in dict.fromkeys(one["reason"] for one in plan["left_out"]):
            names = [one["route"] for one in plan["left_out"] if one["reason"] == reason]
            hint = advice.on_plan(reason)
            findings.append(
                Finding(
                    f"routes {leg}",
                    State.wrong if hint.wrong else State.note,
                    f"without {', '.join(names)}: {reason}",
                    hint.text,
                )
            )
    if all(plan["native"] for plan in planned.values()):
        findings.append(
            Finding(
                "routes",
                State.wrong,
                "no copy of this node would be split, whatever its size",
                "`polypath plan gpu0 gpu1 256M` says why, `polypath topo` shows the links",
            )
        )
    return findings


def preload_finding(environment: Mapping[str, str]) -> Finding:
    """Whether the loader takes the shim into a new process without a word."""
    shim = find_shim()
    maps = "import pathlib; print(pathlib.Path('/proc/self/maps').read_text())"
    done = _run(["-c", maps], environment)
    if str(shim) in done.stdout and not done.stderr:
        return Finding("preload", State.well, str(shim))
    lines = done.stderr.strip().splitlines()
    return Finding(
        "preload",
        State.wrong,
        f"{shim} is not loaded" + (f": {lines[0]}" if lines else ""),
        "install or build polypath anew (`make setup`) for this machine",
    )


def trial(
    way: str, size: int, planned: Mapping[Leg, Plan], environment: Mapping[str, str]
) -> list[Report]:
    """Runs the trial program with the driver's functions found in this way; one report a copy."""
    with tempfile.TemporaryDirectory() as folder:
        done = _run(
            ["-m", "polypath.doctor.trial_copies", way, str(size)],
            _with_statistics(environment, folder),
        )
        written = statistics.read(Path(folder))
    said = _last_json(done)
    reports = []
    for leg, plan in planned.items():
        symbol = said.get("symbols", {}).get(f"{leg.src} {leg.dst}", "")
        reports.append(_report(way, leg, symbol, size, said, written, plan))
    return reports


def import_trial(size: int, plan: Plan, environment: Mapping[str, str]) -> Report:
    """Runs two programs of which the second copies memory of the first: `IMPORT`."""
    arguments = [str(size), str(secrets.randbits(64))]
    program = ["-m", "polypath.doctor.trial_import"]
    owner, importer = (memory.removeprefix("gpu") for memory in IMPORT)
    with tempfile.TemporaryDirectory() as folder:
        started = _with_statistics(environment, folder)
        exporter = _start([*program, "export", owner, *arguments], started)
        try:
            assert exporter.stdout is not None
            line = exporter.stdout.readline()
            offered = json.loads(line) if line else {"error": "the exporting program ended"}
            if "handle" in offered:
                done = _run([*program, "import", importer, *arguments, offered["handle"]], started)
                said = _last_json(done)
                pid = done.pid
            else:
                said, pid = offered, None
        finally:
            exporter.communicate(timeout=_TIMEOUT_S)
        written = [process for process in statistics.read(Path(folder)) if process["pid"] == pid]
    return _report("import", IMPORT, said.get("symbol", ""), size, said, written, plan)


def _report(
    way: str,
    leg: Leg,
    symbol: str,
    size: int,
    said: Mapping[str, Any],
    written: list[dict[str, Any]],
    plan: Plan,
) -> Report:
    process = written[0] if written else None
    call = (process or {"calls": {}})["calls"].get(symbol, {"calls": 0, "issued": 0})
    routes = statistics.bytes_by_route(process, *leg) if process and call["issued"] else {}
    verified = said.get("verified", False)
    finding = _finding(way, leg, said, verified, call, routes, process, plan)
    return Report(way, leg, symbol, size, verified, call["calls"] > 0, routes, finding)


def _finding(
    way: str,
    leg: Leg,
    said: Mapping[str, Any],
    verified: bool,
    call: Mapping[str, int],
    routes: Mapping[str, int],
    process: dict[str, Any] | None,
    plan: Plan,
) -> Finding:
    what = f"{way}, {leg}"
    if said.get("error"):
        return Finding(what, State.wrong, said["error"], "does the same fail without polypath?")
    if not verified:
        return Finding(what, State.wrong, _BYTES_DIFFER)
    if not call["calls"]:
        return Finding(
            what,
            State.wrong,
            "not caught",
            "is libcuda.so.1 of another kind preloaded or linked first? `LD_DEBUG=bindings` shows",
        )
    if routes:
        return Finding(what, State.well, f"split over {', '.join(routes)}")
    if plan["native"]:
        return Finding(
            what, State.note, f"native: {plan['reason']}", advice.on_native("no gain").text
        )
    counted = statistics.reasons([process] if process else [], "native_by_reason")
    if not counted:
        return Finding(
            what,
            State.wrong,
            "native: the shim did not hand it over",
            "POLYPATH_LOG_LEVEL=info says why",
        )
    return Finding(
        what,
        State.wrong,
        f"native: {', '.join(counted)}",
        "; ".join(dict.fromkeys(advice.on_native(reason).text for reason in counted)),
    )


class _Done(NamedTuple):
    pid: int
    code: int
    stdout: str
    stderr: str


def _start(arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _run(arguments: list[str], environment: Mapping[str, str]) -> _Done:
    """Runs Python to its end; one that does not end is killed, which its code tells."""
    running = _start(arguments, environment)
    try:
        stdout, stderr = running.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        running.kill()
        stdout, stderr = running.communicate()
    return _Done(running.pid, running.returncode, stdout, stderr)


def _with_statistics(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """For the trial programs: they find this package, and their first copies find all routes
    ready."""
    path = [str(_PACKAGE.parent), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        **environment,
        "POLYPATH_STATS": str(Path(folder) / statistics.PATTERN),
        "POLYPATH_PREPARE": "wait",
        "PYTHONPATH": os.pathsep.join(place for place in path if place),
    }


def _last_json(done: _Done) -> dict[str, Any]:
    lines = done.stdout.strip().splitlines()
    if lines:
        try:
            said: dict[str, Any] = json.loads(lines[-1])
            return said
        except ValueError:
            pass
    errors = done.stderr.strip().splitlines()
    how = f"killed by signal {-done.code}" if done.code < 0 else f"ended with {done.code}"
    return {"error": f"the trial program {how}" + (f": {errors[-1]}" if errors else "")}
