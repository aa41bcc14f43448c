"""What test_torch.py runs where there is a PyTorch: one rank of the backend on host memory, with
the checks that run on GPUs. ``torch_host_ranks.py CASE RANK SIZE``"""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any

import check_torch_norm
import polypath.torch
import torch
import torch.distributed as dist
import torch_checks
import torch_on_host
from torch import nn


class HostPlace(torch_checks.Place):
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.device = rank, size, torch.device("cpu")
        self.group: Any = dist.group.WORLD
        dist.all_reduce(torch.zeros(1))


def collectives(on: HostPlace) -> None:
    torch_checks.COUNTS = (1, 3, 1000, 4099)
    for name in ("reductions", "bool", "moves", "uneven", "shapes"):
        torch_checks.CHECKS[name](on)


def messages(on: HostPlace) -> None:
    torch_checks.CHECKS["messages"](on)


def norms(on: HostPlace) -> None:
    """The operators of torch, also under its compiler, over a library of the same arithmetic."""
    for dtype in (torch.bfloat16, torch.float16):
        for rows, hidden in ((1, 8), (5, 1000)):
            tensors = check_torch_norm.Rows(on, rows, hidden, dtype)
            for name in ("bits", "fewer rows", "float8", "compiled"):
                check_torch_norm.CHECKS[name](on, tensors, f"{rows} x {hidden} {dtype}")
    for operator in (torch.ops.polypath.all_reduce_norm, torch.ops.polypath.all_reduce_norm_out):
        assert operator.default._schema is not None
    assert on.group._connection.comm.calls["norm"] > 8, on.group._connection.comm.calls


def ddp(on: HostPlace) -> None:
    """Losses by Gloo, by the backend under DDP's own allreduce, and by its hook, which DDP takes by
    itself or is given."""
    gloo = dist.new_group(backend="gloo")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(50, 70), nn.BatchNorm1d(70), nn.Linear(70, 3))
    torch.manual_seed(2 + on.rank)
    samples, targets = torch.randn(16, 50), torch.randn(16, 3)
    losses = []
    for way in ("gloo", "plain", "polypath", "given"):
        group = gloo if way == "gloo" else on.group
        trained = nn.parallel.DistributedDataParallel(copy.deepcopy(model), process_group=group)
        if way == "given":
            trained.register_comm_hook(None, polypath.torch.allreduce_hook)
        os.environ["POLYPATH_DDP_HOOK"] = "off" if way == "plain" else "on"
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        steps = []
        for _ in range(6):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(trained(samples), targets)
            loss.backward()
            optimizer.step()
            steps.append(loss.item())
        losses.append(steps)
    assert all(run == losses[0] for run in losses) and losses[0][0] != losses[0][-1], losses
    carried = on.group._connection.comm.calls
    assert carried["allreduce"] > 12 and carried["broadcast"] > 0, carried


def main() -> None:
    case, rank, size = globals()[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
    torch_on_host.install()
    store = f"file://{Path('store').resolve()}"
    dist.init_process_group("cpu:gloo,cuda:polypath", store, rank=rank, world_size=size)
    case(HostPlace(rank, size))
    dist.destroy_process_group()
    print("all right")


if __name__ == "__main__":
    main()
