"""What the programs of this folder share that have polypath's calls and NCCL's own in one process:
under `polypath run --reproducible` those of the default group are polypath's; those of a second
group, whose communicator does not block, stay with NCCL (so `--strict` would end the program)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
import torch.distributed as dist

Group = dist.ProcessGroup | None
Way = TypeVar("Way")

#: Sums by trees, other calls by rings and trees: those that are not named have no algorithm in NCCL
#: 2.31 and later (vllm-project/vllm#58179), and all that there are before.
TREE = {"NCCL_ALGO": "ring,tree;allreduce:tree", "NCCL_PROTO": "Simple"}

#: By the word of `--nccl`. "batch-invariant" is all that vLLM's mode sets of NCCL
#: (vllm/model_executor/layers/batch_invariant.py), "tree" its algorithm and protocol alone.
SETTINGS: dict[str, dict[str, str]] = {
    "as-it-comes": {},
    "tree": TREE,
    "batch-invariant": {
        **TREE,
        "NCCL_LAUNCH_MODE": "GROUP",
        "NCCL_COLLNET_ENABLE": "0",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_P2P_NET_DISABLE": "1",
        "NCCL_MIN_NCHANNELS": "1",
        "NCCL_MAX_NCHANNELS": "1",
        "NCCL_NTHREADS": "1",
        "NCCL_SOCKET_NTHREADS": "1",
    },
}


def add_nccl(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--nccl", choices=list(SETTINGS), default=default, help="how NCCL is set")


def make_groups(nccl: str) -> tuple[torch.device, dict[str, Group]]:
    """This rank's GPU, and the groups "polypath" and "nccl", whose communicators are there; NCCL is
    set as `--nccl` says."""
    os.environ.update(SETTINGS[nccl])
    gpu = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", device_id=gpu)
    options = dist.ProcessGroupNCCL.Options()
    options.config.blocking = 0
    groups: dict[str, Group] = {"polypath": None, "nccl": dist.new_group(pg_options=options)}
    for group in groups.values():
        dist.all_reduce(torch.ones(1, device=gpu), group=group)
        torch.cuda.synchronize()
    return gpu, groups


def in_rank_order(own: torch.Tensor, nccl: Group) -> torch.Tensor:
    """The float32 sum in rank order, rounded once. Inputs are gathered as bytes, so that nothing of
    it is a sum of a library's."""
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather([part.view(torch.uint8) for part in parts], own.view(torch.uint8), group=nccl)
    total = parts[0].float()
    for part in parts[1:]:
        total += part.float()
    return total.to(own.dtype)


def differing(result: torch.Tensor, other: torch.Tensor) -> int:
    """Elements of two bytes whose bits are not the same."""
    return int((result.view(torch.int16) != other.view(torch.int16)).sum())


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    # NCCL launches calls of a communicator that does not block from a thread of its own.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph


def in_turns(ways: Iterable[Way], rounds: int) -> Iterator[tuple[int, Way]]:
    """Each way once a round, the first of a round alternating; with the round's number."""
    ordered = list(ways)
    for turn in range(rounds):
        for way in ordered if turn % 2 else reversed(ordered):
            yield turn, way


def worst_of_ranks(values: Iterable[float], nccl: Group) -> list[float]:
    worst = torch.tensor(list(values), dtype=torch.float64, device="cuda")
    dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=nccl)
    return worst.tolist()


def about(nccl: str) -> dict[str, object]:
    """Describe the machine, for a result."""
    gpus = dist.get_world_size()
    return {
        "gpus": gpus,
        "names": [torch.cuda.get_device_name(gpu) for gpu in range(gpus)],
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "nccl_set": nccl,
    }
