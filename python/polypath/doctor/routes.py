"""Which routes are open for the copies of the trials, by their plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from ..context import Context
from ..sizes import parse_sizes
from . import advice
from .finding import Finding, State

_SIZES = parse_sizes("16M:256M")

#: One transfer of `Context.plan`.
Plan = dict[str, Any]


class Leg(NamedTuple):
    """One copy, by names of memories: "host", "gpu0", "gpu1"."""

    src: str
    dst: str

    def __str__(self) -> str:
        return f"{self.src} to {self.dst}"


#: The copy from another process's memory.
IMPORT = Leg("gpu1", "gpu0")


def round_trip(gpu_count: int) -> list[Leg]:
    """The copies of `trial_copies`, in its order."""
    names = ["host", "gpu0", *(["gpu1"] if gpu_count > 1 else []), "host"]
    return [Leg(src, dst) for src, dst in pairwise(names)]


def plan_of(context: Context, leg: Leg, size: int) -> Plan:
    plan: Plan = context.plan(*leg, size)["transfers"][0]
    return plan


def plans(context: Context, legs: Iterable[Leg]) -> tuple[int, dict[Leg, Plan]]:
    """The smallest size at which as many of these copies are split as at any, and the plan of each
    for it."""
    wanted = list(legs)
    by_size = {size: {leg: plan_of(context, leg, size) for leg in wanted} for size in _SIZES}
    size = max(by_size, key=lambda size: sum(not plan["native"] for plan in by_size[size].values()))
    return size, by_size[size]


def route_findings(planned: Mapping[Leg, Plan]) -> list[Finding]:
    """The routes of each copy, and what to do about those that it does without."""
    findings = []
    for leg, plan in planned.items():
        if plan["native"]:
            text, state = f"one copy: {plan['reason']}", State.note
        else:
            taken = [f"{route['route']} {route['share']:.0%}" for route in plan["routes"]]
            text, state = ", ".join(taken), State.well
        findings.append(Finding(f"routes {leg}", state, text))
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
                "none of these copies is split, whatever its size",
                "`polypath topo` shows the links, `polypath info -c` the settings",
            )
        )
    return findings
