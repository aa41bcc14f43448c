"""A program that knows only NCCL, by ctypes, as vLLM's binding does: two ranks in threads sum 1000
floats. Its arguments: the library, and the number of ranks where it is another one. In the
simulated node's functional mode, or on GPUs. More ranks print the order of their sums: rank, or
tree."""

import ctypes
import random
import struct
import sys
import threading

COUNT, FLOAT32, SUM = 1000, 7, 0
RANKS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
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


def f32(value: float) -> float:
    return ctypes.c_float(value).value


def contents(number: int) -> list[float]:
    if RANKS == 2:
        return [float(value) for value in range(number, number + COUNT)]
    random_of = random.Random(number)
    return [f32(random_of.uniform(-2, 2) ** 9) for _ in range(COUNT)]


def tree(values: tuple[float, ...]) -> float:
    if len(values) == 1:
        return values[0]
    half = 1 << (len(values) - 1).bit_length() - 1
    return f32(tree(values[:half]) + tree(values[half:]))


def in_turn(values: tuple[float, ...]) -> float:
    total = values[0]
    for value in values[1:]:
        total = f32(total + value)
    return total


def rank(number: int, unique: UniqueId) -> None:
    context, comm, memory = address(), address(), ctypes.c_uint64()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number)
    cuda.cuCtxSetCurrent(context)
    assert nccl.ncclCommInitRank(ctypes.byref(comm), RANKS, unique, number) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), BYTES) == 0
    cuda.cuMemcpyHtoD_v2(memory, struct.pack(f"{COUNT}f", *contents(number)), BYTES)
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
threads = [threading.Thread(target=rank, args=(number, unique)) for number in range(RANKS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
every = list(zip(*map(contents, range(RANKS)), strict=True))
orders = {
    name: dict.fromkeys(range(RANKS), tuple(map(order, every)))
    for name, order in (("right" if RANKS == 2 else "rank", in_turn), ("tree", tree))
}
print(next((name for name, expected in orders.items() if sums == expected), "WRONG"))
