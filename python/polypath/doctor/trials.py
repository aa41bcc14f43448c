"""Real copies by programs that know nothing of polypath: are they caught, and which way do they
go?"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..children import ended_with_us
from ..context import Context
from ..errors import InvalidArgument, LibraryNotFound, NoDevice
from ..launch.environment import assignments, find_shim, preloaded_libraries
from ..launch.preloaded import others_with_dlsym, passed_over
from . import advice, statistics
from .checks import (
    IMPORT,
    Finding,
    Leg,
    Plan,
    State,
    has_peer_access,
    machine_findings,
    plan_of,
    plans,
    round_trip,
    route_findings,
)
from .driver import ways_in
from .torch_check import torch_finding

_TIMEOUT_S = 120
_PACKAGE = Path(__file__).resolve().parents[1]

#: Called before each step with its number from 0, the number of steps, and its name.
Step = Callable[[int, int, str], None]


class Examination(NamedTuple):
    findings: list[Finding]
    """Findings about the machine."""
    reports: list[Report]
    """Reports about the copies; none when there is no GPU or no shim."""


def examine(node: str | None, step: Step) -> Examination:
    """Checks this machine, or the simulated node of this name or file, and copies on it. Raises
    `InvalidArgument` for settings and node files that are not usable."""
    examination = Examination([], [])
    try:
        with Context(node=node) as context:
            examination.findings.extend([*machine_findings(context), torch_finding()])
            size, planned, back = _plans(context)
            ways = ways_in(context.devices()["driver"]["library"])
        examination.findings.extend(route_findings(planned))
        environment = {**os.environ, **assignments(os.environ, node)}
    except NoDevice as error:
        advice = "`nvidia-smi` shows whether the driver works; --node narval is a simulated node"
        examination.findings.append(Finding("driver", State.wrong, str(error), advice))
        return examination
    except LibraryNotFound as error:
        examination.findings.append(Finding("preload", State.wrong, str(error)))
        return examination
    preloaded = preload_finding(environment)
    examination.findings.extend([preloaded, *other_findings(environment)])
    if preloaded.state is State.wrong:
        return examination
    try:
        with temporary_folder():
            pass
    except InvalidArgument as error:
        advice = "name a writable folder by TMPDIR"
        text = f"not tried: {error}"
        examination.findings.append(Finding("copies", State.wrong, text, advice))
        return examination
    steps = len(ways) + (back is not None)
    for done, way in enumerate(ways):
        step(done, steps, way)
        examination.reports.extend(copy_trial(way, size, planned, environment))
    if back is not None:
        step(steps - 1, steps, "memory of another process")
        examination.reports.append(import_trial(size, back, environment))
    return examination


def _plans(context: Context) -> tuple[int, dict[Leg, Plan], Plan | None]:
    """The size of the copies, their plans, and that of the copy from another process's memory,
    where GPUs can share theirs."""
    gpus = len(context.topology()["gpus"])
    size, planned = plans(context, round_trip(gpus))
    if gpus < 2 or not has_peer_access(context.devices(), 0, 1):
        return size, planned, None
    return size, planned, plan_of(context, IMPORT, size)


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """A new folder, for as long as the statement lasts. Raises `InvalidArgument` where none can be
    made."""
    try:
        temporary = tempfile.TemporaryDirectory()
    except OSError as error:
        raise InvalidArgument(f"no temporary folder: {error.strerror}") from error
    with temporary as folder:
        yield folder


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


def other_findings(environment: Mapping[str, str]) -> list[Finding]:
    """Other preloaded libraries that the shim passes over."""
    return [
        Finding("preload", State.note, passed_over(other), "do without one of the two")
        for other in others_with_dlsym(environment, preloaded_libraries())
    ]


def copy_trial(
    way: str, size: int, planned: Mapping[Leg, Plan], environment: Mapping[str, str]
) -> list[Report]:
    """Runs the copies of `trial_programs` with the driver's functions found in this way; one report
    a copy."""
    with temporary_folder() as folder:
        done = Child(
            ["-m", "polypath.doctor.trial_programs", "copies", way, str(size)],
            with_statistics(environment, folder),
        ).end()
        written = statistics.read(Path(folder))
    answer = done.last_line()
    process = written[0] if written else None
    symbols = answer.get("symbols", {})
    return [
        report(way, leg, symbols.get(f"{leg.src} {leg.dst}", ""), size, answer, process, plan)
        for leg, plan in planned.items()
    ]


def import_trial(size: int, plan: Plan, environment: Mapping[str, str]) -> Report:
    """Runs the two programs of `trial_programs` that share memory: the second copies memory of the
    first, `IMPORT`."""
    arguments = [str(size), str(secrets.randbits(64))]
    program = ["-m", "polypath.doctor.trial_programs"]
    owner, importer = (memory.removeprefix("gpu") for memory in IMPORT)
    with temporary_folder() as folder:
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
    answer = ended.last_line()
    return report(
        "import", IMPORT, answer.get("symbol", ""), size, answer, written.get(ended.pid), plan
    )


def report(
    way: str,
    leg: Leg,
    symbol: str,
    size: int,
    answer: Mapping[str, Any],
    process: dict[str, Any] | None,
    plan: Plan,
) -> Report:
    """Puts together what the trial program said, what the shim counted in its process, and what the
    plan expects."""
    call = process["calls"].get(symbol) if process else None
    caught = call is not None and call["calls"] > 0
    is_split = call is not None and call["issued"] > 0
    routes = statistics.bytes_by_route(process, *leg) if process and is_split else {}
    verified = bool(answer.get("verified", False))
    what = f"{way}, {leg}"
    if answer.get("error"):
        finding = Finding(
            what, State.wrong, answer["error"], "does the same fail without polypath?"
        )
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
    """The finding about a native copy that the plan would have split."""
    counted = statistics.reasons([process] if process else [], "native_by_reason")
    if not counted:
        text, hint = "the engine was not asked", "POLYPATH_LOG_LEVEL=info says why"
    else:
        text = ", ".join(counted)
        hint = "; ".join(dict.fromkeys(advice.on_native(reason).text for reason in counted))
    return Finding(what, State.wrong, f"native: {text}", hint)


class Ended(NamedTuple):
    pid: int
    code: int
    """Exit code; minus the signal that ended it."""
    stdout: str
    stderr: str

    def last_line(self) -> dict[str, Any]:
        """The last line of its output; {"error"} when that is no JSON, and how it ended."""
        lines = self.stdout.strip().splitlines()
        if lines:
            try:
                value: dict[str, Any] = json.loads(lines[-1])
                return value
            except ValueError:
                pass
        how = f"was killed by signal {-self.code}" if self.code < 0 else f"ended with {self.code}"
        errors = self.stderr.strip().splitlines()
        return {"error": f"the trial program {how}" + (f": {errors[-1]}" if errors else "")}


class Child:
    """A running Python with these arguments."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            preexec_fn=ended_with_us(),
        )

    def line(self) -> str:
        """The next line of its output; empty at its end."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def end(self) -> Ended:
        """Closes its stdin and waits for its end; one that does not end is killed."""
        try:
            stdout, stderr = self._process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            stdout, stderr = self._process.communicate()
        return Ended(self._process.pid, self._process.returncode, stdout, stderr)


def with_statistics(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """For the trial programs: they find this package, write their statistics into the folder, and
    their first copies find all routes ready."""
    path = [str(_PACKAGE.parent), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        **environment,
        "POLYPATH_STATS": str(Path(folder) / statistics.PATTERN),
        "POLYPATH_PREPARE": "wait",
        "PYTHONPATH": os.pathsep.join(place for place in path if place),
    }
