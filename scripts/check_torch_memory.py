#!/usr/bin/env python3
"""Copies with PyTorch out of each of its allocators, under `polypath run`, and compares every byte
where it arrived; every copy that the plan splits has to be split.

    scripts/check_torch_memory.py [--bytes N] [--rounds N] [--facts] [--polypath COMMAND]

The allocators: PyTorch's own (cuMemAlloc), its expandable segments (virtual mappings, unmapped and
mapped again between the rounds) and the driver's pools (cudaMallocAsync). Each runs in a process of
its own; the counters of polypath, by route, are printed after it. With --facts it also prints what
the driver says of addresses in each kind of memory. Needs two GPUs or more and PyTorch; ends with 1
when a byte is wrong or a copy was not split.
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
from typing import TYPE_CHECKING, Any

import polypath

if TYPE_CHECKING:
    import torch

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
    attributes = []
    for name, number, kind in ATTRIBUTES:
        value = kind()
        result = driver.cuPointerGetAttribute(
            ctypes.byref(value), ctypes.c_int(number), ctypes.c_ulonglong(address)
        )
        attributes.append(f"{name} {value.value if result == 0 else f'error {result}'}")
    print(f"  {what} {address:#x}: " + ", ".join(attributes))


def values(count: int, seed: int, place: str) -> "torch.Tensor":
    """The same random bytes on every place, made there: no copy is needed to compare them."""
    import torch

    words = torch.arange(count // 8 + 1, dtype=torch.int64, device=place)
    words += seed << 40
    for factor in (-0x61C8864680B583EB, -0x4B47D0C5A1B5A5C3):
        words ^= words >> 30
        words *= factor
    words ^= words >> 31
    return words.view(torch.uint8)[:count]


def synchronise_all(gpus: int) -> None:
    import torch

    for gpu in range(gpus):
        torch.cuda.synchronize(gpu)


def copy_all(size: int, rounds: int, facts: bool) -> int:
    """Copies between all pairs of memories; the number of copies with a wrong byte."""
    import torch

    gpus = torch.cuda.device_count()
    places = [f"cuda:{gpu}" for gpu in range(gpus)] + ["cpu"]
    pairs = [(source, target) for source in places for target in places if source != target]
    # PyTorch gives GPUs access to each other's memory with the first copy between the two.
    for source, target in pairs:
        torch.zeros(16, dtype=torch.uint8, device=source).to(target)
    wrong = 0
    for turn in range(rounds):
        # The size differs in each round, so that segments grow, shrink and are mapped anew.
        count = size + turn * (6 << 20) + turn
        for number, (source, target) in enumerate(pairs):
            seed = 1 + turn * len(pairs) + number
            src = values(count, seed, source)
            dst = torch.full((count,), 0xA5, dtype=torch.uint8, device=target)
            if source == "cpu":
                src = src.pin_memory()
            if target == "cpu":
                dst = dst.pin_memory()
            synchronise_all(gpus)
            if facts and turn == 0 and source == "cuda:0":
                for offset in (0, count // 2, count - 1):
                    print_facts(f"{target} +{offset}", dst.data_ptr() + offset)
            dst.copy_(src, non_blocking=True)
            synchronise_all(gpus)
            if not torch.equal(dst, values(count, seed, target)):
                wrong += 1
                print(f"  WRONG: {source} to {target}, {count} bytes, round {turn}")
            del src, dst
        torch.cuda.empty_cache()  # unmaps what is free
    print(f"  {rounds * len(pairs)} copies, {wrong} wrong")
    return wrong


def counters_in(folder: Path) -> dict[str, Any]:
    """What polypath counted in the one process that copied; empty when it saw no copy."""
    files = sorted(folder.iterdir())
    engines = [json.loads(file.read_text(encoding="utf-8"))["engine"] for file in files]
    return next((engine for engine in engines if engine is not None), {})


def print_counters(engine: dict[str, Any]) -> None:
    """By reason and by route."""
    if not engine:
        print("  polypath saw no copy that was large enough")
        return
    print(f"  split {engine['split']}, native {engine['native_by_reason']}")
    print(f"  left out {engine['left_out_by_reason']}")
    for row in engine["routes"]:
        print(
            f"  {row['src']} to {row['dst']}, {row['route']}: "
            f"{row['transfers']} transfers, {row['bytes']} bytes"
        )


def split_by_plan(size: int) -> list[tuple[str, str]]:
    """The pairs of memories between which a copy of `size` bytes is split on this machine."""
    with polypath.Context() as context:
        gpus = len(context.topology()["gpus"])
        memories = [f"gpu{gpu}" for gpu in range(gpus)] + ["host0"]
        pairs = [(src, dst) for src in memories for dst in memories if src != dst]
        return [pair for pair in pairs if not context.plan(*pair, size)["transfers"][0]["native"]]


def not_split(
    engine: dict[str, Any], pairs: list[tuple[str, str]], rounds: int
) -> list[tuple[str, str]]:
    """The pairs between which some copies took no staged route."""
    staged: dict[tuple[str, str], int] = {}
    for row in engine.get("routes", []):
        if row["route"] == "direct":
            continue
        pair = (kind_of(row["src"]), kind_of(row["dst"]))
        staged[pair] = max(staged.get(pair, 0), row["transfers"])
    return [pair for pair in pairs if staged.get(pair, 0) < rounds]


def kind_of(memory: str) -> str:
    """PyTorch does not say on which part of the host its memory lies."""
    return "host0" if memory.startswith("host") else memory


def run_with(name: str, arguments: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    """This script in a process under `polypath run`, with one allocator: whether all bytes were
    right, and what polypath counted."""
    print(f"{name}:", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [*shlex.split(arguments.polypath), "run"]
        command += ["--stats", str(Path(folder) / "stats.json"), "--"]
        command += [sys.executable, __file__, "--inside", "--bytes", str(arguments.bytes)]
        command += ["--rounds", str(arguments.rounds)] + ["--facts"] * arguments.facts
        # Routes are waited for: then each copy has to be split, the first one of a pair as well.
        environment = {
            **os.environ,
            "PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[name],
            "POLYPATH_PREPARE": "wait",
        }
        code = subprocess.run(command, env=environment, check=False).returncode
        engine = counters_in(Path(folder))
    print_counters(engine)
    return code == 0, engine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=96 << 20, help="of one copy, at least")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--facts", action="store_true", help="print what the driver says")
    parser.add_argument("--polypath", default=f"{sys.executable} -m polypath", help="the command")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return 1 if copy_all(arguments.bytes, arguments.rounds, arguments.facts) else 0
    runs = {name: run_with(name, arguments) for name in ALLOCATORS}
    # After the runs: the first of them measures the node if it has no profile yet.
    pairs = split_by_plan(arguments.bytes)
    print(f"to be split: {', '.join(f'{src} to {dst}' for src, dst in pairs) or 'nothing'}")
    missing = {
        name: not_split(engine, pairs, arguments.rounds) for name, (_, engine) in runs.items()
    }
    for name, pairs in missing.items():
        for src, dst in pairs:
            print(f"  NOT SPLIT: {name}, {src} to {dst}")
    return 0 if all(right for right, _ in runs.values()) and not any(missing.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
