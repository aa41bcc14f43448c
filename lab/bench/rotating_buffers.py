"""Graphs with other buffers each time: 64 pairs of PyTorch tensors of one shape take turns, first
one at a time, then eight in flight. Prints what the graph cache did (builds, patches, hits), the
CPU time of a call, and whether every byte arrived, as JSON.

    python3 lab/bench/rotating_buffers.py [--bytes 64M] [--pairs 64]

Needs PyTorch and two GPUs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from polypath import Context
from polypath.sizes import parse_size

IN_FLIGHT = 8
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=parse_size, default=parse_size("64M"))
    parser.add_argument("--pairs", type=int, default=64)
    arguments = parser.parse_args()
    pairs = [
        (
            torch.randint(0, 256, (arguments.bytes,), dtype=torch.uint8, device="cuda:0"),
            torch.full((arguments.bytes,), 0xA5, dtype=torch.uint8, device="cuda:1"),
        )
        for _ in range(arguments.pairs)
    ]
    for gpu in (0, 1):
        torch.cuda.synchronize(gpu)
    with Context(executor="graph") as context, torch.cuda.device(0):
        context.prepare("gpu0", "gpu1", arguments.bytes)
        stream = torch.cuda.Stream()
        issue_us = []
        for _ in range(ROUNDS):
            for src, dst in pairs:
                start = time.perf_counter()
                context.copy_async(dst, src, stream=stream)
                issue_us.append((time.perf_counter() - start) * 1e6)
                stream.synchronize()
        one_at_a_time = context.counters()["graphs"]
        for _, dst in pairs:
            dst.fill_(0xA5)
        torch.cuda.synchronize(1)
        for number, (src, dst) in enumerate(pairs):
            context.copy_async(dst, src, stream=stream)
            if number % IN_FLIGHT == IN_FLIGHT - 1:
                stream.synchronize()
        stream.synchronize()
        arrived = all(torch.equal(src.to("cuda:1"), dst) for src, dst in pairs)
        result = {
            "bytes": arguments.bytes,
            "pairs": arguments.pairs,
            "one_at_a_time": one_at_a_time,
            "with_eight_in_flight": context.counters()["graphs"],
            "issue_us": statistics.median(issue_us),
            "verified": arrived,
        }
    print(json.dumps(result, indent=1))
    if not arrived:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
