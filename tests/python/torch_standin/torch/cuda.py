"""Streams, events and memory of the simulated driver, by thread: `use` begins one."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Iterator
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

_here = threading.local()
_library = ""


def use(library: str, gpu: int) -> None:
    """This thread's GPU from now on."""
    global _library
    _library = library
    _here.driver, _here.gpu, _here.capturing = ctypes.CDLL(library), gpu, False
    context = c_void_p()
    _call("cuDevicePrimaryCtxRetain", byref(context), c_int(gpu))
    _call("cuCtxSetCurrent", context)
    _here.stream = Stream()


def _call(name: str, *arguments: Any) -> None:
    result = getattr(_here.driver, name)(*arguments)
    assert result == 0, f"{name}: {result}"


_numbers = itertools.count()
_streams: dict[int, Stream] = {}  # by their numbers


class Stream:
    device_type = 1

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        handle = c_void_p()
        _call("cuStreamCreate", byref(handle), c_uint(1))
        self.cuda_stream: int = handle.value or 0
        self.priority = priority
        self.device_index = current_device()
        self.stream_id = next(_numbers)
        _streams[self.stream_id] = self


class Event:
    def __init__(self) -> None:
        self._event = c_void_p()
        _call("cuEventCreate", byref(self._event), c_uint(2))

    def record(self, stream: Stream) -> None:
        _call("cuEventRecord", self._event, c_void_p(stream.cuda_stream))

    def wait(self, stream: Stream) -> None:
        _call("cuStreamWaitEvent", c_void_p(stream.cuda_stream), self._event, c_uint(0))

    def query(self) -> bool:
        return bool(_here.driver.cuEventQuery(self._event) == 0)

    def synchronize(self) -> None:
        _call("cuEventSynchronize", self._event)


def set_device(device: Any) -> None:
    use(_library, device.index)


def current_device() -> int:
    return int(_here.gpu)


def current_stream(device: Any = None) -> Stream:
    stream: Stream = _here.stream
    return stream


@contextlib.contextmanager
def stream(other: Stream) -> Iterator[None]:
    before, _here.stream = _here.stream, other
    try:
        yield
    finally:
        _here.stream = before


def make_current(stream_id: int, device_index: int) -> None:
    assert device_index == current_device()
    _here.stream = _streams[stream_id]


def synchronize(device: Any = None) -> None:
    _call("cuCtxSynchronize")


def is_current_stream_capturing() -> bool:
    return bool(_here.capturing)


def pretend_capture(capturing: bool) -> None:
    _here.capturing = capturing


def allocate(size: int) -> int:
    address = c_uint64()
    _call("cuMemAlloc_v2", byref(address), c_size_t(max(1, size)))
    return address.value


def copy(dst: int, src: int, size: int) -> None:
    """On the current stream."""
    handle = c_void_p(current_stream().cuda_stream)
    _call("cuMemcpyDtoDAsync_v2", c_uint64(dst), c_uint64(src), c_size_t(size), handle)


def write(address: int, values: np.ndarray) -> None:
    """Ends before it returns."""
    values = np.ascontiguousarray(values)
    _call("cuMemcpy", c_uint64(address), c_uint64(values.ctypes.data), c_size_t(values.nbytes))
    _call("cuStreamSynchronize", None)  # what is not pinned may land after the call


def read(values: np.ndarray, address: int) -> None:
    """After the current stream alone: what no stream waits for may be missing."""
    _call("cuStreamSynchronize", c_void_p(current_stream().cuda_stream))
    _call("cuMemcpy", c_uint64(values.ctypes.data), c_uint64(address), c_size_t(values.nbytes))
