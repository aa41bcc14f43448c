#!/usr/bin/env python3
"""Copies with PyTorch out of each of its allocators, under `polypath run`, and compares every byte.

    scripts/check_torch_memory.py [--bytes N] [--rounds N] [--facts] [--polypath COMMAND]

The allocators: PyTorch's own (cuMemAlloc), its expandable segments (virtual mappings, unmapped and
mapped again between the rounds) and the driver's pools (cudaMallocAsync). Each runs in a process of
its own; the counters of polypath, by route, are printed behind it. With --facts it also prints what
the driver says of addresses in each kind of memory. Needs GPUs and PyTorch; ends with 1 when a byte
is wrong.
"""

import argparse
import ctypes
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ALLOCATORS = {
    "native": "",
    "expandable": "expandable_segments:True",
    "async": "backend:cudaMallocAsync",
}

# CUpointer_attribute: name, number, type.
ATTRIBUTES = [
    ("context", 1, ctypes.c_void_p),
    ("memory type", 2, ctypes.c_uint),
    ("buffer id", 7, ctypes.c_ulonglong),
    ("ordinal", 9, ctypes.c_int),
    ("ipc capable", 10, ctypes.c_uint),
    ("range start", 11, ctypes.c_ulonglong),
    ("range size", 12, ctypes.c_size_t),
    ("mapped", 13, ctypes.c_uint),
    ("pool", 17, ctypes.c_void_p),
    ("mapping size", 18, ctypes.c_size_t),
    ("mapping base", 19, ctypes.c_ulonglong),
    ("block id", 20, ctypes.c_ulonglong),
]


def print_facts(what: str, address: int) -> None:
    """Each attribute that the driver gives for `address`, or its error."""
    driver = ctypes.CDLL("libcuda.so.1")
    said = []
    for name, number, kind in ATTRIBUTES:
        value = kind()
        result = driver.cuPointerGetAttribute(
            ctypes.byref(value), ctypes.c_int(number), ctypes.c_ulonglong(address)
        )
        said.append(f"{name} {value.value if result == 0 else f'error {result}'}")
    print(f"  {what} {address:#x}: " + ", ".join(said))


def copy_all(size: int, rounds: int, facts: bool) -> int:
    """Copies between all pairs of memories; the number of copies with a wrong byte."""
    import torch

    gpus = torch.cuda.device_count()
    places = [f"cuda:{gpu}" for gpu in range(gpus)] + ["cpu"]
    wrong = copies = 0
    for turn in range(rounds):
        # Of another size in each round, so that segments grow, shrink and are mapped anew.
        count = size + turn * (6 << 20) + turn
        for source in places:
            for target in places:
                if source == target:
                    continue
                expected = torch.randint(0, 256, (count,), dtype=torch.uint8)
                src = expected.pin_memory() if source == "cpu" else expected.to(source)
                if target == "cpu":
                    dst = torch.full((count,), 0xA5, dtype=torch.uint8).pin_memory()
                else:
                    dst = torch.full((count,), 0xA5, dtype=torch.uint8, device=target)
                for gpu in range(gpus):
                    torch.cuda.synchronize(gpu)
                if facts and turn == 0 and source == "cuda:0":
                    for offset in (0, count // 2, count - 1):
                        print_facts(f"{target} +{offset}", dst.data_ptr() + offset)
                for _ in range(3):
                    dst.copy_(src, non_blocking=True)
                for gpu in range(gpus):
                    torch.cuda.synchronize(gpu)
                copies += 1
                if not torch.equal(dst.cpu(), expected):
                    wrong += 1
                    print(f"  WRONG: {source} to {target}, {count} bytes, round {turn}")
                del src, dst
        torch.cuda.empty_cache()  # unmaps what is free
    print(f"  {copies} kinds of copies, {wrong} wrong")
    return wrong


def print_counters(file: Path) -> None:
    """What polypath counted in one process, by reason and by route."""
    engine = json.loads(file.read_text(encoding="utf-8"))["engine"]
    if engine is None:
        print("  polypath saw no copy that was large enough")
        return
    print(f"  split {engine['split']}, native {engine['native_by_reason']}")
    print(f"  left out {engine['left_out_by_reason']}")
    for row in engine["routes"]:
        print(
            f"  {row['src']} to {row['dst']}, {row['route']}: "
            f"{row['transfers']} transfers, {row['bytes']} bytes"
        )


def run_with(name: str, arguments: argparse.Namespace) -> int:
    """This script in a process under `polypath run`, with one allocator."""
    print(f"{name}:", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [*shlex.split(arguments.polypath), "run"]
        command += ["--stats", str(Path(folder) / "stats.json"), "--"]
        command += [sys.executable, __file__, "--inside", "--bytes", str(arguments.bytes)]
        command += ["--rounds", str(arguments.rounds)] + ["--facts"] * arguments.facts
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[name]}
        code = subprocess.run(command, env=environment, check=False).returncode
        for file in sorted(Path(folder).iterdir()):
            print_counters(file)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=256 << 20, help="of one copy, at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--facts", action="store_true", help="print what the driver says")
    parser.add_argument(
        "--polypath", default="polypath", help="the command, such as 'python -m polypath'"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return 1 if copy_all(arguments.bytes, arguments.rounds, arguments.facts) else 0
    codes = [run_with(name, arguments) for name in ALLOCATORS]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
