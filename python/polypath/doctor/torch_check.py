"""Whether PyTorch programs of this Python can use polypath's backend: asked in a process of its
own, since PyTorch takes seconds to import, and opens a driver."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import Any

from ..children import ended_with_us
from .checks import Finding, State

_SECONDS = 120
WHAT = "PyTorch"

# What is imported may print; the last line is the answer.
_PROGRAM = """
import importlib.util, json, sys
if importlib.util.find_spec("torch") is None:
    print(json.dumps({"torch": None}))
    sys.exit()
import torch
said = {"torch": getattr(torch, "__version__", "of no version")}
try:
    import torch.distributed
    said["nccl"] = torch.distributed.is_nccl_available()
    if said["nccl"]:
        import torch.cuda.nccl
        said["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
except Exception as error:
    said["nccl"] = False
try:
    import polypath.torch
    said["registered"] = "POLYPATH" in torch.distributed.Backend._plugins
except Exception as error:
    said["registered"] = False
    said["error"] = " ".join(f"{type(error).__name__}: {error}".split())
print()
print(json.dumps(said))
"""


def torch_finding() -> Finding:
    """Whether there is a PyTorch, whether the backend registers with it, and what it falls back
    to."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            preexec_fn=ended_with_us(),
        )
    except subprocess.TimeoutExpired:
        return Finding(WHAT, State.note, f"could not be imported in {_SECONDS} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Finding(WHAT, State.note, f"cannot be imported: {last}")
    return of_answer(json.loads(lines[-1]))


def of_answer(answer: dict[str, Any]) -> Finding:
    """What the process said: {"torch": version or None, "nccl": version, or whether there is one,
    "registered": bool, "error"}."""
    if answer["torch"] is None:
        return Finding(WHAT, State.well, f"none for Python {platform.python_version()}")
    if not answer["registered"]:
        return Finding(
            WHAT,
            State.note,
            f"{answer['torch']}; polypath.torch does not register: "
            f"{answer.get('error', 'no plugin')}",
            "docs/pytorch.md says which versions do",
        )
    text = f'{answer["torch"]}, backend "polypath" registers'
    if answer["nccl"] is False:
        return Finding(
            WHAT,
            State.note,
            f"{text}; without NCCL: what polypath lacks is an error there",
            "a PyTorch with CUDA brings NCCL",
        )
    version = "" if answer["nccl"] is True else f" {answer['nccl']}"
    return Finding(WHAT, State.well, f"{text}; what it lacks goes to NCCL{version}")
