"""Two programs that share a GPU's memory as UCX does, knowing nothing of polypath.

    python -m polypath.doctor.trial_import export GPU BYTES SEED
    python -m polypath.doctor.trial_import import GPU BYTES SEED HANDLE

The first fills memory of its GPU with bytes made from the seed, prints {"handle"} and waits until
its stdin is closed. The second opens the handle in the context of its own GPU, copies the memory
there, compares every byte with the seed's, and prints {"symbol", "verified"}. Either prints
{"error"} when the driver refuses.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from ctypes import byref, c_uint, c_uint64

from .driver import COPIES, FAILURES, Driver, copy_function

_LAZY_PEER_ACCESS = 1
_WAY = "reference"  # as UCX
_PIECE = 1 << 20


class Handle(ctypes.Structure):
    """CUipcMemHandle: passed by value."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


def main() -> None:
    role, gpu, size, seed, *handle = sys.argv[1:]
    contents = random_bytes(int(seed), int(size))
    try:
        if role == "export":
            export_memory(int(gpu), contents)
        else:
            import_memory(int(gpu), contents, bytes.fromhex(handle[0]))
    except FAILURES as error:
        say({"error": str(error)})


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
