"""The few calls of the CUDA driver that the tutorials need, by ctypes."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p


class Driver:
    """A CUDA driver. `library`: its path, `libcuda.so.1` for the one of the machine."""

    def __init__(self, library: str) -> None:
        self._cuda = ctypes.CDLL(library)
        self._contexts: dict[int, c_void_p] = {}
        self("cuInit", 0)

    def __call__(self, function: str, *arguments: object) -> None:
        result = getattr(self._cuda, function)(*arguments)
        if result != 0:
            raise RuntimeError(f"{function}: CUDA error {result}")

    def use(self, gpu: int) -> None:
        """Makes the primary context of a GPU current."""
        if gpu not in self._contexts:
            self._contexts[gpu] = c_void_p()
            self("cuDevicePrimaryCtxRetain", byref(self._contexts[gpu]), c_int(gpu))
        self("cuCtxSetCurrent", self._contexts[gpu])

    def allocate(self, gpu: int, size: int) -> int:
        """The address of `size` bytes of a GPU, whose context is current then."""
        self.use(gpu)
        address = c_uint64()
        self("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address.value

    def write(self, address: int, contents: bytes) -> None:
        """Copies to a GPU; returns when the bytes are there."""
        self("cuMemcpyHtoD_v2", c_uint64(address), contents, c_size_t(len(contents)))
        self("cuCtxSynchronize")

    def read(self, address: int, size: int) -> bytes:
        """Copies from a GPU."""
        contents = ctypes.create_string_buffer(size)
        self("cuMemcpyDtoH_v2", contents, c_uint64(address), c_size_t(size))
        return contents.raw
