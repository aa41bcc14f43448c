"""The calls of the CUDA driver that the trial programs make, and the ways in which programs find
them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

from .._library import find_library
from ..errors import LibraryNotFound

LIBRARY = "libcuda.so.1"

_PORTABLE = 1
_NON_BLOCKING = 1
_PEER_ACCESS_ALREADY_ENABLED = 704
_CUDA_VERSION = 12000  # as libcudart 12 asks for

#: The copies that UCX and libcudart issue, by kinds of source and destination, with the version of
#: CUDA that their symbols are of.
COPIES = {
    ("host", "gpu"): "cuMemcpyHtoDAsync_v2",
    ("gpu", "gpu"): "cuMemcpyDtoDAsync_v2",
    ("gpu", "host"): "cuMemcpyDtoHAsync_v2",
}


class DriverFailed(Exception):
    """A call failed; the message names it and the error."""


#: What calls here may raise: also when a library, or a symbol in it, is missing.
FAILURES = (DriverFailed, LibraryNotFound, OSError, AttributeError, ValueError)


class Driver:
    """The driver library, with one context a GPU, each its primary one."""

    def __init__(self) -> None:
        # Visible to all, as in a program that is linked with it.
        self.library = ctypes.CDLL(LIBRARY, ctypes.RTLD_GLOBAL)
        self._contexts: dict[int, c_void_p] = {}
        self("cuInit", c_uint(0))

    def __call__(self, function: str, *arguments: object) -> None:
        self.check(function, getattr(self.library, function)(*arguments))

    def check(self, function: str, result: int) -> None:
        """Raises `DriverFailed` unless the result of the call is success."""
        if result != 0:
            name = c_char_p()
            self.library.cuGetErrorName(c_int(result), byref(name))
            raise DriverFailed(f"{function}: {(name.value or b'CUDA error').decode()} ({result})")

    def gpu_count(self) -> int:
        count = c_int()
        self("cuDeviceGetCount", byref(count))
        return count.value

    def can_access(self, gpu: int, peer: int) -> bool:
        can = c_int()
        self("cuDeviceCanAccessPeer", byref(can), c_int(gpu), c_int(peer))
        return bool(can.value)

    def use(self, gpu: int) -> None:
        """Makes the GPU's context current."""
        if gpu not in self._contexts:
            context = c_void_p()
            self("cuDevicePrimaryCtxRetain", byref(context), c_int(gpu))
            self._contexts[gpu] = context
        self("cuCtxSetCurrent", self._contexts[gpu])

    def enable_access(self, gpu: int, peer: int) -> None:
        """Lets the GPU reach the peer's memory, where it can. Leaves the GPU's context current."""
        self.use(peer)
        self.use(gpu)
        if self.can_access(gpu, peer):
            result = self.library.cuCtxEnablePeerAccess(self._contexts[peer], c_uint(0))
            if result != _PEER_ACCESS_ALREADY_ENABLED:
                self.check("cuCtxEnablePeerAccess", result)

    def stream(self) -> c_void_p:
        stream = c_void_p()
        self("cuStreamCreate", byref(stream), c_uint(_NON_BLOCKING))
        return stream

    def synchronise(self, stream: c_void_p) -> None:
        self("cuStreamSynchronize", stream)

    def device_memory(self, gpu: int, size: int) -> int:
        """Memory of the GPU, whose context is left current."""
        address = c_uint64()
        self.use(gpu)
        self("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address.value

    def pinned(self, size: int) -> ctypes.Array[ctypes.c_char]:
        """Pinned host memory, for all contexts."""
        address = c_void_p()
        self("cuMemHostAlloc", byref(address), c_size_t(size), c_uint(_PORTABLE))
        return (ctypes.c_char * size).from_address(address.value or 0)


Copy = Callable[[int, int, int, c_void_p], None]


def copy_function(driver: Driver, way: str, symbol: str) -> Copy:
    """The copy of this symbol as ``copy(dst, src, bytes, stream)``, found in one of `WAYS`. Raises
    `DriverFailed` when it is not found."""
    address = WAYS[way](driver, symbol)
    prototype = ctypes.CFUNCTYPE(c_int, c_uint64, c_uint64, c_size_t, c_void_p)
    function = prototype(address)

    def copy(dst: int, src: int, size: int, stream: c_void_p) -> None:
        driver.check(symbol, function(dst, src, size, stream))

    return copy


def _reference(driver: Driver, symbol: str) -> int:
    """Where the dynamic linker binds an ordinary reference to the symbol."""
    references = ctypes.CDLL(str(find_library().with_name("libpolypath_references.so")))
    address = c_void_p.in_dll(references, f"polypath_reference_{symbol}").value
    assert address is not None
    return address


def _dlsym(driver: Driver, symbol: str) -> int:
    address = ctypes.cast(getattr(driver.library, symbol), c_void_p).value
    assert address is not None
    return address


def _get_proc_address(function: str) -> Callable[[Driver, str], int]:
    def find(driver: Driver, symbol: str) -> int:
        address = c_void_p()
        status = c_int()
        more = [byref(status)] if function.endswith("_v2") else []
        driver(
            function,
            symbol.removesuffix("_v2").encode(),
            byref(address),
            c_int(_CUDA_VERSION),
            c_uint64(0),
            *more,
        )
        if address.value is None or status.value != 0:
            raise DriverFailed(f"{function} does not find {symbol}")
        return address.value

    return find


#: How programs find the driver's functions: UCX, then libcudart of CUDA 10, 11 and 12.
WAYS: dict[str, Callable[[Driver, str], int]] = {
    "reference": _reference,
    "dlsym": _dlsym,
    "cuGetProcAddress": _get_proc_address("cuGetProcAddress"),
    "cuGetProcAddress_v2": _get_proc_address("cuGetProcAddress_v2"),
}


def ways_in(library: str) -> list[str]:
    """The ways that this driver library offers: those of CUDA 11.3 and 12 came with these."""
    cuda = ctypes.CDLL(library)
    return [way for way in WAYS if not way.startswith("cu") or hasattr(cuda, way)]
