#!/usr/bin/env python3
"""Checks the backend "polypath" of torch.distributed on GPUs, and times it.

    scripts/check_torch_collectives.py --spawn 2 [--json FILE] [--only NAMES] [--training ARGUMENTS]
    torchrun --nproc-per-node 4 scripts/check_torch_collectives.py ...

Needs PyTorch with NCCL and two GPUs or more. Contents are random; every element is compared with
the sum in rank order, bit by bit, or with NCCL's result. Each check also asserts by which library
its calls went. After the checks: CPU time of a call in a row, and examples/train_ddp.py with
ARGUMENTS ("none": not). Ends with 1 when a check fails on any rank; FILE: {"checks", "cpu",
"training"}.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import train_ddp
from torch_checks import CHECKS, Place

# ---- CPU time ------------------------------------------------------------------------------------


def cpu_time(on: Place) -> list[dict[str, Any]]:
    """us of the host for a call in a row of 64 KiB: rows of 300, of NCCL and polypath in turn."""
    tensor = torch.zeros(16384, device=on.device)
    address, stream = tensor.data_ptr(), torch.cuda.current_stream().cuda_stream
    connection = on.group._connection
    function, handle = connection.library.polypath_all_reduce, connection.handle

    def waited(group: Any) -> Callable[[], None]:
        return lambda: dist.all_reduce(tensor, group=group, async_op=True).wait()

    ways: dict[str, Callable[[], Any]] = {
        "polypath": lambda: dist.all_reduce(tensor),
        "nccl": lambda: dist.all_reduce(tensor, group=on.nccl),
        "polypath, async and wait": waited(on.group),
        "nccl, async and wait": waited(on.nccl),
        "polypath in C, by ctypes": lambda: function(handle, address, address, 16384, 8, 0, stream),
        "hook's future": lambda: dist.all_reduce(tensor, async_op=True).get_future(),
    }
    issue: dict[str, list[float]] = {name: [] for name in ways}
    whole: dict[str, list[float]] = {name: [] for name in ways}
    rows, calls = 15, 300
    for _ in range(rows):
        for name, call in ways.items():
            call()
            torch.cuda.synchronize()
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            issued = time.perf_counter()
            torch.cuda.synchronize()
            end = time.perf_counter()
            issue[name].append((issued - begin) / calls * 1e6)
            whole[name].append((end - begin) / calls * 1e6)
    return [
        {
            "way": name,
            "bytes": tensor.nbytes,
            "cpu_us": statistics.median(issue[name]),
            "us": statistics.median(whole[name]),
        }
        for name in ways
    ]


# ---- All of it -----------------------------------------------------------------------------------


def run_checks(on: Place, names: Sequence[str]) -> list[dict[str, Any]]:
    """Ends with the first that fails: ranks may have gone apart then."""
    results = []
    for name in names:
        begin, failure, calls = time.monotonic(), None, 0
        try:
            calls = CHECKS[name](on)
            torch.cuda.synchronize()
        except Exception as error:
            traceback.print_exc()
            failure = f"rank {on.rank}: {type(error).__name__}: {error}"
        failures: list[Any] = [None] * on.size
        dist.all_gather_object(failures, failure)
        seconds = time.monotonic() - begin
        failed = [failure for failure in failures if failure]
        results.append({"name": name, "calls": calls, "seconds": seconds, "failures": failed})
        if on.rank == 0:
            outcome = "; ".join(failed) if failed else "right"
            print(f"{name}: {calls} calls in {seconds:.1f} s: {outcome}", flush=True)
        if failed:
            break
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spawn", type=int, metavar="N", help="start N ranks on this machine")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", default=",".join(CHECKS), help="names of checks, or none")
    parser.add_argument("--training", default="", metavar="ARGUMENTS")
    arguments = parser.parse_args()
    if arguments.spawn and "RANK" not in os.environ:
        return train_ddp.spawn(arguments.spawn)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic kernels
    on = Place()
    figures: dict[str, Any] = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
    figures["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    figures["ranks"] = on.size
    names = [] if arguments.only == "none" else arguments.only.split(",")
    figures["checks"] = run_checks(on, names)
    right = not any(check["failures"] for check in figures["checks"])

    def keep() -> None:
        if on.rank == 0 and arguments.json:
            Path(arguments.json).write_text(json.dumps(figures, indent=1) + "\n")

    keep()
    if not right:
        os._exit(1)  # the ranks may wait for each other
    dist.barrier()
    figures["cpu"] = cpu_time(on)
    if on.rank == 0:
        for row in figures["cpu"]:
            print(f"{row['way']}: {row['cpu_us']:.1f} us of the host, {row['us']:.1f} us a call")
    keep()
    if arguments.training != "none":
        options = train_ddp.parse(shlex.split(arguments.training))
        groups = {"nccl": on.nccl, "polypath": on.group}
        figures["training"] = train_ddp.measure_all(groups, on.gpu, options)
        if on.rank == 0:
            train_ddp.table(figures["training"])
        keep()
        right = all(row["losses_equal"] for row in figures["training"])
    dist.destroy_process_group()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
