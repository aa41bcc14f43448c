#!/usr/bin/env python3
"""All-reduces by polypath next to NCCL's own, in one program that knows only NCCL. For GPUs, with
PyTorch and NCCL:

    polypath run --reproducible --stats text -- \\
        torchrun --nproc-per-node 4 lab/bench/nccl/calls.py [--nccl batch-invariant] [--json FILE]

For each size both libraries (both_libraries.py) do rows of calls in turn, captured in a graph (NCCL
takes longer to issue a call where its communicators do not block); times are medians
of the slowest rank, in us a call. `--nccl batch-invariant` sets NCCL as vLLM's batch-invariant
mode does, `tree` its
algorithm and protocol alone. Every element is compared with the sum in rank order, rounded once;
exit code 1 when a polypath result differs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from both_libraries import (
    Group,
    about,
    add_nccl,
    captured,
    differing,
    in_rank_order,
    in_turns,
    make_groups,
    worst_of_ranks,
)

CALLS, WARM_ROUNDS, ROUNDS = 20, 2, 11


def sizes(text: str) -> list[int]:
    units = {"K": 1 << 10, "M": 1 << 20}
    return [int(word[:-1]) * units[word[-1]] for word in text.split(",")]


def wrong_sums(own: torch.Tensor, group: Group, nccl: Group) -> int:
    """Elements of a sum that are not those in rank order, on the rank that has the most."""
    result = own.clone()
    dist.all_reduce(result, group=group)
    return int(worst_of_ranks([differing(result, in_rank_order(own, nccl))], nccl)[0])


def row_of(data: torch.Tensor, group: Group) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(CALLS):
            dist.all_reduce(data, group=group)

    return calls


def time_us(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return 1000 * begin.elapsed_time(end) / CALLS


def compare(data: dict[str, torch.Tensor], groups: dict[str, Group]) -> dict[str, float]:
    """Times of both groups, of calls in place, and their ratio."""
    graphs = {name: captured(row_of(data[name], group)) for name, group in groups.items()}
    times: dict[str, list[float]] = {name: [] for name in groups}
    for turn, name in in_turns(graphs, WARM_ROUNDS + ROUNDS):
        took = time_us(graphs[name])
        if turn >= WARM_ROUNDS:
            times[name].append(took)
    medians = [statistics.median(row) for row in times.values()]
    polypath_us, nccl_us = worst_of_ranks(medians, groups["nccl"])
    torch.cuda.synchronize()
    return {"polypath_us": polypath_us, "nccl_us": nccl_us, "ratio": nccl_us / polypath_us}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_nccl(parser, "as-it-comes")
    parser.add_argument("--sizes", type=sizes, default=sizes("8K,64K,256K,1M,4M,16M,64M"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    gpu, groups = make_groups(arguments.nccl)
    random = torch.Generator(device=gpu).manual_seed(1 + dist.get_rank())
    rows, worst = [], 0
    for size in arguments.sizes:
        own = torch.randn(size // 2, device=gpu, generator=random).bfloat16()
        wrong = {name: wrong_sums(own, group, groups["nccl"]) for name, group in groups.items()}
        worst += wrong["polypath"]
        data = {name: torch.zeros_like(own) for name in groups}
        row = {"bytes": size, "differing": wrong, **compare(data, groups)}
        rows.append(row)
        if dist.get_rank() == 0:
            print(
                f"{size:10} B: {row['polypath_us']:8.2f} us, NCCL {row['nccl_us']:8.2f} us, "
                f"{row['ratio']:5.2f} times; differing {wrong}",
                flush=True,
            )
    if dist.get_rank() == 0 and arguments.json:
        result = {**about(arguments.nccl), "rows": rows}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    dist.destroy_process_group()
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
