#!/usr/bin/env python3
"""All-reduces by polypath beside NCCL's own, in one program that knows only NCCL. For GPUs, with
PyTorch and NCCL:

    polypath run --reproducible --stats text -- \\
        torchrun --nproc-per-node 4 bench/nccl/calls.py [--nccl batch-invariant] [--json FILE]

Calls of the default group are polypath's then; those of a second group, whose communicator does not
block, stay with NCCL. Of each size both do rows of calls in turn, captured in a graph (NCCL takes
longer to issue a call where its communicators do not block); times are medians of the slowest rank,
in us a call. `--nccl batch-invariant` sets NCCL as vLLM's
batch-invariant mode does (a tree, protocol Simple). Every element is compared with the sum in
rank order, rounded once; exit code 1 when one of polypath's differs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

CALLS, ROUNDS = 20, 11
BATCH_INVARIANT = {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"}
Group = dist.ProcessGroup | None


def sizes(text: str) -> list[int]:
    units = {"K": 1 << 10, "M": 1 << 20}
    return [int(word[:-1]) * units[word[-1]] for word in text.split(",")]


def in_rank_order(own: torch.Tensor, by: Group) -> torch.Tensor:
    """Of the inputs as bytes, so that nothing of it is a sum of a library's."""
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather([part.view(torch.uint8) for part in parts], own.view(torch.uint8), group=by)
    total = parts[0].float()
    for part in parts[1:]:
        total += part.float()
    return total.to(own.dtype)


def differing(own: torch.Tensor, group: Group, nccl: Group) -> int:
    """Elements of a sum that are not those in rank order, on all ranks."""
    result = own.clone()
    dist.all_reduce(result, group=group)
    wrong = result.view(torch.int16) != in_rank_order(own, nccl).view(torch.int16)
    count = wrong.sum()
    dist.all_reduce(count, group=nccl)
    return int(count)


def row_of(data: torch.Tensor, group: Group) -> Callable[[], None]:
    def call() -> None:
        for _ in range(CALLS):
            dist.all_reduce(data, group=group)

    return call


def captured(row: Callable[[], None]) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        row()
    return graph.replay


def time_us(row: Callable[[], None]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    row()
    end.record()
    end.synchronize()
    return 1000 * begin.elapsed_time(end) / CALLS


def compare(ours: Callable[[], None], theirs: Callable[[], None], nccl: Group) -> dict[str, float]:
    """Of both in turn, the first of a pair alternating."""
    times: dict[str, list[float]] = {"polypath": [], "nccl": []}
    for turn in range(2 + ROUNDS):
        pair = [("polypath", ours), ("nccl", theirs)]
        for name, row in pair if turn % 2 else reversed(pair):
            took = time_us(row)
            if turn >= 2:
                times[name].append(took)
    medians = torch.tensor([statistics.median(row) for row in times.values()], device="cuda")
    dist.all_reduce(medians, op=dist.ReduceOp.MAX, group=nccl)
    polypath_us, nccl_us = medians.tolist()
    return {"polypath_us": polypath_us, "nccl_us": nccl_us, "ratio": nccl_us / polypath_us}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nccl", choices=["as-it-comes", "batch-invariant"], default="as-it-comes")
    parser.add_argument("--sizes", type=sizes, default=sizes("8K,64K,256K,1M,4M,16M,64M"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.nccl == "batch-invariant":
        os.environ.update(BATCH_INVARIANT)
    gpu = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", device_id=gpu)
    options = dist.ProcessGroupNCCL.Options()
    options.config.blocking = 0
    nccl = dist.new_group(pg_options=options)
    random = torch.Generator(device=gpu).manual_seed(1 + dist.get_rank())
    rows, worst = [], 0
    for size in arguments.sizes:
        own = torch.randn(size // 2, device=gpu, generator=random).bfloat16()
        wrong = {"polypath": differing(own, None, nccl), "nccl": differing(own, nccl, nccl)}
        worst += wrong["polypath"]
        ours, theirs = (row_of(torch.zeros_like(own), group) for group in (None, nccl))
        graphs = captured(ours), captured(theirs)
        row = {
            "bytes": size,
            "differing": wrong,
            **compare(*graphs, nccl),
        }
        rows.append(row)
        if dist.get_rank() == 0:
            print(
                f"{size:10} B: {row['polypath_us']:8.2f} us, NCCL {row['nccl_us']:8.2f} us, "
                f"{row['ratio']:5.2f} times; differing {wrong}",
                flush=True,
            )
    if dist.get_rank() == 0 and arguments.json:
        about = {
            "gpus": dist.get_world_size(),
            "gpu": torch.cuda.get_device_name(gpu),
            "torch": torch.__version__,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "nccl_set": arguments.nccl,
        }
        arguments.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    torch.cuda.synchronize()
    del graphs, ours, theirs  # NCCL's communicators wait for the graphs that have calls of theirs
    dist.destroy_process_group()
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
