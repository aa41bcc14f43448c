"""Communicators in Python, on the simulated node."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from polypath.rank_launcher import reserved_port

#: What the programs here begin with: GPU memory and streams by the driver's own functions.
_BEGIN = """
import ctypes
import random

import polypath
from polypath.comm import Communicator, on_all, store_exchange

context = polypath.Context(node="narval")
driver = ctypes.CDLL(context.devices()["driver"]["library"])

def check(result):
    assert result == 0, result

class Gpu:
    def __init__(self, number):
        primary = ctypes.c_void_p()
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(primary), number))
        check(driver.cuCtxSetCurrent(primary))
        self.stream = ctypes.c_void_p()
        check(driver.cuStreamCreate(ctypes.byref(self.stream), 1))

    def read(self, address, count):
        found = ctypes.create_string_buffer(b"\\xee" * count, count)
        check(driver.cuMemcpy(ctypes.c_uint64(ctypes.addressof(found)), ctypes.c_uint64(address),
                              ctypes.c_size_t(count)))
        return found.raw

    def synchronize(self):
        check(driver.cuStreamSynchronize(self.stream))

def message(rank, count=70001):
    return random.Random(rank).randbytes(count)

def send_around(comm):
    gpu = Gpu(comm.gpu())
    inbox, words = comm.alloc("128K"), comm.alloc(64)
    assert inbox.bytes == 128 * 1024 and gpu.read(inbox.address(), 100) == bytes(100)
    assert inbox.__cuda_array_interface__["data"][0] == inbox.address(comm.rank)
    out = ctypes.create_string_buffer(message(comm.rank), 70001)
    comm.exchange(b"")
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    comm.put(after, inbox, 11, out, signal=(words, 8, 1), stream=gpu.stream)
    comm.wait_signal(words, 8, 1, gpu.stream)
    comm.signal(before, words, 16, 7, gpu.stream)
    comm.wait_signal(words, 16, 7, gpu.stream)
    comm.barrier(gpu.stream)
    gpu.synchronize()
    comm.check()
    assert gpu.read(inbox.address() + 11, 70001) == message(before)
    comm.free(words)
    comm.free(inbox)
    return comm.rank
"""

_THREADS = (
    _BEGIN
    + """
ranks = Communicator.all(context, [3, 1, 0, 2])
assert [one.gpu() for one in ranks] == [3, 1, 0, 2] and ranks[0].gpu(1) == 1
assert on_all(ranks, send_around) == [0, 1, 2, 3]
all_ranks = [bytes([rank]) for rank in range(4)]
assert on_all(ranks, lambda comm: comm.exchange(bytes([comm.rank]))) == [all_ranks] * 4

def part(comm):
    with comm.split(comm.rank % 2, -comm.rank) as half:
        return half.size, half.rank, send_around(half)
assert on_all(ranks, part) == [(2, 1, 1), (2, 1, 1), (2, 0, 0), (2, 0, 0)]
assert on_all(ranks, lambda comm: comm.split(-1)) == [None] * 4

def scratch(comm):
    comm.prepare()
    return comm.report()["scratch_bytes"]

def keeps_options(options):
    limited = Communicator.all(context, [0, 1], **options)
    (whole, _) = on_all(limited, scratch)
    parts = on_all(limited, lambda comm: comm.split(0))
    (part, _) = on_all(parts, scratch)
    for one in [*parts, *limited]:
        one.close()
    return whole, part
few, more = keeps_options({"max_blocks": 8}), keeps_options({"max_blocks": 16})
assert few[0] == few[1] < more[0] == more[1], (few, more)
# The part has a share of what is left beside the multiprocessors spared, and beside the whole.
whole, part = keeps_options({"reserved_sms": 54})
assert part < whole, (whole, part)

def fails(comm):
    if comm.rank == 2:
        raise KeyError("here")
    comm.exchange(b"x")
try:
    on_all(ranks, fails)
except (KeyError, polypath.CommunicatorError) as error:
    print("raised", type(error).__name__)
try:
    ranks[0].check()
except polypath.CommunicatorError as error:
    print(error)
for one in ranks:
    one.close()
try:
    ranks[0].check()
except polypath.InvalidArgument as error:
    print(error)

with Communicator(context, 0, 1, 0, lambda mine: [mine]) as alone:
    kept, freed = alone.alloc(64), alone.alloc(64)
    alone.free(freed)
for memory in kept, freed:
    try:
        memory.address()
    except polypath.InvalidArgument as error:
        print("memory:", error)
print("done")
"""
)


def test_threads(polypath_program):
    ran = polypath_program(_THREADS)
    assert ran.returncode == 0, ran.stderr
    assert "rank 2 raised KeyError: 'here'" in ran.stdout
    assert "\nthe communicator is closed" in ran.stdout
    assert "memory: the communicator is closed\nmemory: the memory was freed\n" in ran.stdout
    assert ran.stdout.endswith("done\n")


# Rank 1 asks for all at creation, in the second communicator.
_SCRATCH = (
    _BEGIN
    + """
def two_ranks(settings):
    contexts = [polypath.Context(node="narval", scratch=each) for each in settings]
    store = {}
    def exchange(rank):
        def gather(mine):
            store.setdefault(rank, []).append(mine)
            turn = len(store[rank]) - 1
            while len(store) < 2 or any(len(each) <= turn for each in store.values()):
                time.sleep(0.001)
            return [store[0][turn], store[1][turn]]
        return gather
    ranks = [None, None]
    def create(rank):
        ranks[rank] = Communicator(contexts[rank], rank, 2, rank, exchange(rank))
    threads = [threading.Thread(target=create, args=[rank]) for rank in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return ranks

def taken(comm):
    comm.prepare()
    return comm.report()["scratch_bytes"]

def large_calls(comm):
    gpu = Gpu(comm.gpu())
    memory, counts = comm.alloc("1M"), [-1, 0]
    while counts[-1] > counts[-2]:  # the same on both ranks
        comm.allreduce(memory, memory, "uint8", stream=gpu.stream)
        gpu.synchronize()
        comm.check()
        counts.append(comm.report()["by_first_scratch"])
        comm.exchange(b"")
    return counts[-1], comm.report()["scratch_bytes"]

first = on_all(two_ranks(["needed", "needed"]), lambda comm: (taken(comm), *large_calls(comm)))
assert first[0] == first[1], first
at_creation, by_first, later = first[0]
assert at_creation < later and by_first > 0, first
second = on_all(two_ranks(["needed", "creation"]), lambda comm: (taken(comm), *large_calls(comm)))
assert second[0] == second[1] and second[0][0] == second[0][2] and second[0][1] == 0, second
print("done")
"""
).replace("import random\n", "import random\nimport threading\nimport time\n")


def test_scratch_when_needed(polypath_program):
    ran = polypath_program(_SCRATCH)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("done\n")


_EXCHANGES = (
    _BEGIN
    + """
import threading

class Store:
    def __init__(self):
        self.changed, self.values = threading.Condition(), {}

    def set(self, key, value):
        with self.changed:
            assert key not in self.values
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, timeout=60), key
            return self.values[key]

    def add(self, key, amount):
        with self.changed:
            self.values[key] = self.values.get(key, 0) + amount
            return self.values[key]

class Ranks:  # as an mpi4py communicator
    def __init__(self, exchange, rank):
        self.allgather, self.rank = exchange, rank
    def Get_rank(self):
        return self.rank
    def Get_size(self):
        return 3

store = Store()
ended = []

def run(rank):
    try:
        for _ in range(2):
            with Communicator.from_store(context, store, rank, 3, rank) as comm:
                send_around(comm)
        exchange = store_exchange(store, rank, 3, "another")
        with Communicator.from_mpi(context, Ranks(exchange, rank), 2 - rank) as comm:
            send_around(comm)
            assert comm.gpu() == 2 - rank
        ended.append(rank)
    except BaseException as error:
        print("rank", rank, "failed:", error)
        raise

threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

print("ended:", sorted(ended))

def refuses(_):
    raise KeyError("no exchange")
for exchange in (refuses, lambda mine: [mine], lambda mine: [mine, mine[:-1]]):
    try:
        Communicator(context, 0, 2, 0, exchange)
    except (KeyError, polypath.InvalidArgument) as error:
        print(error)
"""
)


def test_exchanges_of_the_caller(polypath_program):
    ran = polypath_program(_EXCHANGES)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["ended: [0, 1, 2]", "'no exchange'"]
    assert all(line.startswith("exchange: 2 times") for line in lines[2:]) and len(lines) == 4


_ENVIRONMENT = (
    _BEGIN
    + """
with Communicator.from_environment(context) as comm:
    send_around(comm)
    print("rank", comm.rank, "of", comm.size, "on gpu", comm.gpu())
"""
)


@pytest.mark.parametrize("launcher_listens", [False, True])
def test_processes_of_a_launcher(tmp_path, launcher_listens):
    """As torchrun starts them, whose own store may listen at MASTER_PORT."""
    with socket.socket() as store, reserved_port() as free:
        store.bind(("127.0.0.1", 0))
        port = store.getsockname()[1]
        settings = {"POLYPATH_COMM_PORT": str(free)}
        if launcher_listens:
            store.listen()
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("POLYPATH_") or name == "POLYPATH_LIBRARY"
        }
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", _ENVIRONMENT],
                cwd=tmp_path,
                env={
                    **inherited,
                    **settings,
                    "POLYPATH_SIM_MODE": "functional",
                    "XDG_CACHE_HOME": str(tmp_path / "cache"),
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": "3",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(3)
        ]
        for rank, process in enumerate(ranks):
            out, error = process.communicate(timeout=1200)
            assert process.returncode == 0, error
            assert out == f"rank {rank} of 3 on gpu {rank}\n"
