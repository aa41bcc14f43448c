"""A program that knows nothing of polypath: it copies 32 MiB from GPU 0 to GPU 1 by the driver.

It stands for any program that calls cudaMemcpyAsync, such as PyTorch. It uses the driver by ctypes
so that it needs nothing else.
"""

import ctypes
import os
from pathlib import Path

from driver import Driver

BYTES = 32 << 20


def main() -> None:
    driver = Driver("libcuda.so.1")
    dst = driver.allocate(1, BYTES)
    src = driver.allocate(0, BYTES)
    sent = os.urandom(BYTES)
    driver.write(src, sent)
    for _ in range(2):
        arguments = (ctypes.c_uint64(dst), ctypes.c_uint64(src), ctypes.c_size_t(BYTES), None)
        driver("cuMemcpyAsync", *arguments)
    driver("cuCtxSynchronize")
    assert driver.read(dst, BYTES) == sent, "the bytes differ"
    shim = "libpolypath_preload.so" in Path("/proc/self/maps").read_text()
    loaded = "is loaded" if shim else "is not loaded"
    print(f"2 copies of {BYTES} bytes, all bytes equal, polypath {loaded}")


if __name__ == "__main__":
    main()
