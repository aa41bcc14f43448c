"""Everything that `polypath doctor` does without a program: checks, then copies."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from ..context import Context
from ..errors import LibraryNotFound, NoDevice
from ..launch.environment import assignments
from .driver import ways_in
from .finding import Finding, State
from .machine import has_peer_access, machine_findings
from .routes import IMPORT, Leg, Plan, plan_of, plans, round_trip, route_findings
from .trials import Report, copy_trial, import_trial, preload_finding

#: Called before each step with its number from 0, the number of steps, and its name.
Step = Callable[[int, int, str], None]


class Examination(NamedTuple):
    findings: list[Finding]
    """Of the machine."""
    reports: list[Report]
    """Of the copies; none when there is no GPU or no shim."""


def examine(node: str | None, step: Step) -> Examination:
    """Checks this machine, or the simulated node of this name or file, and copies on it. Raises
    `InvalidArgument` for settings and node files that are not usable."""
    examination = Examination([], [])
    try:
        with Context(node=node) as context:
            examination.findings.extend(machine_findings(context))
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
    examination.findings.append(preloaded)
    if preloaded.state is State.wrong:
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
