"""Everything that `polypath doctor` does without a program: checks, then copies."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from ..context import Context
from ..errors import LibraryNotFound, NoDevice
from ..launch.environment import assignments
from . import copies
from .driver import WAYS
from .finding import Finding, State
from .machine import machine_findings

#: Called before each step with its number from 0, the number of steps, and its name.
Step = Callable[[int, int, str], None]


class Examination(NamedTuple):
    findings: list[Finding]
    """Of the machine."""
    reports: list[copies.Report]
    """Of the copies; none when there is no GPU or no shim."""


def examine(node: str | None, step: Step) -> Examination:
    """Checks this machine, or the simulated node of this name or file, and copies on it. Raises
    `InvalidArgument` for settings and node files that are not usable."""
    examination = Examination([], [])
    try:
        with Context(node=node) as context:
            examination.findings.extend(machine_findings(context))
            size, planned, back = _plans(context)
        examination.findings.extend(copies.route_findings(planned))
        environment = {**os.environ, **assignments(os.environ, node)}
    except NoDevice as error:
        advice = "`nvidia-smi` shows whether the driver works; --node narval is a simulated node"
        examination.findings.append(Finding("driver", State.wrong, str(error), advice))
        return examination
    except LibraryNotFound as error:
        examination.findings.append(Finding("preload", State.wrong, str(error)))
        return examination
    preloaded = copies.preload_finding(environment)
    examination.findings.append(preloaded)
    if preloaded.state is State.wrong:
        return examination
    steps = len(WAYS) + (back is not None)
    for done, way in enumerate(WAYS):
        step(done, steps, way)
        examination.reports.extend(copies.trial(way, size, planned, environment))
    if back is not None:
        step(steps - 1, steps, "memory of another process")
        examination.reports.append(copies.import_trial(size, back, environment))
    return examination


def _plans(
    context: Context,
) -> tuple[int, dict[copies.Leg, copies.Plan], copies.Plan | None]:
    """The size of the copies, their plans, and that of the copy from another process's memory."""
    gpus = len(context.topology()["gpus"])
    size, planned = copies.plans(context, copies.legs(gpus))
    if gpus < 2:
        return size, planned, None
    return size, planned, context.plan(*copies.IMPORT, size)["transfers"][0]
