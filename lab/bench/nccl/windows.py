#!/usr/bin/env python3
"""All-reduces by polypath, whose buffers lie anywhere, next to NCCL's with buffers in windows that
all ranks have registered, which its kernels of symmetric memory take. For GPUs, with PyTorch:

    torchrun --nproc-per-node 4 lab/bench/nccl/windows.py [--sizes 1M,4M] [--json FILE]

Rows of calls are captured in graphs and replayed in turns; times are medians of the slowest rank,
in us a call. Every element is compared, polypath's with the sum in rank order; exit code 1 when one
differs. Where NCCL has no such kernels here, it says so and leaves with 2.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from pathlib import Path

import polypath.torch  # noqa: F401 - makes the backend known
import torch
import torch.distributed as dist
from both_libraries import about, differing, in_rank_order, worst_of_ranks
from calls import compare, sizes

#: NCCL's flag of memory that all ranks register at once.
SYMMETRIC = 1


class Window:
    """Memory of elements, in a window of the group's communicator until `end()`. All ranks make and
    end one together. Raises NotImplementedError where NCCL gives none."""

    def __init__(self, count: int, group: dist.ProcessGroup) -> None:
        self._nccl = ctypes.CDLL("libnccl.so.2")
        backend = group._get_backend(torch.device("cuda"))
        self._comm = ctypes.c_void_p(backend._comm_ptr())
        self._pool = torch.cuda.MemPool(backend.mem_allocator)
        with torch.cuda.use_mem_pool(self._pool):
            self.data = torch.zeros(count, dtype=torch.bfloat16, device="cuda")
        torch.cuda.synchronize()
        (segment,) = self._pool.snapshot()
        self._window = ctypes.c_void_p()
        result = self._nccl.ncclCommWindowRegister(
            self._comm,
            ctypes.c_void_p(segment["address"]),
            ctypes.c_size_t(segment["total_size"]),
            ctypes.byref(self._window),
            SYMMETRIC,
        )
        if result != 0 or not self._window:
            raise NotImplementedError(f"ncclCommWindowRegister gave {result}, and no window")

    def end(self) -> None:
        torch.cuda.synchronize()
        self._nccl.ncclCommWindowDeregister(self._comm, self._window)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=sizes, default=sizes("64K,256K,1M,4M,16M,64M"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    gpu = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(gpu)
    dist.init_process_group("cpu:gloo,cuda:polypath")
    groups = {"polypath": dist.group.WORLD, "nccl": dist.new_group(backend="nccl")}
    for group in groups.values():
        dist.all_reduce(torch.ones(1, device=gpu), group=group)
    torch.cuda.synchronize()
    random = torch.Generator(device=gpu).manual_seed(1 + dist.get_rank())
    rows, wrong = [], 0
    for size in arguments.sizes:
        own = torch.randn(size // 2, device=gpu, generator=random).bfloat16()
        expected = in_rank_order(own, groups["nccl"])
        try:
            window = Window(own.numel(), groups["nccl"])
        except NotImplementedError as error:
            print(f"NCCL's kernels of symmetric memory do not serve here: {error}")
            return 2
        data = {"polypath": torch.empty_like(own), "nccl": window.data}
        off = {}
        for name, group in groups.items():
            data[name].copy_(own)
            dist.all_reduce(data[name], group=group)
            off[name] = int(worst_of_ranks([differing(data[name], expected)], groups["nccl"])[0])
            data[name].zero_()
        wrong += off["polypath"]
        row = {"bytes": size, "differing": off, **compare(data, groups)}
        rows.append(row)
        window.end()
        if dist.get_rank() == 0:
            print(
                f"{size:10} B: {row['polypath_us']:8.2f} us, NCCL in windows "
                f"{row['nccl_us']:8.2f} us, {row['ratio']:5.2f} times; differing {off}",
                flush=True,
            )
    if dist.get_rank() == 0 and arguments.json:
        arguments.json.write_text(json.dumps({**about("windows"), "rows": rows}, indent=1) + "\n")
    torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
