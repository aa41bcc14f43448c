#!/usr/bin/env python3
"""Do the bits of a row depend on how many rows there are? For GPUs, with PyTorch and NCCL:

    torchrun --nproc-per-node 4 lab/bench/nccl/bitwise_equality.py
    polypath run --reproducible --strict -- \\
        torchrun --nproc-per-node 4 lab/bench/nccl/bitwise_equality.py

Rows of a [n, 5120] bfloat16 matrix, n from 1 to 4096, are all-reduced, eager and captured; each row
is compared with what it was in the first call that had it. Prints a line a size: elements that
differ, and the median time of a call in us. Exit code 1 when any differs.
"""

from __future__ import annotations

import os
import statistics
import sys

import torch
import torch.distributed as dist

COLUMNS, MAX_ROWS, CALLS = 5120, 4096, 20


def time_us(rows: torch.Tensor) -> float:
    """Median of calls, of this rank."""
    times = []
    for _ in range(CALLS):
        before, behind = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        dist.all_reduce(rows)
        behind.record()
        behind.synchronize()
        times.append(1000 * before.elapsed_time(behind))
    return statistics.median(times)


def summed(rows: torch.Tensor, captured: bool) -> torch.Tensor:
    result = rows.clone()
    if not captured:
        dist.all_reduce(result)
        return result
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(result)
    result.copy_(rows)
    graph.replay()
    torch.cuda.synchronize()
    return result


def main() -> int:
    gpu = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", device_id=gpu)
    random = torch.Generator(device=gpu).manual_seed(1 + dist.get_rank())
    matrix = torch.randn(MAX_ROWS, COLUMNS, device=gpu, generator=random).bfloat16()
    known = torch.empty_like(matrix)
    have = worst = 0
    count = 1
    while count <= MAX_ROWS:
        rows = matrix[:count]
        differing = 0
        for captured in (False, True):
            result = summed(rows, captured)
            is_first = not captured and have < count
            differing += int(
                (result[:have].view(torch.int16) != known[:have].view(torch.int16)).sum()
            )
            if is_first:
                known[have:count], have = result[have:count], count
        worst += differing
        took = time_us(rows.clone())
        if dist.get_rank() == 0:
            print(f"{count:5} rows: {differing:9} elements differ, {took:9.1f} us", flush=True)
        count *= 2
    dist.destroy_process_group()
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
