#!/usr/bin/env python3
"""Checks that programs which know only NCCL work under libpolypath_nccl.so. For GPUs, with PyTorch:

    polypath run --reproducible --stats text -- \\
        torchrun --nproc-per-node 2 scripts/check_nccl_programs.py [--only NAMES] [--json FILE]
    torchrun --nproc-per-node 2 scripts/check_nccl_programs.py          # NCCL alone

Contents are random, and every element is compared with the sum in rank order: bit by bit under
`polypath run --reproducible`, else with a tolerance. Each check then asserts as well that polypath
carried its sums of floats (polypath_nccl_report); `--stats text` says the same at the end, in the
lines "ncclAllReduce: ... taken; to NCCL: ...". A line a check; exit code 1 when one fails on any
rank, 3 when one takes longer than a minute.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import os
import re
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from nccl_checks import CHECKS, Place, in_rank_order
from torch import Tensor

LIMIT = 60.0  # seconds of a check
WAIT = timedelta(seconds=LIMIT + 30)


# ---- NCCL by ctypes ------------------------------------------------------------------------------


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_byte * 128),)


INT, SIZE, POINTER = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
COMMUNICATOR = ctypes.POINTER(ctypes.c_void_p)
FUNCTIONS: dict[str, list[Any]] = {
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [COMMUNICATOR, INT, UniqueId, INT],
    "ncclCommSplit": [POINTER, INT, INT, COMMUNICATOR, POINTER],
    "ncclCommDestroy": [POINTER],
    "ncclAllReduce": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclReduceScatter": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclReduce": [POINTER, POINTER, SIZE, INT, INT, INT, POINTER, POINTER],
    "ncclAllGather": [POINTER, POINTER, SIZE, INT, POINTER, POINTER],
    "ncclBroadcast": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclSend": [POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclRecv": [POINTER, SIZE, INT, INT, POINTER, POINTER],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
}
TYPES = {torch.int64: 4, torch.float32: 7, torch.bfloat16: 9}
SUM = 0


class Nccl:
    """The library that PyTorch has loaded, opened once more by its path, as vLLM does."""

    def __init__(self) -> None:
        match = re.search(r"/\S*/libnccl\.so\S*", Path("/proc/self/maps").read_text())
        if match is None:
            raise RuntimeError("no libnccl.so is loaded: PyTorch may have it linked statically")
        self.library = ctypes.CDLL(match[0])
        for name, arguments in FUNCTIONS.items():
            getattr(self.library, name).argtypes = arguments

    def __call__(self, name: str, *arguments: Any) -> None:
        """Tensors are their addresses."""
        plain = [
            argument.data_ptr() if isinstance(argument, Tensor) else argument
            for argument in arguments
        ]
        result = getattr(self.library, name)(*plain)
        if result != 0:
            raise RuntimeError(f"{name} gave {result}")

    def communicator(self, on: Place) -> ctypes.c_void_p:
        unique, comm = UniqueId(), ctypes.c_void_p()
        if on.rank == 0:
            self("ncclGetUniqueId", ctypes.byref(unique))
        held = [bytes(unique)]
        dist.broadcast_object_list(held, 0)
        on.synchronize()
        self(
            "ncclCommInitRank",
            ctypes.byref(comm),
            on.size,
            UniqueId.from_buffer_copy(held[0]),
            on.rank,
        )
        return comm

    def split(self, parent: ctypes.c_void_p, color: int, key: int) -> ctypes.c_void_p:
        comm = ctypes.c_void_p()
        self("ncclCommSplit", parent, color, key, ctypes.byref(comm), None)
        return comm


def check_ctypes(on: Place) -> None:
    """Between calls of this communicator and of PyTorch's the GPU is waited for."""
    nccl, root = Nccl(), on.size - 1
    comm, stream = nccl.communicator(on), torch.cuda.Stream()
    runs_on = stream.cuda_stream
    for number, (dtype, kind) in enumerate(TYPES.items()):
        for count in (1, 1000, 262147, 3 * 2**20 + 1):
            what = f"{count} {dtype}"
            inputs = on.values(count, dtype, number)
            wide = on.values(count * on.size, dtype, 10 + number)
            lengths = (count, count, count * on.size, count, count)
            total, part, every, at_root, spread = (on.poisoned(length, dtype) for length in lengths)
            on.synchronize()
            nccl("ncclAllReduce", inputs, total, count, kind, SUM, comm, runs_on)
            nccl("ncclReduceScatter", wide, part, count, kind, SUM, comm, runs_on)
            nccl("ncclAllGather", inputs, every, count, kind, comm, runs_on)
            nccl("ncclReduce", inputs, at_root, count, kind, SUM, root, comm, runs_on)
            nccl("ncclBroadcast", inputs, spread, count, kind, root, comm, runs_on)
            on.synchronize()
            rows, parts = on.gathered(inputs), on.summed(wide).view(on.size, count)
            expected = in_rank_order(rows)
            on.same(total, expected, f"ncclAllReduce {what}")
            on.same(part, parts[on.rank], f"ncclReduceScatter {what}")
            on.same(every, torch.cat(rows), f"ncclAllGather {what}", exact=True)
            if on.rank == root:
                on.same(at_root, expected, f"ncclReduce {what}")
            on.same(spread, rows[root], f"ncclBroadcast {what}", exact=True)
            if dtype.is_floating_point:
                for name in ("ncclAllReduce", "ncclReduceScatter", "ncclReduce"):
                    on.expect(name, 1)
    grouped_calls(on, nccl, comm, stream)
    nccl("ncclCommDestroy", comm)


def grouped_calls(on: Place, nccl: Nccl, comm: Any, stream: torch.cuda.Stream) -> None:
    """Two sums and messages around a ring in one group."""
    right, left = (on.rank + 1) % on.size, (on.rank - 1) % on.size
    kinds, count, runs_on = (torch.bfloat16, torch.float32), 70001, stream.cuda_stream
    inputs = [on.values(count, dtype, 20) for dtype in kinds]
    totals = [on.poisoned(count, dtype) for dtype in kinds]
    message, received = on.values(count, torch.int64, 21), on.poisoned(count, torch.int64)
    on.synchronize()
    nccl("ncclGroupStart")
    nccl("ncclAllReduce", inputs[0], totals[0], count, TYPES[kinds[0]], SUM, comm, runs_on)
    nccl("ncclSend", message, count, TYPES[torch.int64], right, comm, runs_on)
    nccl("ncclRecv", received, count, TYPES[torch.int64], left, comm, runs_on)
    nccl("ncclAllReduce", inputs[1], totals[1], count, TYPES[kinds[1]], SUM, comm, runs_on)
    nccl("ncclGroupEnd")
    on.synchronize()
    for own, total in zip(inputs, totals, strict=True):
        on.same(total, on.summed(own), f"sum of {own.dtype} in a group")
    on.same(received, on.gathered(message)[left], "message in a group")
    on.expect("ncclAllReduce", len(kinds))


def check_split(on: Place) -> None:
    """Subsets by new_group, and by ncclCommSplit: by parity, and all of them in reversed order."""
    count, half, all_ranks = 5003, on.size // 2, list(range(on.size))
    own = on.values(count, torch.float32)
    rows = on.gathered(own)
    partitions = [[[rank] for rank in all_ranks], [all_ranks[:half], all_ranks[half:]]]
    for ranks in [ranks for partition in partitions for ranks in partition]:
        group = dist.new_group(ranks)
        if on.rank not in ranks:
            continue
        total = own.clone()
        dist.all_reduce(total, group=group)
        on.same(total, in_rank_order([rows[rank] for rank in ranks]), f"group of {ranks}")
        on.synchronize()
        dist.destroy_process_group(group)
        on.expect("ncclAllReduce", int(len(ranks) > 1))
    nccl = Nccl()
    parent, stream = nccl.communicator(on), torch.cuda.Stream()
    parity = [rank for rank in all_ranks if rank % 2 == on.rank % 2]
    for color, key, ranks in ((on.rank % 2, on.rank, parity), (0, -on.rank, all_ranks[::-1])):
        comm, total = nccl.split(parent, color, key + on.size), on.poisoned(count, torch.float32)
        on.synchronize()
        kind = TYPES[torch.float32]
        nccl("ncclAllReduce", own, total, count, kind, SUM, comm, stream.cuda_stream)
        on.synchronize()
        expected = in_rank_order([rows[rank] for rank in ranks])
        on.same(total, expected, f"ncclCommSplit to {ranks}")
        nccl("ncclCommDestroy", comm)
        on.expect("ncclAllReduce", int(len(ranks) > 1))
    nccl("ncclCommDestroy", parent)


CHECKS.update(ctypes=check_ctypes, split=check_split)


# ---- All of them ---------------------------------------------------------------------------------


def polypath_counters_text() -> dict[str, Any]:
    """What polypath counted in this process until now (intercept/src/nccl/offload_policy.hpp)."""
    function = ctypes.CDLL(None).polypath_nccl_report
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t
    text = ctypes.create_string_buffer(function(None, 0) + 4096)
    function(text, len(text))
    return json.loads(text.value)


def counts(report: dict[str, Any] | None) -> Counter[str]:
    """Calls by function that were taken, and by "function: why" that were not."""
    totals: Counter[str] = Counter()
    for name, row in (report or {"calls": {}})["calls"].items():
        totals[name] = row["taken"]
        for why, times in row["to_nccl"].items():
            totals[f"{name}: {why}"] = times
    return totals


@contextmanager
def watched(name: str, rank: int) -> Iterator[None]:
    """Ends the process when it takes too long: also when a call keeps Python's lock."""

    def end() -> None:
        print(f"rank {rank}: {name} hangs", file=sys.stderr, flush=True)
        faulthandler.dump_traceback()
        os._exit(3)

    timer = threading.Timer(LIMIT, end)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(LIMIT + 10, exit=True)
    try:
        yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


def run_check(on: Place, name: str, under: bool) -> list[str]:
    """What failed on this rank."""
    on.begin()
    before = counts(polypath_counters_text() if under else None)
    try:
        CHECKS[name](on)
        on.synchronize()
    except Exception as error:
        traceback.print_exc()
        on.failures.append(f"{type(error).__name__}: {error}")
    if on.exact and not on.failures:
        gone = counts(polypath_counters_text()) - before
        for what, calls in on.expected.items():
            if gone[what] < calls:
                on.failures.append(f"{what}: {gone[what]} calls instead of {calls}: {dict(gone)}")
    more = len(on.failures) - 3
    return on.failures[:3] + ([f"and {more} more"] if more > 0 else [])


def agree(store: dist.Store, on: Place, name: str, failures: list[str]) -> list[str]:
    """By the store: a communicator may be of no use when ranks went apart."""
    store.set(f"{name}/{on.rank}", json.dumps(failures))
    reports = []
    for rank in range(on.size):
        try:
            store.wait([f"{name}/{rank}"], WAIT)
            remote_failures = json.loads(store.get(f"{name}/{rank}"))
        except Exception as error:
            remote_failures = [f"no word of it: {type(error).__name__}"]
        reports += [f"rank {rank}: {failure}" for failure in remote_failures]
    return reports


def run_checks(on: Place, names: list[str], under: bool) -> list[dict[str, Any]]:
    store = dist.PrefixStore("nccl_checks", dist.distributed_c10d._get_default_store())
    results = []
    for name in names:
        begin = time.monotonic()
        with watched(name, on.rank):
            failures = run_check(on, name, under)
        failures = agree(store, on, name, failures)
        seconds = round(time.monotonic() - begin, 1)
        results.append({"name": name, "seconds": seconds, "failures": failures, "notes": on.notes})
        if on.rank == 0:
            outcome = f"FAILED: {'; '.join(failures)}" if failures else "ok"
            noted = f" ({len(on.notes)} notes, first: {on.notes[0]})" if on.notes else ""
            print(f"{name}: {outcome}, {seconds} s{noted}", flush=True)
    return results


def names_of(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no checks: {', '.join(unknown)}")
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", type=names_of, default=list(CHECKS), metavar="NAMES")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--native", action="store_true", help="as without polypath: sums within a tolerance"
    )
    arguments = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic kernels
    under = "libpolypath_nccl" in os.environ.get("LD_PRELOAD", "") and not arguments.native
    gpu = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(gpu)
    rank = int(os.environ["RANK"])
    with watched("the beginning", rank):
        dist.init_process_group("nccl", device_id=gpu, timeout=timedelta(minutes=2))
        dist.all_reduce(torch.zeros(1, device=gpu))
        torch.cuda.synchronize()
    on = Place(gpu, exact=under and polypath_counters_text()["reproducible"])
    figures: dict[str, Any] = {
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "gpu": torch.cuda.get_device_name(),
        "ranks": on.size,
        "polypath": under,
        "bit_by_bit": on.exact,
    }
    if on.rank == 0:
        print(", ".join(f"{name} {value}" for name, value in figures.items()), flush=True)
    figures["checks"] = run_checks(on, arguments.only, under)
    if under:
        figures["report"] = polypath_counters_text()
    if on.rank == 0 and arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    with watched("the end", rank):
        dist.destroy_process_group()
    return 1 if any(check["failures"] for check in figures["checks"]) else 0


if __name__ == "__main__":
    sys.exit(main())
