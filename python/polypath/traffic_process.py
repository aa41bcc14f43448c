"""A process that copies without pause over links of this machine.

`polypath bench` starts it as ``python -m polypath.traffic_process`` for concurrent traffic.

It calls the CUDA driver itself and nothing of libpolypath. Lines on its standard input switch the
traffic: "on", "off". It answers each with a line of JSON once blocks of every flow have been
copied, or none is queued any more: ``{"state": "on"}``, ``{"state": "off"}``, ``{"error": ...}``.
It ends when its standard input does, and when its parent dies.

On a simulated node in functional mode copies load no link by themselves: there it announces the
traffic to the node (``polypath_sim_traffic_start``).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import json
import os
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NamedTuple

from .children import end_with_parent

_PORTABLE = 1
_NON_BLOCKING = 1
_DISABLE_TIMING = 2
_PEER_ACCESS_ALREADY_ENABLED = 704
_POLL_S = 0.0005


class Copies(NamedTuple):
    """Blocks from one memory to another, "gpu0" or "host0"."""

    src: str
    dst: str


class Driver:
    """Calls of the CUDA driver; any error is an `OSError`."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)
        self("cuInit", 0)

    def __call__(self, function: str, *arguments: object, allowed: int = 0) -> None:
        result = getattr(self.library, function)(*arguments)
        if result not in (0, allowed):
            raise OSError(f"{function}: CUDA error {result}")


class Announced:
    """Traffic that the simulated node is told of."""

    def __init__(self, driver: Driver, copies: Copies, options: argparse.Namespace) -> None:
        self._library = driver.library
        start = self._library.polypath_sim_traffic_start
        start.argtypes = [
            *[ctypes.c_char_p, ctypes.c_char_p, c_uint64, c_int, ctypes.c_double, ctypes.c_double],
        ]
        self._library.polypath_sim_traffic_blocks.restype = c_uint64
        period = options.period_us
        self._arguments = (
            *(copies.src.encode(), copies.dst.encode(), options.block, options.queue),
            *(float(period), float(period)),
        )
        self._id = 0

    def start(self) -> None:
        self._id = self._library.polypath_sim_traffic_start(*self._arguments)
        if self._id == 0:
            raise OSError("the simulated node refuses the traffic")

    def stop(self) -> None:
        self._library.polypath_sim_traffic_stop(self._id)

    def flows(self) -> bool:
        """Whether blocks have been copied since the start."""
        return bool(self._library.polypath_sim_traffic_blocks(self._id) > 0)

    def has_ended(self) -> bool:
        return bool(self._library.polypath_sim_traffic_queued(self._id) == 0)


class Flow:
    """Copies of blocks on a stream of their own, by a thread."""

    def __init__(self, driver: Driver, copies: Copies, options: argparse.Namespace) -> None:
        self._driver = driver
        self._bytes = options.block
        self._queue = options.queue
        self._period_s = options.period_us / 1e6
        self._on = threading.Event()
        self._idle = threading.Event()
        self._blocks = 0
        self.error = ""
        names = [name for name in copies if name.startswith("gpu")]
        self._context = self._retain(names[0])
        driver("cuCtxSetCurrent", self._context)
        self._src = self._memory(copies.src)
        self._dst = self._memory(copies.dst)
        driver("cuCtxSetCurrent", self._context)
        for name in names[1:]:
            peer = self._retain(name)
            driver("cuCtxEnablePeerAccess", peer, 0, allowed=_PEER_ACCESS_ALREADY_ENABLED)
        self._stream = c_void_p()
        driver("cuStreamCreate", byref(self._stream), c_uint(_NON_BLOCKING))
        self._events = [c_void_p() for _ in range(self._queue)]
        for event in self._events:
            driver("cuEventCreate", byref(event), c_uint(_DISABLE_TIMING))
        threading.Thread(target=self._run, daemon=True).start()

    def _retain(self, name: str) -> c_void_p:
        context = c_void_p()
        gpu = c_int(int(name.removeprefix("gpu")))
        self._driver("cuDevicePrimaryCtxRetain", byref(context), gpu)
        return context

    def _memory(self, name: str) -> c_uint64:
        address = c_uint64()
        if name.startswith("gpu"):
            self._driver("cuCtxSetCurrent", self._retain(name))
            self._driver("cuMemAlloc_v2", byref(address), c_size_t(self._bytes))
        else:
            self._driver("cuMemHostAlloc", byref(address), c_size_t(self._bytes), c_uint(_PORTABLE))
        return address

    def start(self) -> None:
        self._blocks = 0
        self._idle.clear()
        self._on.set()

    def stop(self) -> None:
        self._on.clear()

    def flows(self) -> bool:
        return self._blocks > 0

    def has_ended(self) -> bool:
        return self._idle.is_set()

    def _run(self) -> None:
        try:
            self._driver("cuCtxSetCurrent", self._context)
            while True:
                if not self._on.wait(_POLL_S):
                    self._idle.set()
                    continue
                self._copy_while_on()
        except OSError as error:
            self.error = str(error)

    def _copy_while_on(self) -> None:
        begin = time.monotonic()
        free = collections.deque(self._events)
        queued: collections.deque[c_void_p] = collections.deque()
        while self._on.is_set():
            into = time.monotonic() - begin
            is_off = self._period_s > 0 and into % (2 * self._period_s) >= self._period_s
            if is_off and not queued:
                time.sleep(_POLL_S)
                continue
            if free and not is_off:
                self._driver(
                    *("cuMemcpyAsync", self._dst, self._src, c_size_t(self._bytes), self._stream)
                )
                self._driver("cuEventRecord", free[0], self._stream)
                queued.append(free.popleft())
                continue
            self._driver("cuEventSynchronize", queued[0])
            free.append(queued.popleft())
            self._blocks += 1
        self._driver("cuStreamSynchronize", self._stream)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m polypath.traffic_process")
    parser.add_argument("copies", nargs="+", help="SRC-DST, gpu0-host0")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--library", default="libcuda.so.1")
    parser.add_argument("--block", type=int, default=64 << 20)
    parser.add_argument("--queue", type=int, default=1)
    parser.add_argument("--period-us", type=int, default=0)
    return parser.parse_args(arguments)


def _flows(options: argparse.Namespace) -> list[Flow | Announced]:
    driver = Driver(options.library)
    kinds: list[Any] = [Flow]
    with contextlib.suppress(AttributeError):
        # Under polypath the copies themselves are what the other process sees.
        driver.library.polypath_sim_traffic_start  # noqa: B018
        is_under_polypath = "libpolypath_preload" in os.environ.get("LD_PRELOAD", "")
        kinds = [Announced, Flow] if is_under_polypath else [Announced]
    pairs = [Copies(*text.split("-")) for text in options.copies]
    return [kind(driver, pair, options) for kind in kinds for pair in pairs]


def _wait(flows: list[Flow | Announced], state: str) -> None:
    while True:
        for flow in flows:
            if isinstance(flow, Flow) and flow.error:
                raise OSError(flow.error)
        if all(flow.flows() if state == "on" else flow.has_ended() for flow in flows):
            return
        time.sleep(_POLL_S)


def _answer(**fields: str) -> None:
    print(json.dumps(fields), flush=True)


def _serve(options: argparse.Namespace, commands: Any) -> None:
    try:
        flows = _flows(options)
        _answer(state="ready")
        while (command := commands.get()) != "":
            for flow in flows:
                flow.start() if command == "on" else flow.stop()
            _wait(flows, command)
            _answer(state=command)
    except (OSError, AttributeError, ValueError) as error:
        _answer(error=str(error))


def main(arguments: list[str] | None = None) -> None:
    """Serves until the standard input ends."""
    import queue

    options = _options(arguments)
    end_with_parent(options.parent)
    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_serve, args=(options, commands), daemon=True).start()
    # This thread must see the end of the input also while a call of the driver waits.
    for line in sys.stdin:
        commands.put(line.strip())
    os._exit(0)


if __name__ == "__main__":
    main()
