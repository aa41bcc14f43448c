#!/usr/bin/env python3
"""The plug-ins for serving packages with the packages themselves, on this machine's GPUs: every
byte is compared, and polypath and the package's own way are timed in alternation.

    scripts/check_plugins.py [--bytes N] [--rounds N] [--backends FOLDER]

fastsafetensors: a file in the page cache to cuda:0, by its copier `nogds` and the copier
`polypath`, each load in a process of its own and twice in it. NIXL: blocks of 64 KiB between pinned
host memory and cuda:0 by the back end POLYPATH of FOLDER (build/release/nixl), and by copies of
PyTorch. A package that is not installed is left out. Needs PyTorch; ends with 1 when a byte is
wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

BLOCK = 64 << 10
TENSORS = 16


def rate(count: int, seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms, {count / seconds / 1e9:.1f} GB/s"


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = action()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def random_bytes(count: int, seed: int) -> torch.Tensor:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)


# ---- fastsafetensors


def load_twice(copier: str, file: str) -> None:
    """In a process of its own: the first load, and one that finds all prepared."""
    import torch
    from fastsafetensors import SafeTensorsFileLoader
    from safetensors.torch import load_file

    if copier == "polypath":
        import polypath.plugins.fastsafetensors as plugin

        plugin.install()
    torch.empty(1, device="cuda:0")
    expected = load_file(file)
    size = sum(tensor.nbytes for tensor in expected.values())
    for turn in ("first", "second"):
        loader = SafeTensorsFileLoader(None, "cuda:0", nogds=True)
        loader.add_filenames({0: [file]})
        seconds, buffer = timed(loader.copy_files_to_device)
        for name, tensor in expected.items():
            if not torch.equal(buffer.get_tensor(name).cpu(), tensor):
                sys.exit(f"{copier}: {name} has other bytes")
        print(f"fastsafetensors {copier:8} {turn:6} load: {rate(size, seconds)}", flush=True)
        buffer.close()
        loader.close()


def check_fastsafetensors(count: int, rounds: int) -> bool:
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder) / "model.safetensors"
        save_file({f"t{i}": random_bytes(count // TENSORS, i) for i in range(TENSORS)}, file)
        command = [sys.executable, __file__, "--file", str(file), "--load"]
        return all(
            subprocess.run([*command, copier], check=False).returncode == 0
            for _ in range(rounds)
            for copier in ("nogds", "polypath")
        )


# ---- NIXL


def check_nixl(count: int, rounds: int, backends: Path) -> bool:
    import torch

    os.environ["NIXL_PLUGIN_DIR"] = str(backends)
    from nixl_cu13._api import nixl_agent, nixl_agent_config

    agent = nixl_agent("check", nixl_agent_config(backends=[]))
    agent.create_backend("POLYPATH", {"prepare": "wait"})
    host = random_bytes(count, 1).pin_memory()
    back = torch.full((count,), 0xA5, dtype=torch.uint8).pin_memory()
    gpu = torch.full((count,), 0xA5, dtype=torch.uint8, device="cuda:0")
    for tensor in (host, back, gpu):
        agent.register_memory([tensor], backends=["POLYPATH"])
    places = torch.randperm(count // BLOCK, generator=torch.Generator().manual_seed(2)).tolist()
    straight = range(count // BLOCK)

    def blocks(tensor: torch.Tensor, order: Any) -> Any:
        device, kind = (0, "VRAM") if tensor.is_cuda else (0, "DRAM")
        rows = [(tensor.data_ptr() + place * BLOCK, BLOCK, device) for place in order]
        return agent.get_xfer_descs(rows, kind)

    def transfer(operation: str, local: Any, remote: Any) -> Callable[[], None]:
        handle = agent.initialize_xfer(operation, local, remote, "check")

        def run() -> None:
            state = agent.transfer(handle)
            while state not in ("DONE", "ERR"):
                state = agent.check_xfer_state(handle)
            if state == "ERR":
                sys.exit("nixl: a transfer failed")

        return run

    def copies(dst: torch.Tensor, src: torch.Tensor, dst_order: Any) -> Callable[[], None]:
        pairs = list(
            zip([dst.view(-1, BLOCK)[i] for i in dst_order], src.view(-1, BLOCK), strict=True)
        )

        def run() -> None:
            for to, source in pairs:
                to.copy_(source, non_blocking=True)

        return run

    ways = {
        "polypath to the GPU": transfer("WRITE", blocks(host, straight), blocks(gpu, places)),
        "PyTorch to the GPU": copies(gpu, host, places),
        "polypath from the GPU": transfer("READ", blocks(back, straight), blocks(gpu, places)),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):  # the first one prepares
        for name, run in ways.items():
            to_gpu = name.endswith("to the GPU")
            (gpu if to_gpu else back).fill_(0x5A)
            times[name].append(timed(run)[0])
            there = gpu.cpu().view(-1, BLOCK)[places] if to_gpu else back.view(-1, BLOCK)
            if not torch.equal(there, host.view(-1, BLOCK)):
                print(f"nixl, {name}: other bytes")
                return False
    for name, row in times.items():
        print(f"nixl, {name}: {rate(count, statistics.median(row[1:]))}")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backends", type=Path, default=Path("build/release/nixl"))
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        load_twice(arguments.load, arguments.file)
        return 0
    checks = {
        "fastsafetensors": lambda: check_fastsafetensors(arguments.bytes, arguments.rounds),
        "nixl_cu13": lambda: check_nixl(
            arguments.bytes, arguments.rounds, arguments.backends.resolve()
        ),
    }
    is_good = True
    for package, check in checks.items():
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed")
        else:
            is_good = check() and is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
