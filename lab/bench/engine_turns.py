"""What small copies over a PCIe link meet next to another process that copies blocks over it
without pause: microseconds of each copy by the CPU's clock, by events on its own stream, and by an
event on another stream and one after it. Prints the least, the quantiles 0.1, 0.25, 0.5, 0.75 and
0.9, and the most of 200 copies, or of 80 rows of chunks.

    python3 lab/bench/engine_turns.py [--gpu 1]

Needs CuPy and a GPU.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import cupy

MIB = 1 << 20
WAYS = ("the CPU's clock", "events around it", "another stream")
QUANTILES = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)
QUEUED = 2  # blocks of the other process at any time
SECONDS = 4.0
runtime = cupy.cuda.runtime


class Copy:
    """Between pinned memory and a GPU, which must be current."""

    def __init__(self, to_host: bool, size: int) -> None:
        self.size, self.to_host = size, to_host
        self.device = cupy.cuda.alloc(size)
        self.host = cupy.cuda.alloc_pinned_memory(size)

    def issue(self, stream: Any, offset: int = 0, size: int | None = None) -> None:
        host, device = self.host.ptr + offset, self.device.ptr + offset
        size = size or self.size
        if self.to_host:
            runtime.memcpyAsync(host, device, size, runtime.memcpyDeviceToHost, stream.ptr)
        else:
            runtime.memcpyAsync(device, host, size, runtime.memcpyHostToDevice, stream.ptr)


def copy_without_pause(to_host: bool, block: int) -> None:
    copy, stream = Copy(to_host, block), cupy.cuda.Stream(non_blocking=True)
    ends: list[Any] = []
    begin, copied = time.time(), 0
    print("begun", flush=True)
    while time.time() < begin + SECONDS:
        copy.issue(stream)
        ends.append(cupy.cuda.Event(disable_timing=True))
        ends[-1].record(stream)
        copied += block
        if len(ends) >= QUEUED:
            ends.pop(0).synchronize()
    stream.synchronize()
    print(f"the other process: {copied / (time.time() - begin) / 1e9:.1f} GB/s")


def times(stream: Any, clock: Any, issue: Callable[[Any], None]) -> tuple[float, float, float]:
    ahead, begin, end = (cupy.cuda.Event() for _ in range(3))
    begun = time.perf_counter()
    ahead.record(clock)
    begin.record(stream)
    issue(stream)
    end.record(stream)
    while not end.done:
        pass
    us = (time.perf_counter() - begun) * 1e6
    ahead.synchronize()
    elapsed = cupy.cuda.get_elapsed_time
    return us, elapsed(begin, end) * 1e3, elapsed(ahead, end) * 1e3


def measure(what: str, to_host: bool) -> None:
    clock, stream = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    small, chunks = Copy(to_host, MIB), Copy(to_host, 21 * MIB)

    def issue_chunks(on: Any) -> None:
        for i in range(9):
            chunks.issue(on, i * 21 * MIB // 9, 21 * MIB // 9)

    pauses: dict[str, Callable[[], None]] = {
        "1 MiB at any time": lambda: time.sleep(random.random() * 0.0015),
        "1 MiB at once": lambda: None,
        "9 x 2.3 MiB at any time": lambda: time.sleep(random.random() * 0.0015),
    }
    for name, pause in pauses.items():
        issue, count = (issue_chunks, 80) if name.startswith("9") else (small.issue, 200)
        samples = []
        for _ in range(count):
            pause()
            samples.append(times(stream, clock, issue))
        columns = zip(*samples, strict=True)
        for by, column in zip(WAYS, columns, strict=True):
            values = sorted(column)
            row = " ".join(f"{values[int(q * (count - 1))]:6.0f}" for q in QUANTILES)
            print(f"{what:28} {name:24} {by:17} {row}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--copy", nargs=2, metavar=("KIND", "MIB"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cupy.cuda.Device(arguments.gpu).use()
    if arguments.copy:
        copy_without_pause(arguments.copy[0] == "d2h", int(arguments.copy[1]) * MIB)
        return
    for kind in ("d2h", "h2d"):
        measure(f"{kind}, idle", kind == "d2h")
        for mib in (64, 8):
            command = [
                sys.executable,
                __file__,
                "--gpu",
                str(arguments.gpu),
                "--copy",
                kind,
                str(mib),
            ]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
                assert other.stdout
                other.stdout.readline()
                measure(f"{kind}, next to {mib} MiB blocks", kind == "d2h")
                print(other.stdout.read().strip())


if __name__ == "__main__":
    main()
