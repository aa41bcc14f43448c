"""Memory, streams and events of one GPU, by the functions of the driver that a `Context` uses."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from . import _api
from .context import Context
from .errors import DriverError, NotSupported

_NON_BLOCKING = 1
_DISABLE_TIMING = 2


class Gpu:
    """One GPU of the context's node, with its primary CUDA context. Any thread may use it."""

    def __init__(self, context: Context, index: int) -> None:
        self.context = context
        self.index = index
        primary = c_void_p()
        self._functions: dict[str, Any] = {}
        self("cuInit", c_uint(0))
        self("cuDevicePrimaryCtxRetain", byref(primary), c_int(index))
        self._primary = primary

    def __call__(self, name: str, *arguments: object) -> None:
        """Calls the driver's function. Raises `DriverError`."""
        function = self._functions.get(name)
        if function is None:
            address = _api.library().polypath_driver_function(self.context._open(), name.encode())
            if not address:
                raise NotSupported(f"the driver has no {name}")
            function = self._functions[name] = ctypes.CFUNCTYPE(c_int)(address)
            function.argtypes = None
        result = function(*arguments)
        if result != 0:
            raise DriverError(f"{name} failed: CUDA error {result}")

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Its context is the current one meanwhile."""
        self("cuCtxPushCurrent_v2", self._primary)
        try:
            yield
        finally:
            self("cuCtxPopCurrent_v2", byref(c_void_p()))

    def allocate(self, bytes: int) -> int:
        address = c_uint64()
        with self.current():
            self("cuMemAlloc_v2", byref(address), c_size_t(max(1, bytes)))
        return address.value

    def free(self, address: int) -> None:
        with self.current():
            self("cuMemFree_v2", c_uint64(address))

    @contextlib.contextmanager
    def streams(self, count: int) -> Iterator[list[int]]:
        """Streams that do not wait for the default stream; at the end they are waited for, and
        destroyed."""
        handles: list[int] = []
        try:
            with self.current():
                for _ in range(count):
                    stream = c_void_p()
                    self("cuStreamCreate", byref(stream), c_uint(_NON_BLOCKING))
                    handles.append(stream.value or 0)
            yield handles
        finally:
            with self.current():
                for handle in handles:
                    self("cuStreamSynchronize", c_void_p(handle))
                    self("cuStreamDestroy_v2", c_void_p(handle))

    def order(self, before: int, after: int) -> None:
        """Lets stream ``after`` wait for all that ``before`` holds now."""
        event = c_void_p()
        with self.current():
            self("cuEventCreate", byref(event), c_uint(_DISABLE_TIMING))
            try:
                self("cuEventRecord", event, c_void_p(before))
                self("cuStreamWaitEvent", c_void_p(after), event, c_uint(0))
            finally:
                self("cuEventDestroy_v2", event)

    def synchronize(self, stream: int) -> None:
        with self.current():
            self("cuStreamSynchronize", c_void_p(stream))
