"""Checks without copies: driver, GPUs, peer access, profile, staging, shared memory, and the routes
of the trials' copies by their plans."""

from __future__ import annotations

import ctypes
import enum
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any, NamedTuple

from ..comm import Communicator, on_all
from ..context import Context
from ..errors import PolypathError
from ..launch.environment import missing_profile
from ..sizes import parse_sizes, rounded_size
from . import advice

_MIN_BYTES = 4 << 20  # of shared memory: nearly two processes' files at their longest
_SIZES = parse_sizes("16M:256M")
_MAX_RANKS = 8  # that collectives serve
_COMMUNICATOR_MS = 10_000

#: One transfer of `Context.plan`.
Plan = dict[str, Any]


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


def spans(names: Sequence[str]) -> str:
    """ "gpu0..gpu3, host0": names that only a number tells apart, and whose numbers follow each
    other, together."""
    parts: list[list[str]] = []
    for name in names:
        if parts and _successor(parts[-1][-1]) == name:
            parts[-1].append(name)
        else:
            parts.append([name])
    return ", ".join(
        f"{part[0]}..{part[-1]}" if len(part) > 2 else ", ".join(part) for part in parts
    )


def _successor(name: str) -> str | None:
    match = re.fullmatch(r"(.*?)(\d+)", name)
    return f"{match[1]}{int(match[2]) + 1}" if match else None


def machine_findings(context: Context) -> list[Finding]:
    """What can be said without copying."""
    devices, topology = context.devices(), context.topology()
    return [
        _driver(devices),
        _gpus(topology),
        _nvml(devices),
        _peer_access(context, devices, len(topology["gpus"])),
        _profile(context, devices, topology),
        *staging(devices),
        _communicator(context, devices, len(topology["gpus"])),
        registry(next(row for row in context.settings() if row["name"] == "registry")),
    ]


def has_peer_access(devices: dict[str, Any], gpu: int, peer: int) -> bool:
    """Whether the GPU can reach the peer's memory; ``devices``: of `Context.devices`."""
    cuda = ctypes.CDLL(devices["driver"]["library"])
    can = ctypes.c_int()
    return cuda.cuDeviceCanAccessPeer(ctypes.byref(can), gpu, peer) == 0 and bool(can.value)


def _driver(devices: dict[str, Any]) -> Finding:
    driver = devices["driver"]
    library = Path(driver["library"]).name
    return Finding("driver", State.well, f"{driver['driver_version'] or 'unknown'}, {library}")


def _gpus(topology: dict[str, Any]) -> Finding:
    names = [gpu["name"] for gpu in topology["gpus"]]
    text = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    if len(names) > 1:
        return Finding("GPUs", State.well, text)
    return Finding(
        "GPUs",
        State.wrong,
        f"{text}: there is no other path than the direct one",
        "let every process see all of them: CUDA_VISIBLE_DEVICES; Slurm without --gpus-per-task",
    )


def _nvml(devices: dict[str, Any]) -> Finding:
    if devices["nvml"]:
        return Finding("NVML", State.well, "in use")
    return Finding(
        "NVML",
        State.note,
        "not found: links come from the driver alone",
        "install libnvidia-ml.so.1 (in containers NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
    )


def _is_peer_access_off(context: Context) -> bool:
    return any(row["name"] == "peer_access" and row["value"] == "0" for row in context.settings())


def _pairs_without(devices: dict[str, Any], count: int) -> list[str]:
    return [
        f"gpu{gpu} to gpu{peer}"
        for gpu, peer in permutations(range(count), 2)
        if not has_peer_access(devices, gpu, peer)
    ]


def _peer_access(context: Context, devices: dict[str, Any], count: int) -> Finding:
    if _is_peer_access_off(context):
        return Finding("peer access", State.note, "left out by the setting peer_access")
    without = _pairs_without(devices, count)
    pairs = count * (count - 1)
    if not without:
        return Finding("peer access", State.well, f"all {pairs} pairs")
    shown = ", ".join(without[:4]) + (" ..." if len(without) > 4 else "")
    return Finding(
        "peer access",
        State.note,
        f"missing for {len(without)} of {pairs} pairs ({shown}): no routes by these, and no memory "
        "shared between their processes",
        "`nvidia-smi topo -p2p r` says why",
    )


def _profile(context: Context, devices: dict[str, Any], topology: dict[str, Any]) -> Finding:
    state = devices["profile"]["state"]
    if (file := missing_profile()) is not None:
        return Finding(
            "profile",
            State.note,
            f"POLYPATH_PROFILE names {file}, and there is no such file: defaults serve",
            "another name, or `polypath topo --measure`, then `polypath tune`, which make it",
        )
    choices = len(context.tuned()["choices"])
    text = f"{state}; capacities: {topology['capacities']}; {choices} tuned choices"
    if devices["simulated"]:
        return Finding("profile", State.well, text)
    if topology["capacities"] != "measured":
        return Finding(
            "profile", State.note, text, "`polypath topo --measure`, then `polypath tune`"
        )
    if choices == 0:
        return Finding("profile", State.note, text, "`polypath tune`")
    return Finding("profile", State.well, text)


def staging(devices: dict[str, Any]) -> list[Finding]:
    """In which memories other transfers' bytes may be staged, and why not in others; the library
    says so where it has a policy."""
    return [
        Finding(
            f"staging {memory['memory']}",
            State.well if memory["allowed"] else State.note,
            f"up to {rounded_size(memory['bytes'])}"
            if memory["allowed"]
            else f"not: {memory['reason']}",
        )
        for memory in devices.get("staging", [])
    ]


def _communicator(context: Context, devices: dict[str, Any], count: int) -> Finding:
    """Whether ranks on these GPUs can make a communicator, and have collectives: tried, with all
    ranks in this process."""
    what = "communicator"
    if count < 2:
        return Finding(what, State.note, "none: it takes two GPUs")
    gpus = range(min(count, _MAX_RANKS))
    ranks: list[Communicator] = []
    try:
        ranks = Communicator.all(context, gpus, timeout_ms=_COMMUNICATOR_MS)
        on_all(ranks, Communicator.prepare)
    except PolypathError as error:
        return Finding(
            what,
            State.note,
            f"none, so no collectives by polypath, in MPI programs either: {error}",
            "docs/communicators.md says what each reason asks for",
        )
    finally:
        for rank in ranks:
            rank.close()
    text = f"of {len(gpus)} ranks, with collectives"
    if _is_peer_access_off(context) or _pairs_without(devices, len(gpus)):
        text += ", through host memory"
    return Finding(what, State.well, text)


def registry(setting: dict[str, Any]) -> Finding:
    """Whether processes of this user can tell each other where memory lies: by files in a folder
    that is theirs alone, by this row of the settings."""
    what = "registry"
    if setting["value"] == "off":
        return Finding(
            what,
            State.wrong,
            "off: memory of other processes is copied natively",
            f"{setting['environment']}=auto",
        )
    default = f"/dev/shm/polypath-{os.geteuid()}"
    folder = Path(default if setting["value"] == "auto" else setting["value"])
    problem = _folder_problem(folder)
    if problem is not None:
        return Finding(
            what,
            State.wrong,
            f"{problem}: memory of other processes is copied natively",
            f"make {folder.parent} writable, remove {folder} if others can read it, or name "
            f"another folder by {setting['environment']}",
        )
    free = os.statvfs(folder.parent)
    if free.f_bavail * free.f_frsize < _MIN_BYTES:
        return Finding(
            what,
            State.wrong,
            f"{folder.parent} is full: memory of other processes is copied natively",
            "free some; in containers --shm-size or --ipc=host",
        )
    return Finding(what, State.well, str(folder))


def _folder_problem(folder: Path) -> str | None:
    """Why the library would not use the folder; it makes it when it is missing."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        if os.access(folder.parent, os.W_OK | os.X_OK):
            return None
        return f"{folder} is missing and cannot be made"
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is not a folder"
    if status.st_uid != os.geteuid():
        return f"{folder} belongs to another user"
    if stat.S_IMODE(status.st_mode) != stat.S_IRWXU:
        return f"{folder} has not mode 0700"
    return None


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
    all_legs = list(legs)
    by_size = {size: {leg: plan_of(context, leg, size) for leg in all_legs} for size in _SIZES}
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
        for reason in dict.fromkeys(excluded["reason"] for excluded in plan["excluded"]):
            names = [
                excluded["route"] for excluded in plan["excluded"] if excluded["reason"] == reason
            ]
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
