#!/usr/bin/env python3
"""A tensor-parallel transformer's decode step, with polypath's all-reduces next to NCCL's. For GPUs
of one node, with PyTorch and NCCL:

    polypath run --reproducible --stats text -- \\
        torchrun --nproc-per-node 2 lab/bench/nccl/decode.py [--batches 1,8,64] [--json FILE]

For each batch the step is captured once with each library (both_libraries.py), and both graphs are
replayed in turn, the first of a pair alternating; times are medians of the slowest rank. NCCL is
set as vLLM's batch-invariant mode sets it; `--nccl tree` sets its algorithm and protocol alone,
`--nccl as-it-comes` nothing.

The model: random bfloat16 weights, sharded as Megatron does; hidden size 5120, SwiGLU of 13824, 40
heads of 128 with 8 KV heads, no position embedding. A step is one token of each request, from its
hidden state to its gathered logits.

Checked first, with exit code 1 when it does not hold for polypath: the logits of a request are the
same bits at each batch (matrix products and attention are done on rows padded to the largest batch
for this, all-reduces on the batch alone), and a sum is that in rank order, rounded once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
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
from torch.nn import functional

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD, VOCABULARY = 5120, 13824, 40, 8, 128, 32000
ROUNDS, WARM_ROUNDS, REPLAYS = 15, 2, 10


@dataclass
class Layer:
    """A rank's shard. Rows of `qkv` are, for each KV head, its queries, its key and its value."""

    qkv: torch.Tensor
    out: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    keys: torch.Tensor  # [request, KV head, position, HEAD]; a step writes the last position
    values: torch.Tensor


@dataclass
class Model:
    layers: list[Layer]
    head: torch.Tensor
    inputs: torch.Tensor  # [request, HIDDEN], alike on all ranks


def make_model(layers: int, requests: int, context: int, gpu: torch.device) -> Model:
    ranks = dist.get_world_size()
    kv_heads, per_kv_head = KV_HEADS // ranks, HEADS // KV_HEADS
    seeds = torch.Generator(device=gpu).manual_seed(1 + dist.get_rank())
    common = torch.Generator(device=gpu).manual_seed(0)

    def random(*shape: int, generator: torch.Generator = seeds) -> torch.Tensor:
        return torch.randn(*shape, device=gpu, dtype=torch.bfloat16, generator=generator)

    def weight(rows: int, columns: int, inputs: int) -> torch.Tensor:
        """`inputs`: columns on all ranks, which keeps the size of what comes out."""
        return random(rows, columns).mul_(inputs**-0.5)

    def layer() -> Layer:
        heads, inner = kv_heads * per_kv_head * HEAD, INTERMEDIATE // ranks
        cache = requests, kv_heads, context, HEAD
        return Layer(
            qkv=weight(kv_heads * (per_kv_head + 2) * HEAD, HIDDEN, HIDDEN),
            out=weight(HIDDEN, heads, heads * ranks),
            gate_up=weight(2 * inner, HIDDEN, HIDDEN),
            down=weight(HIDDEN, inner, INTERMEDIATE),
            keys=random(*cache),
            values=random(*cache),
        )

    return Model(
        layers=[layer() for _ in range(layers)],
        head=weight(VOCABULARY // ranks, HIDDEN, HIDDEN),
        inputs=random(requests, HIDDEN, generator=common),
    )


def norm(hidden: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(hidden, (HIDDEN,))


def attention(layer: Layer, hidden: torch.Tensor) -> torch.Tensor:
    rows, kv_heads = len(hidden), layer.keys.shape[1]
    qkv = functional.linear(hidden, layer.qkv).view(rows, kv_heads, -1, HEAD)
    layer.keys[:rows, :, -1] = qkv[:, :, -2]
    layer.values[:rows, :, -1] = qkv[:, :, -1]
    # The queries of a KV head are rows of one product: none is masked from another's positions.
    mixed = functional.scaled_dot_product_attention(
        qkv[:, :, :-2], layer.keys[:rows], layer.values[:rows]
    )
    return functional.linear(mixed.reshape(rows, -1), layer.out)


def mlp(layer: Layer, hidden: torch.Tensor) -> torch.Tensor:
    gate, up = functional.linear(hidden, layer.gate_up).chunk(2, dim=-1)
    return functional.linear(functional.silu(gate) * up, layer.down)


def step(model: Model, rows: int, batch: int, group: Group) -> torch.Tensor:
    """Logits [batch, VOCABULARY]. What is local is done for `rows` requests, of which the first
    `batch` are summed and returned."""

    def summed(part: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(part[:batch], group=group)
        return part

    hidden = model.inputs[:rows]
    for layer in model.layers:
        hidden = hidden + summed(attention(layer, norm(hidden)))
        hidden = hidden + summed(mlp(layer, norm(hidden)))
    logits = functional.linear(norm(hidden), model.head)[:batch]
    ranks = dist.get_world_size()
    gathered = logits.new_empty(ranks * batch, logits.shape[1])
    dist.all_gather_into_tensor(gathered, logits, group=group)
    return gathered.view(ranks, batch, -1).transpose(0, 1).reshape(batch, -1)


def warm_captured(work: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Run once before, so that connections and workspaces are there."""
    work()
    torch.cuda.synchronize()
    results = []
    graph = captured(lambda: results.append(work()))
    return graph, results[0]


def replayed(work: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The result of a replay, whose memory was poisoned before."""
    graph, result = warm_captured(work)
    result.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    return result.clone()


def differing_logits(model: Model, batches: list[int], group: Group) -> int:
    """Elements that are not what they are in the largest batch."""
    most = len(model.inputs)

    def logits(batch: int) -> torch.Tensor:
        return replayed(lambda: step(model, most, batch, group))

    known = logits(most)
    if not known.isfinite().all():
        raise RuntimeError("logits are not finite: nothing can be said of them")
    return sum(differing(logits(batch), known[:batch]) for batch in batches)


def differing_sums(own: torch.Tensor, group: Group, nccl: Group) -> int:
    """Elements of an all-reduce that are not the float32 sum in rank order, rounded once."""
    result = torch.empty_like(own)

    def work() -> torch.Tensor:
        result.copy_(own)
        dist.all_reduce(result, group=group)
        return result

    return differing(replayed(work), in_rank_order(own, nccl))


def step_times(graphs: list[torch.cuda.CUDAGraph]) -> list[float]:
    """Median of rounds in ms a replay, of this rank. All is queued before it is waited for, so that
    the host's launches are not in the times."""
    times: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[] for _ in graphs]
    for _, (graph, its_times) in in_turns(zip(graphs, times, strict=True), WARM_ROUNDS + ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        its_times.append((begin, end))
    torch.cuda.synchronize()
    return [
        statistics.median(begin.elapsed_time(end) / REPLAYS for begin, end in row[WARM_ROUNDS:])
        for row in times
    ]


def compare(model: Model, batch: int, groups: dict[str, Group]) -> dict[str, float]:
    graphs = [
        warm_captured(lambda g=group: step(model, batch, batch, g))[0] for group in groups.values()
    ]
    polypath_ms, nccl_ms = worst_of_ranks(step_times(graphs), groups["nccl"])
    return {
        "batch": batch,
        "polypath_ms": polypath_ms,
        "nccl_ms": nccl_ms,
        "ratio": nccl_ms / polypath_ms,
    }


def check(model: Model, batches: list[int], groups: dict[str, Group]) -> dict[str, dict[str, int]]:
    """Elements that differ, of the rank that has the most."""
    nccl = groups["nccl"]
    random = torch.Generator(device="cuda").manual_seed(100 + dist.get_rank())
    own = torch.randn(len(model.inputs), HIDDEN, device="cuda", generator=random).bfloat16()
    differences: dict[str, dict[str, int]] = {"differing": {}, "not_in_rank_order": {}}
    for name, group in groups.items():
        sums = sum(differing_sums(own[:rows], group, nccl) for rows in (1, len(own)))
        logits = differing_logits(model, batches, group)
        worst = worst_of_ranks([logits, sums], nccl)
        differences["differing"][name], differences["not_in_rank_order"][name] = map(int, worst)
    return differences


def is_under_polypath() -> bool:
    return "libpolypath_nccl" in Path("/proc/self/maps").read_text()


def described(arguments: argparse.Namespace) -> dict[str, object]:
    return {
        **about(arguments.nccl),
        "under_polypath": is_under_polypath(),
        "type": "bfloat16",
        "layers": arguments.layers,
        "context": arguments.context,
        "hidden": HIDDEN,
        "intermediate": INTERMEDIATE,
        "heads": HEADS,
        "kv_heads": KV_HEADS,
        "vocabulary": VOCABULARY,
        "rounds": ROUNDS,
        "replays": REPLAYS,
    }


def parse() -> argparse.Namespace:
    def batches(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--batches", type=batches, default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--context", type=int, default=512, help="tokens, with that of the step")
    add_nccl(parser, "batch-invariant")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


@torch.inference_mode()
def main() -> int:
    arguments = parse()
    gpu, groups = make_groups(arguments.nccl)
    if KV_HEADS % dist.get_world_size():
        raise SystemExit(f"{KV_HEADS} KV heads are not to be had on {dist.get_world_size()} ranks")
    is_first = dist.get_rank() == 0
    if is_first and not is_under_polypath():
        print("Not under polypath: both groups are NCCL's.", flush=True)
    model = make_model(arguments.layers, max(64, *arguments.batches), arguments.context, gpu)

    differences = check(model, arguments.batches, groups)
    if is_first:
        for what, counts in differences.items():
            text = ", ".join(f"{name} {count}" for name, count in counts.items())
            print(f"{what.replace('_', ' ')}: {text} elements", flush=True)
    rows = []
    for batch in arguments.batches:
        row = compare(model, batch, groups)
        rows.append(row)
        if is_first:
            print(
                f"batch {batch:3}: polypath {row['polypath_ms']:8.3f} ms, "
                f"NCCL {row['nccl_ms']:8.3f} ms, {row['ratio']:6.3f} times",
                flush=True,
            )
    if is_first and arguments.json:
        result = {**described(arguments), "rows": rows, **differences}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    dist.destroy_process_group()
    return 1 if any(counts["polypath"] for counts in differences.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
