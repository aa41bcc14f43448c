"""Memory, streams and contents on the driver that a `polypath.Context` uses."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

import numpy as np
import pytest
from polypath._library import find_library

PORTABLE = 1


class Driver:
    """The calls of the CUDA driver that tests need; any error is an exception."""

    def __init__(self, library: str) -> None:
        self._cuda = ctypes.CDLL(library)

    def __call__(self, function: str, *arguments: object) -> None:
        result = getattr(self._cuda, function)(*arguments)
        assert result == 0, f"{function}: CUDA error {result}"

    def use(self, gpu: int) -> None:
        context = c_void_p()
        self("cuDevicePrimaryCtxRetain", byref(context), c_int(gpu))
        self("cuCtxSetCurrent", context)

    def stream(self) -> int:
        """A stream of the current context that does not wait for the default stream."""
        stream = c_void_p()
        self("cuStreamCreate", byref(stream), c_uint(1))
        assert stream.value is not None
        return stream.value

    def synchronise(self, stream: int) -> None:
        self("cuStreamSynchronize", c_void_p(stream))

    def pinned(self, size: int) -> np.ndarray:
        address = c_void_p()
        self("cuMemHostAlloc", byref(address), c_size_t(size), c_uint(PORTABLE))
        memory = (ctypes.c_uint8 * size).from_address(address.value or 0)
        return np.frombuffer(memory, dtype=np.uint8)


class DeviceArray:
    """Memory on a GPU, as CuPy and Numba present theirs."""

    def __init__(self, driver: Driver, gpu: int, contents: np.ndarray) -> None:
        self._driver = driver
        self._contents = contents
        address = c_uint64()
        driver.use(gpu)
        driver("cuMemAlloc_v2", byref(address), c_size_t(contents.nbytes))
        self.address = address.value
        self._copy(self.address, contents.ctypes.data)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": self._contents.shape,
            "typestr": self._contents.dtype.str,
            "data": (self.address, False),
            "version": 3,
        }

    def numpy(self) -> np.ndarray:
        """A copy of the contents."""
        result = np.empty_like(self._contents)
        self._copy(result.ctypes.data, self.address)
        return result

    def _copy(self, dst: int, src: int) -> None:
        self._driver("cuMemcpy", c_uint64(dst), c_uint64(src), c_size_t(self._contents.nbytes))
        self._driver("cuStreamSynchronize", None)  # what is not pinned may land after the call


def machine_settings(folder: Path, node: Path) -> dict[str, str]:
    """The environment in which this simulated node is the machine itself: its driver is found, and
    no node is named. Profiles lie in the folder."""
    library = folder / "libthis_machine.so"
    if not library.exists():
        compiler = os.environ.get("CC") or shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler")
        simulated = find_library().with_name("libpolypath_sim.so")
        source = Path(__file__).with_name("this_machine.c")
        subprocess.run(
            [
                *(compiler, "-shared", "-fPIC", "-o", library, source),
                *("-Wl,--no-as-needed", simulated, f"-Wl,-rpath,{simulated.parent}"),
            ],
            check=True,
        )
    return {
        "POLYPATH_DRIVER_LIBRARY": str(library),
        "TEST_NODE": str(node),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
