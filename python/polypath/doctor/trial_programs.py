"""Programs that copy as UCX and libcudart do, knowing nothing of polypath.

    python -m polypath.doctor.trial_programs copies WAY BYTES

Random bytes go from pinned memory to GPU 0, on to GPU 1 where there is one, and back into pinned
memory, each by the driver's copy for these two kinds of memory, found in this way (`driver.WAYS`).
The bytes that come back are compared with those that left. Prints JSON: {"preloaded": names of
LD_PRELOAD that are in this process, "symbols": {"host gpu0": symbol}, "verified", "error"}.

    python -m polypath.doctor.trial_programs export GPU BYTES SEED
    python -m polypath.doctor.trial_programs import GPU BYTES SEED HANDLE

Two programs that share a GPU's memory. The first fills memory of its GPU with bytes made from the
seed, prints {"handle"} and waits until its stdin is closed. The second opens the handle in the
context of its own GPU, copies the memory there, compares every byte with the seed's, and prints
{"symbol", "verified"}. Either prints {"error"} when the driver refuses.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
from ctypes import byref, c_uint, c_uint64
from pathlib import Path

from .driver import COPIES, FAILURES, WAYS, Driver, copy_function

_LAZY_PEER_ACCESS = 1
_WAY = "reference"  # as UCX
_PIECE = 1 << 20


class Handle(ctypes.Structure):
    """CUipcMemHandle: passed by value."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


def main() -> None:
    role, *arguments = sys.argv[1:]
    if role == "copies":
        copy_around(arguments[0], int(arguments[1]))
        return
    gpu, size, seed, *handle = arguments
    contents = random_bytes(int(seed), int(size))
    try:
        if role == "export":
            export_memory(int(gpu), contents)
        else:
            import_memory(int(gpu), contents, bytes.fromhex(handle[0]))
    except FAILURES as error:
        say({"error": str(error)})


def copy_around(way: str, size: int) -> None:
    assert way in WAYS
    result = {"preloaded": preloaded(), "symbols": {}, "verified": False, "error": ""}
    try:
        result["verified"] = round_trip(Driver(), way, size, result["symbols"])
    except FAILURES as error:
        result["error"] = str(error)
    print(json.dumps(result))


def preloaded() -> list[str]:
    mapped = Path("/proc/self/maps").read_text(errors="replace")
    names = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return [name for name in names if str(Path(name).resolve()) in mapped]


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


def random_bytes(seed: int, size: int) -> bytes:
    """The same for the same seed, in every process."""
    generator = random.Random(seed)
    # The generator makes less than 2^31 bits at once.
    return b"".join(generator.randbytes(min(_PIECE, size - at)) for at in range(0, size, _PIECE))


def say(value: dict[str, object]) -> None:
    print(json.dumps(value), flush=True)


def export_memory(gpu: int, contents: bytes) -> None:
    driver = Driver()
    memory = driver.device_memory(gpu, len(contents))
    pinned = driver.pinned(len(contents))
    pinned.raw = contents
    move(driver, ("host", "gpu"), memory, ctypes.addressof(pinned), len(contents))
    handle = Handle()
    driver("cuIpcGetMemHandle", byref(handle), c_uint64(memory))
    say({"handle": bytes(handle).hex()})
    sys.stdin.read()


def import_memory(gpu: int, contents: bytes, handle: bytes) -> None:
    driver = Driver()
    driver.use(gpu)
    imported = c_uint64()
    driver(
        "cuIpcOpenMemHandle_v2",
        byref(imported),
        Handle.from_buffer_copy(handle),
        c_uint(_LAZY_PEER_ACCESS),
    )
    memory = driver.device_memory(gpu, len(contents))
    move(driver, ("gpu", "gpu"), memory, imported.value, len(contents))
    pinned = driver.pinned(len(contents))
    move(driver, ("gpu", "host"), ctypes.addressof(pinned), memory, len(contents))
    driver("cuIpcCloseMemHandle", imported)
    say({"symbol": COPIES["gpu", "gpu"], "verified": pinned.raw == contents})


def move(driver: Driver, kinds: tuple[str, str], dst: int, src: int, size: int) -> None:
    stream = driver.stream()
    copy_function(driver, _WAY, COPIES[kinds])(dst, src, size, stream)
    driver.synchronise(stream)


if __name__ == "__main__":
    main()
