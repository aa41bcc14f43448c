"""One transfer from GPU 0 to GPU 1 over every path, from Python.

    python copy_async.py                          on this machine's GPUs
    POLYPATH_NODE=narval python copy_async.py     on a simulated node

With PyTorch the transfer is one line, context.copy_async(on_gpu1, on_gpu0) of two tensors; CuPy and
other objects with DLPack or __cuda_array_interface__ are the same. To need none of them, this
example takes its memory from the CUDA driver.
"""

import ctypes
import os

import polypath

BYTES = 64 << 20


class Driver:
    """The few calls of the CUDA driver that the example needs. `library`: the one in use."""

    def __init__(self, library: str) -> None:
        self._cuda = ctypes.CDLL(library)
        self._contexts: dict[int, ctypes.c_void_p] = {}

    def __call__(self, function: str, *arguments: object) -> None:
        result = getattr(self._cuda, function)(*arguments)
        if result != 0:
            raise RuntimeError(f"{function}: CUDA error {result}")

    def use(self, gpu: int) -> None:
        if gpu not in self._contexts:
            self._contexts[gpu] = ctypes.c_void_p()
            self("cuDevicePrimaryCtxRetain", ctypes.byref(self._contexts[gpu]), gpu)
        self("cuCtxSetCurrent", self._contexts[gpu])

    def allocate(self, gpu: int, size: int) -> int:
        self.use(gpu)
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def copy(self, dst: int, src: int, size: int) -> None:
        self("cuMemcpy", ctypes.c_uint64(dst), ctypes.c_uint64(src), ctypes.c_size_t(size))


def main() -> None:
    with polypath.Context() as context:
        for route in context.plan("gpu0", "gpu1", BYTES)["transfers"][0]["routes"]:
            print(f"{route['route']:12} {100 * route['share']:5.1f} % in {route['chunks']} chunks")

        cuda = Driver(context.devices()["driver"]["library"])
        dst = cuda.allocate(1, BYTES)
        src = cuda.allocate(0, BYTES)  # GPU 0 stays current
        sent = ctypes.create_string_buffer(os.urandom(BYTES), BYTES)
        cuda.copy(src, ctypes.addressof(sent), BYTES)

        # Optional: else the first transfers go without staged routes until these are ready.
        context.prepare("gpu0", "gpu1", BYTES)
        context.copy_async(dst, src, BYTES)
        cuda("cuCtxSynchronize")

        received = ctypes.create_string_buffer(BYTES)
        cuda.copy(ctypes.addressof(received), dst, BYTES)
        assert received.raw == sent.raw
        print(f"{BYTES} bytes copied and compared")


if __name__ == "__main__":
    main()
