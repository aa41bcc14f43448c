"""A program that copies as UCX and libcudart do, knowing nothing of polypath.

    python -m polypath.doctor.trial_copies WAY BYTES

Random bytes go from pinned memory to GPU 0, on to GPU 1 where there is one, and back into pinned
memory, each by the driver's copy for these two kinds of memory, found in this way (`driver.WAYS`).
The bytes that come back are compared with those that left. Prints JSON: {"preloaded": names of
LD_PRELOAD that are in this process, "symbols": {"host gpu0": symbol}, "verified", "error"}.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

from .driver import COPIES, FAILURES, WAYS, Driver, copy_function


def main() -> None:
    way, size = sys.argv[1], int(sys.argv[2])
    assert way in WAYS
    result = {"preloaded": preloaded(), "symbols": {}, "verified": False, "error": ""}
    try:
        result["verified"] = round_trip(Driver(), way, size, result["symbols"])
    except FAILURES as error:
        result["error"] = str(error)
    print(json.dumps(result))


def preloaded() -> list[str]:
    mapped = Path("/proc/self/maps").read_text(errors="replace")
    wanted = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return [name for name in wanted if str(Path(name).resolve()) in mapped]


def round_trip(driver: Driver, way: str, size: int, symbols: dict[str, str]) -> bool:
    """Whether the bytes come back. Notes the symbols called."""
    gpus = min(driver.gpu_count(), 2)
    driver.use(0)
    if gpus == 2:
        driver.enable_access(1, 0)
        driver.enable_access(0, 1)
    sent = driver.pinned(size)
    sent.raw = os.urandom(size)
    received = driver.pinned(size)
    places = [ctypes.addressof(sent)]
    places += [driver.device_memory(gpu, size) for gpu in range(gpus)]
    places.append(ctypes.addressof(received))
    names = ["host", *(f"gpu{gpu}" for gpu in range(gpus)), "host"]
    for step in range(len(places) - 1):
        src, dst = names[step], names[step + 1]
        symbol = COPIES[src.rstrip("01"), dst.rstrip("01")]
        symbols[f"{src} {dst}"] = symbol
        driver.use(max(step - 1, 0))
        stream = driver.stream()
        copy_function(driver, way, symbol)(places[step + 1], places[step], size, stream)
        driver.synchronise(stream)
    return received.raw == sent.raw


if __name__ == "__main__":
    main()
