#!/usr/bin/env python3
"""Checks all_reduce_norm of polypath.torch on GPUs, and times it.

    scripts/check_torch_norm.py --spawn 4 [--hidden 5120] [--rows 1,2,4,8,...] [--json FILE]
    torchrun --nproc-per-node 4 scripts/check_torch_norm.py ...

Needs PyTorch 2.4 with NCCL and two GPUs or more. Contents are random. Every element is compared
bit by bit with the documented order of sums, with as many rows as are timed and with fewer, in a
graph, as FP8, and under torch.compile. Then times of a call, captured in graphs of CALLS calls that
are replayed in alternation, on an idle node and next to copies between the GPUs:

    allreduce     polypath's, of as many elements
    fused         all_reduce_norm, with a residual
    norm          allreduce, then torch.nn.functional.rms_norm
    add, norm     allreduce, addition of the residual, then rms_norm
    nccl, norm    NCCL's allreduce, then rms_norm

Ends with 1 where an element is wrong on any rank.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import rms_norm

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import train_ddp
from torch_checks import Place, same
from torch_norm_reference import expected

EPSILON = 1e-6
CALLS = 50
COPY_BYTES = 64 << 20


class Rows:
    """Tensors of one size: on this rank, and what all ranks give, on the host."""

    def __init__(self, on: Place, rows: int, hidden: int, dtype: torch.dtype) -> None:
        self.shape, count = (rows, hidden), rows * hidden
        self.inputs = [on.values(rank, count, dtype, 1).view(self.shape) for rank in range(on.size)]
        self.input = self.inputs[on.rank].clone()
        self.residual = on.values(100, count, dtype, 2).view(self.shape)
        self.weight = on.values(101, hidden, dtype, 3)
        self.sum = torch.empty_like(self.input)
        self.residual_out = torch.empty_like(self.input)
        self.output = torch.empty_like(self.input)
        self.name = dist.group.WORLD.group_name

    def expected(self, rows: int | None = None, scale: Tensor | None = None) -> tuple[Tensor, ...]:
        inputs = [input[:rows] for input in self.inputs]
        return expected(inputs, self.residual[:rows], self.weight, EPSILON, scale)


def fused(on: Place, rows: Rows) -> None:
    on.group.all_reduce_norm(
        *(rows.input, rows.weight, EPSILON),
        residual=rows.residual,
        residual_out=rows.residual_out,
        output=rows.output,
    )


# ---- Checks --------------------------------------------------------------------------------------


def check_bits(on: Place, rows: Rows, what: str) -> None:
    for tensor in (rows.output, rows.residual_out):
        tensor.fill_(93)
    fused(on, rows)
    for name, actual, reference in zip(
        ("output", "residual"), (rows.output, rows.residual_out), rows.expected(), strict=True
    ):
        same(actual.cpu(), reference, f"{what}: {name}")


def check_fewer_rows(on: Place, rows: Rows, what: str) -> None:
    whole = on.group.all_reduce_norm(rows.input, rows.weight, EPSILON, residual=rows.residual)
    for few in {1, rows.shape[0] // 2} - {0}:
        part = on.group.all_reduce_norm(
            rows.input[:few], rows.weight, EPSILON, residual=rows.residual[:few]
        )
        for actual, reference in zip(part, whole, strict=True):
            same(actual, reference[:few], f"{what}: {few} of its rows")


def check_float8(on: Place, rows: Rows, what: str) -> None:
    scale = torch.tensor([0.02], device=on.device)
    residual = rows.residual.clone()
    output = torch.empty(rows.shape, dtype=torch.float8_e4m3fn, device=on.device)
    torch.ops.polypath.all_reduce_norm_out(
        rows.input.clone(), output, rows.weight, residual, EPSILON, scale, rows.name
    )
    reference, wanted_residual = rows.expected(scale=scale)
    same(output.cpu().view(torch.uint8), reference.view(torch.uint8), f"{what}: FP8")
    same(residual.cpu(), wanted_residual, f"{what}: residual in place")


def check_compiled(on: Place, rows: Rows, what: str) -> None:
    """With other operators before and after, in one graph of the compiler."""

    def model(input: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        output, residual = torch.ops.polypath.all_reduce_norm(
            input * 1, rows.weight, residual, EPSILON, rows.name
        )
        return output + 0, residual

    has_inductor = on.device.type == "cuda" and importlib.util.find_spec("triton") is not None
    backend = "inductor" if has_inductor else "aot_eager"
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for _ in range(2):
        for actual, reference in zip(
            compiled(rows.input, rows.residual), rows.expected(), strict=True
        ):
            same(actual.cpu(), reference, f"{what}: compiled")


def check_graph(on: Place, rows: Rows, what: str) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            fused(on, rows)
    for turn in range(10):
        rows.output.fill_(93)
        if (turn + on.rank) % 4 == 0:
            torch.cuda._sleep(10**7)
        graph.replay()
        same(rows.output.cpu(), rows.expected()[0], f"{what}: replay {turn}")
    torch.cuda.synchronize()
    dist.barrier()


CHECKS: dict[str, Callable[[Place, Rows, str], None]] = {
    "bits": check_bits,
    "fewer rows": check_fewer_rows,
    "float8": check_float8,
    "graph": check_graph,
    "compiled": check_compiled,
}


def agreed(on: Place, failure: str | None) -> list[str]:
    failures: list[Any] = [None] * on.size
    dist.all_gather_object(failures, failure)
    return [text for text in failures if text]


def run_checks(on: Place, arguments: argparse.Namespace) -> list[str]:
    """What was wrong, on all ranks. Ends with the first: ranks may have gone apart then."""
    sizes = [(rows, arguments.hidden) for rows in arguments.rows] + [(3, 8), (2, 16384), (7, 1000)]
    for dtype in (torch.bfloat16, torch.float16):
        for rows, hidden in sizes:
            what = f"{rows} x {hidden} {dtype}"
            for name, check in CHECKS.items():
                if name == "compiled" and (rows, hidden) != sizes[0]:
                    continue
                failure = None
                try:
                    check(on, Rows(on, rows, hidden, dtype), what)
                    torch.cuda.synchronize()
                except Exception as error:
                    traceback.print_exc()
                    failure = f"rank {on.rank}: {name}: {type(error).__name__}: {error}"
                if failed := agreed(on, failure):
                    return failed
            if on.rank == 0:
                print(f"{what}: right", flush=True)
    return []


# ---- Times ---------------------------------------------------------------------------------------


def ways(on: Place, rows: Rows) -> dict[str, Callable[[], Any]]:
    connection, kind = on.group._connection, {torch.bfloat16: "bfloat16", torch.float16: "float16"}
    comm, hidden = connection.comm, rows.shape[1]

    def summed() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        comm.allreduce(rows.input, rows.sum, kind[rows.input.dtype], stream=stream)

    def norm() -> None:
        summed()
        rms_norm(rows.sum, (hidden,), rows.weight, EPSILON)

    def add_norm() -> None:
        summed()
        torch.add(rows.sum, rows.residual, out=rows.residual_out)
        rms_norm(rows.residual_out, (hidden,), rows.weight, EPSILON)

    def nccl_norm() -> None:
        dist.all_reduce(rows.sum, group=on.nccl)
        rms_norm(rows.sum, (hidden,), rows.weight, EPSILON)

    return {
        "allreduce": summed,
        "fused": lambda: fused(on, rows),
        "norm": norm,
        "add, norm": add_norm,
        "nccl, norm": nccl_norm,
    }


def captured(call: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


class Traffic:
    """Copies from this rank's GPU to the next one, without pause while this is entered."""

    def __init__(self, on: Place) -> None:
        self._stream = torch.cuda.Stream()
        self._source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=on.device)
        peer = torch.device("cuda", (on.gpu + 1) % torch.cuda.device_count())
        self._target = torch.empty(COPY_BYTES, dtype=torch.uint8, device=peer)
        self._end = torch.cuda.Event()

    def add(self, copies: int) -> None:
        with torch.cuda.stream(self._stream):
            for _ in range(copies):
                self._target.copy_(self._source, non_blocking=True)
            self._end.record()

    def is_over(self) -> bool:
        return self._end.query()


def times(on: Place, rows: Rows, traffic: Traffic | None, rounds: int) -> dict[str, float]:
    """us of a call, the median of the rounds, of the slowest rank."""
    graphs = {name: captured(call) for name, call in ways(on, rows).items()}
    taken: dict[str, list[float]] = {name: [] for name in graphs}
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for turn in range(rounds + 2):
        for name, graph in graphs.items():
            if traffic is not None:
                traffic.add(40)
            dist.barrier()
            graph.replay()  # takes what the ranks' starts are apart
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if traffic is not None and traffic.is_over() and on.rank == 0 and turn == 2:
                print(f"{name}: the copies ended before it", file=sys.stderr)
            torch.cuda.synchronize()
            if turn >= 2:
                taken[name].append(begin.elapsed_time(end) * 1000 / CALLS)
    medians = torch.tensor([statistics.median(of_way) for of_way in taken.values()])
    dist.all_reduce(medians, dist.ReduceOp.MAX)
    return dict(zip(taken, medians.tolist(), strict=True))


def measure(on: Place, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    for place in ("idle", "next to copies"):
        traffic = Traffic(on) if place != "idle" else None
        for count in arguments.rows:
            rows = Rows(on, count, arguments.hidden, getattr(torch, arguments.type))
            before = on.group.report()["polypath"]["norms"]
            us = times(on, rows, traffic, arguments.rounds)
            after = on.group.report()["polypath"]["norms"]
            same(rows.output.cpu(), rows.expected()[0], f"{count} rows, after the times")
            by = "fused" if after["fused"] > before["fused"] else "apart"
            row = {"place": place, "rows": count, "hidden": arguments.hidden, "by": by, "us": us}
            results.append(row)
            if on.rank == 0:
                text = ", ".join(f"{name} {value:.2f}" for name, value in us.items())
                print(
                    f"{place}, {count} rows, {by}: {text} us; fused / allreduce "
                    f"{us['fused'] / us['allreduce']:.2f}, / norm {us['fused'] / us['norm']:.2f}",
                    flush=True,
                )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spawn", type=int, metavar="N", help="start N ranks on this machine")
    parser.add_argument("--rows", default="1,2,4,8,16,32,64,128,512", help="as many each")
    parser.add_argument("--hidden", type=int, default=5120)
    parser.add_argument("--type", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-checks", action="store_true", help="times alone")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.spawn and "RANK" not in os.environ:
        return train_ddp.spawn(arguments.spawn)
    arguments.rows = [int(rows) for rows in arguments.rows.split(",")]
    on = Place()
    failed = [] if arguments.no_checks else run_checks(on, arguments)
    if failed:
        if on.rank == 0:
            print("\n".join(failed), file=sys.stderr, flush=True)
        os._exit(1)  # the ranks may wait for each other
    figures = {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "ranks": on.size,
        "type": arguments.type,
        "calls_of_a_graph": CALLS,
        "times": measure(on, arguments),
    }
    if on.rank == 0 and arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=1) + "\n")
    torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
