"""Trains networks with DistributedDataParallel over NCCL and over polypath, in alternation, and
times both.

    torchrun --nproc-per-node 4 train_ddp.py
    python train_ddp.py --spawn 2 --models resnet50 --batches 32,8 --json figures.json

Each way has a replica of its own: "nccl"; "polypath", where DDP takes polypath's hook by itself,
which averages in the call itself; "plain", the same with the setting ``ddp_hook`` off, so that
DDP's own C++ calls the group. Iterations without synchronisation are those of the first replica
under ``no_sync()``. Rounds of the ways alternate;
figures are medians of rounds, those of the slowest rank. ``times``: how many times as fast as NCCL,
the median of the ratios of rounds.

Before anything is timed, each way trains some steps from the same weights with deterministic
kernels: losses have to be equal, bit by bit on two ranks, where the order of a sum plays no part.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

WAYS = ("nccl", "polypath", "plain")
MODELS = "resnet50,resnet152,densenet201,vgg16,cosmoflow"
# Tolerance of losses on more than two ranks, where NCCL sums in another order, until the second
# step. Each step multiplies a difference in the last bit by some hundreds.
CLOSE = 1e-3
CLOSE_STEPS = 2


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spawn", type=int, metavar="N", help="start N ranks on this machine")
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--batches", default="32,8", help="samples a GPU")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=8, help="of one way in a round")
    parser.add_argument("--warmup", type=int, default=6)
    parser.add_argument("--steps", type=int, default=4, help="whose losses are compared")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args(arguments)


def spawn(count: int) -> int:
    """Starts this program once a rank; 0 when all ranks end with 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(count)
    ]
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):  # the others would wait for it
            for rank in ranks:
                rank.terminate()
        time.sleep(0.2)
    return 1 if any(rank.returncode for rank in ranks) else 0


# ---- One rank ------------------------------------------------------------------------------------


class Way:
    """A replica, and how its gradients are summed."""

    def __init__(self, name: str, model: Any, groups: dict[str, Any], gpu: int) -> None:
        from torch import nn, optim

        self.name = name
        self.model = nn.parallel.DistributedDataParallel(
            model,
            device_ids=[gpu],
            process_group=groups["nccl" if name == "nccl" else "polypath"],
            gradient_as_bucket_view=True,
        )
        self.optimizer = optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def step(self, task: Any, batch: tuple[Any, Any], precision: str) -> Any:
        import torch

        samples, expected = batch
        # Read with a model's first forward pass.
        os.environ["POLYPATH_DDP_HOOK"] = "off" if self.name == "plain" else "on"
        self.optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = task.loss(self.model(samples), expected)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@contextmanager
def deterministic() -> Iterator[None]:
    import torch

    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    try:
        with warnings.catch_warnings():
            # A warning about pooling: windows that do not overlap are deterministic nevertheless.
            warnings.filterwarnings("ignore", message=".*deterministic.*")
            yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before


def slowest(seconds: float, device: Any, group: Any) -> float:
    import torch
    import torch.distributed as dist

    longest = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(longest, dist.ReduceOp.MAX, group)
    return float(longest)


def timed(way: Way, task: Any, batch: Any, options: argparse.Namespace) -> tuple[float, float]:
    """Seconds of an iteration, and those in which the host issued it."""
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(options.iterations):
        way.step(task, batch, options.precision)
    issued = time.perf_counter()
    torch.cuda.synchronize()
    end = time.perf_counter()
    return (end - begin) / options.iterations, (issued - begin) / options.iterations


def compare_losses(
    ways: list[Way], task: Any, batch: Any, options: argparse.Namespace
) -> dict[str, list[float]]:
    with deterministic():
        return {
            way.name: [
                float(way.step(task, batch, options.precision)) for _ in range(options.steps)
            ]
            for way in ways
        }


def equal(losses: dict[str, list[float]], ranks: int) -> bool:
    first = losses["nccl"]
    if ranks == 2:
        return all(other == first for other in losses.values())
    return all(
        abs(own - others) <= CLOSE * max(1.0, abs(others))
        for other in losses.values()
        for own, others in zip(other[:CLOSE_STEPS], first[:CLOSE_STEPS], strict=True)
    )


def measure(
    name: str, batch_size: int, groups: dict[str, Any], gpu: int, options: argparse.Namespace
) -> dict[str, Any]:
    """The row of one network and batch."""
    import torch
    import torch.distributed as dist
    from train_models import TASKS

    task, device, ranks = TASKS[name], torch.device("cuda", gpu), dist.get_world_size()
    torch.manual_seed(1)
    model = task.make().to(device)
    torch.manual_seed(100 + dist.get_rank())
    batch = task.samples(batch_size, device)
    ways = [Way(way, copy.deepcopy(model), groups, gpu) for way in WAYS]
    losses = compare_losses(ways, task, batch, options)
    for way in ways:
        for _ in range(options.warmup):
            way.step(task, batch, options.precision)
    seconds: dict[str, list[float]] = {way: [] for way in (*WAYS, "alone")}
    issued: dict[str, list[float]] = {way: [] for way in (*WAYS, "alone")}
    for turn in range(options.rounds):
        # The first way is the last one in the next round.
        for way in ways if turn % 2 == 0 else reversed(ways):
            took, host = timed(way, task, batch, options)
            seconds[way.name].append(slowest(took, device, groups["nccl"]))
            issued[way.name].append(host)
        with ways[0].model.no_sync():
            took, host = timed(ways[0], task, batch, options)
        seconds["alone"].append(slowest(took, device, groups["nccl"]))
        issued["alone"].append(host)
    return {
        "model": name,
        "batch": batch_size,
        "ranks": ranks,
        "precision": options.precision,
        "gradient_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
        "alone_ms": 1e3 * statistics.median(seconds["alone"]),
        "ways": {
            way: {
                "ms": 1e3 * statistics.median(seconds[way]),
                "issue_ms": 1e3 * statistics.median(issued[way]),
                "images_per_s": batch_size * ranks / statistics.median(seconds[way]),
                "times": statistics.median(
                    other / own for own, other in zip(seconds[way], seconds["nccl"], strict=True)
                ),
                "losses": losses[way],
            }
            for way in WAYS
        },
        "losses_equal": equal(losses, ranks),
    }


def measure_all(
    groups: dict[str, Any], gpu: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """The rows of all networks and batches, on every rank. ``groups``: "nccl" and "polypath", of
    all ranks."""
    import torch
    import torch.distributed as dist

    torch.backends.cudnn.benchmark = True
    rows = []
    for name in options.models.split(","):
        for size in (int(text) for text in options.batches.split(",")):
            rows.append(measure(name, size, groups, gpu, options))
            torch.cuda.empty_cache()
            if dist.get_rank() == 0:
                print(line(rows[-1]), file=sys.stderr, flush=True)
                if options.json:  # results stay also if a later model fails
                    Path(options.json).write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    carried = groups["polypath"].report()
    if carried["polypath"] is None:
        raise SystemExit(f"polypath has no communicator here: {carried['reason']}")
    return rows


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """As `measure_all`, with a process group of its own, from the variables of torchrun."""
    import polypath.torch  # noqa: F401  it registers the backend
    import torch
    import torch.distributed as dist

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic kernels
    gpu = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(gpu)
    limit = timedelta(minutes=5)
    dist.init_process_group("cpu:gloo,cuda:polypath", timeout=limit)
    groups = {"nccl": dist.new_group(backend="nccl", timeout=limit), "polypath": dist.group.WORLD}
    rows = measure_all(groups, gpu, options)
    dist.destroy_process_group()
    return rows


# ---- What is told --------------------------------------------------------------------------------


def line(row: dict[str, Any]) -> str:
    ways = ", ".join(f"{way} {result['ms']:.2f}" for way, result in row["ways"].items())
    times = " and ".join(f"{row['ways'][way]['times']:.3f}" for way in WAYS[1:])
    return f"{row['model']} {row['batch']}: alone {row['alone_ms']:.2f}, {ways} ms; {times} times"


def table(rows: list[dict[str, Any]]) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:  # the lines on stderr are the table then
        return
    ranks, precision = rows[0]["ranks"], rows[0]["precision"]
    output = Table(title=f"DDP on {ranks} GPUs, {precision}: ms an iteration, images/s of all GPUs")
    for heading in ("network", "batch", "MiB", "no sync", *WAYS, "times NCCL", "losses"):
        output.add_column(
            heading, justify="left" if heading == "network" else "right", no_wrap=True
        )
    for row in rows:
        ways = row["ways"]
        output.add_row(
            *(row["model"], str(row["batch"]), f"{row['gradient_bytes'] / 2**20:.0f}"),
            f"{row['alone_ms']:.2f}",
            *(f"{ways[way]['ms']:.2f} {ways[way]['images_per_s']:.0f}" for way in WAYS),
            " ".join(f"{ways[way]['times']:.3f}" for way in WAYS[1:]),
            "equal" if row["losses_equal"] else "DIFFER",
        )
    Console().print(output)


def main() -> int:
    options = parse()
    if options.spawn and "RANK" not in os.environ:
        return spawn(options.spawn)
    rows = run(options)
    if int(os.environ["RANK"]) == 0:
        table(rows)
    return 0 if all(row["losses_equal"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
