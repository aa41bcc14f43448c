"""What the ranks of a launch share: the process group, orders, times and bits. Needs PyTorch."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_LIMIT = timedelta(hours=1)  # whoever gives orders has a limit of their own

_control: dist.ProcessGroup | None = None


def start(kind: str) -> torch.device:
    """Makes the process group from torchrun's variables, of NCCL or, with ``kind`` "cpu", of Gloo;
    what the ranks tell each other goes over Gloo in any case. Raises as torch does."""
    global _control
    if kind == "cpu":
        device = torch.device("cpu")
    else:
        device = torch.device(kind, int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if kind == "cpu" else "nccl", timeout=_LIMIT)
    _control = dist.new_group(backend="gloo", timeout=_LIMIT)
    return device


def about(device: torch.device) -> dict[str, Any]:
    """This machine and its libraries, for results."""
    found = {"torch": torch.__version__, "ranks": dist.get_world_size()}
    if device.type == "cuda":
        version = ".".join(map(str, torch.cuda.nccl.version()))
        found |= {"gpu": torch.cuda.get_device_name(device), "nccl": version}
    return found


def serve(orders: str, handle: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Handles orders on all ranks until there are no more; rank 0's result is the answer.
    ``orders``: the path of `launches.Launch`. Ranks that wait for an order sleep."""
    stream = None
    if dist.get_rank() == 0:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(orders)
        stream = connection.makefile("rw")
    while True:
        line = [stream.readline() if stream else ""]
        dist.broadcast_object_list(line, 0, _control, torch.device("cpu"))
        if not line[0]:
            break
        answer = handle(json.loads(line[0]))
        if stream:
            stream.write(json.dumps(answer) + "\n")
            stream.flush()
    dist.destroy_process_group()


def meet() -> None:
    """All ranks wait for each other, without their GPUs."""
    dist.all_reduce(torch.zeros(1), group=_control)


def largest(value: float) -> float:
    """Of all ranks."""
    found = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX, group=_control)
    return float(found)


def everyone(value: Any) -> list[Any]:
    """Each rank's value, in rank order."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value, _control)
    return found


def elapsed_ms(step: Callable[[], Any], steps: int, device: torch.device) -> float:
    """Of one of so many steps in a row, on the slowest rank; on a GPU by its own clock."""
    if device.type == "cpu":
        meet()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        return largest(1000 * (time.perf_counter() - begin) / steps)
    before, behind = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    meet()
    before.record()
    for _ in range(steps):
        step()
    behind.record()
    behind.synchronize()
    return largest(before.elapsed_time(behind) / steps)


def captured(function: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """A graph of ``function``, not run yet, and what it returned: tensors that a replay fills. The
    function has to have run before, for what may not happen in a capture."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = function()
    return graph, made


def differing(one: torch.Tensor, other: torch.Tensor) -> int:
    """Elements whose bits differ, of two tensors of one shape and type."""
    kind = _BITS[one.element_size()]
    return int((one.contiguous().view(kind) != other.contiguous().view(kind)).sum())
