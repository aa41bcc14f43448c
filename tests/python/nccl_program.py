"""A program that knows only NCCL, by ctypes, as vLLM's binding does: two ranks in threads sum 1000
floats. Its argument: the library. In the simulated node's functional mode, or on two GPUs."""

import ctypes
import struct
import sys
import threading

COUNT, FLOAT32, SUM = 1000, 7, 0
BYTES = 4 * COUNT


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


cuda = ctypes.CDLL("libcuda.so.1")
nccl = ctypes.CDLL(sys.argv[1])
address = ctypes.c_void_p
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(address), ctypes.c_int, UniqueId, ctypes.c_int]
nccl.ncclAllReduce.argtypes = [
    *(address, address, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, address, address)
]
nccl.ncclCommDestroy.argtypes = [address]
sums: dict[int, tuple[float, ...]] = {}


def rank(number: int, unique: UniqueId) -> None:
    context, comm, memory = address(), address(), ctypes.c_uint64()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number)
    cuda.cuCtxSetCurrent(context)
    assert nccl.ncclCommInitRank(ctypes.byref(comm), 2, unique, number) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), BYTES) == 0
    cuda.cuMemcpyHtoD_v2(memory, struct.pack(f"{COUNT}f", *range(number, number + COUNT)), BYTES)
    cuda.cuStreamSynchronize(None)
    where = address(memory.value)
    assert nccl.ncclAllReduce(where, where, COUNT, FLOAT32, SUM, comm, None) == 0
    cuda.cuStreamSynchronize(None)
    result = ctypes.create_string_buffer(BYTES)
    cuda.cuMemcpyDtoH_v2(result, memory, BYTES)
    sums[number] = struct.unpack(f"{COUNT}f", result.raw)
    assert nccl.ncclCommDestroy(comm) == 0


cuda.cuInit(0)
unique = UniqueId()
assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
threads = [threading.Thread(target=rank, args=(number, unique)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
expected = tuple(float(2 * value + 1) for value in range(COUNT))
print("right" if sums == {0: expected, 1: expected} else "WRONG")
