"""Checks of the machine, before any copy: driver, GPUs, peer access, profile, shared memory."""

from __future__ import annotations

import ctypes
import os
import stat
from itertools import permutations
from pathlib import Path
from typing import Any

from ..context import Context
from .finding import Finding, State

_LEAST_BYTES = 4 << 20  # of shared memory: nearly two processes' files at their longest


def machine_findings(context: Context) -> list[Finding]:
    """What can be said without copying."""
    devices, topology = context.devices(), context.topology()
    return [
        _driver(devices),
        _gpus(topology),
        _nvml(devices),
        _peer_access(devices, len(topology["gpus"])),
        _profile(context, devices, topology),
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


def _peer_access(devices: dict[str, Any], count: int) -> Finding:
    without = [
        f"gpu{gpu} to gpu{peer}"
        for gpu, peer in permutations(range(count), 2)
        if not has_peer_access(devices, gpu, peer)
    ]
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
    if free.f_bavail * free.f_frsize < _LEAST_BYTES:
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
