"""UNICONN in Python, on the simulated node."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from polypath._library import find_library
from polypath.rank_launcher import reserved_port

#: What the programs here begin with: GPU memory and streams by the driver's own functions.
_BEGIN = """
import ctypes
import os
import random
import struct
import threading

os.environ.setdefault("POLYPATH_NODE", "narval")
import polypath
from polypath.buffers import as_buffer
from polypath.uniconn import Bootstrap, Communicator, Coordinator, Environment, Memory

driver = ctypes.CDLL(polypath.Context().devices()["driver"]["library"])

def check(result):
    assert result == 0, result

def content(rank, step, count):
    return random.Random(rank * 1000 + step).randbytes(count)

class Rank:
    def __init__(self, env):
        self.env = env
        self.stream = ctypes.c_void_p()
        check(driver.cuStreamCreate(ctypes.byref(self.stream), 1))
        self.comm = Communicator(env)
        self.rank, self.size = self.comm.rank, self.comm.size
        self.step = Coordinator(env, self.stream)

    def write(self, memory, data):
        check(driver.cuMemcpy(ctypes.c_uint64(memory.address), ctypes.c_char_p(data),
                              ctypes.c_size_t(len(data))))
        check(driver.cuStreamSynchronize(None))  # what is not pinned may land behind the call

    def filled(self, data):
        made = Memory(self.env, len(data))
        self.write(made, data)
        return made

    def expect(self, memory, wanted):
        self.step.wait()
        found = ctypes.create_string_buffer(b"\\xee" * memory.bytes, memory.bytes)
        check(driver.cuMemcpy(found, ctypes.c_uint64(memory.address),
                              ctypes.c_size_t(memory.bytes)))
        assert found.raw == wanted, (self.rank, len(wanted))

    def settle(self):
        self.comm.barrier(self.stream)
        self.step.wait()

    def poison(self, *memories):
        for memory in memories:
            self.write(memory, b"\\xa7" * memory.bytes)
        self.settle()

def send_around(self):
    count = 70001
    after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
    with (Memory(self.env, 2 * count) as inbox, self.filled(bytes(16)) as words,
          self.filled(content(self.rank, 0, count)) as out):
        for value in 5, 9:
            self.poison(inbox)
            with self.step.group():
                self.step.post(out, inbox.part(11), words.part(8), value, after, self.comm)
                self.step.acknowledge(inbox.part(11, count), words.part(8), value, before,
                                      self.comm)
            rest = b"\\xa7" * (count - 11)
            self.expect(inbox, b"\\xa7" * 11 + content(before, 0, count) + rest)
        self.settle()

def collectives(self):
    size, own, part = self.size, self.rank, 513
    counts = [101 * rank for rank in range(size)]  # of rank 0 nothing
    displs = [7 + 400 * rank for rank in range(size)]
    length = max(part * size, displs[-1] + counts[-1] + 5)
    all_parts = b"".join(content(rank, 1, part) for rank in range(size))
    tail = b"\\xa7" * (length - len(all_parts))
    spread = bytearray(b"\\xa7" * length)
    for rank in range(size):
        spread[displs[rank]:displs[rank] + counts[rank]] = content(rank, 1, counts[rank])
    spread, blank = bytes(spread), b"\\xa7" * length
    root = size - 1
    whole, wholes = self.filled(content(root, 2, length)), content(root, 2, length)
    step, comm = self.step, self.comm
    with self.filled(content(own, 1, part)) as send, Memory(self.env, length) as recv:
        def runs(call, wanted):
            self.poison(recv)
            call()
            self.expect(recv, wanted)
            self.settle()
        runs(lambda: step.all_gather(send, recv, part, comm), all_parts + tail)
        runs(lambda: step.gather(send, recv, part, root, comm),
             all_parts + tail if own == root else blank)
        if own == 0 or counts[own] <= part:
            self.write(send, content(own, 1, counts[own]) + bytes(part - counts[own]))
        self.settle()
        runs(lambda: step.all_gatherv(send, recv, counts, displs, comm), spread)
        runs(lambda: step.gatherv(send, recv, counts, displs, root, comm),
             spread if own == root else blank)
        runs(lambda: step.scatter(whole, recv, part, root, comm),
             wholes[part * own:part * (own + 1)] + blank[part:])
        mine = wholes[displs[own]:displs[own] + counts[own]]
        runs(lambda: step.scatterv(whole, recv, counts, displs, root, comm),
             mine + blank[counts[own]:])
        others = [content(rank, 4, length) for rank in range(size)]
        mixed = self.filled(others[own])
        runs(lambda: step.all_to_all(mixed, recv, part, comm),
             b"".join(other[part * own:part * (own + 1)] for other in others) + tail)
        # To rank r goes what has r's count; from it comes what has this rank's.
        to = [(own + 1) * (rank + 2) for rank in range(size)]
        of = [(rank + 1) * (own + 2) for rank in range(size)]
        places = [60 * rank for rank in range(size)]
        wanted = bytearray(blank)
        for rank in range(size):
            sent = others[rank][places[own]:places[own] + of[rank]]
            wanted[places[rank]:places[rank] + of[rank]] = sent
        runs(lambda: step.all_to_allv(mixed, to, places, recv, of, places, comm), bytes(wanted))
        # In place.
        self.poison(recv)
        self.write(recv.part(part * own, part), content(own, 1, part))
        self.settle()
        step.all_gather(None, recv, part, comm)
        self.expect(recv, all_parts + tail)
        self.settle()
        for call, reaches in [
            (lambda: step.gather(None, recv, part, root, comm), own == root),
            (lambda: step.gatherv(None, recv, [part] * size, [part * r for r in range(size)], root,
                                  comm), own == root),
        ]:
            self.poison(recv)
            place = recv.part(part * own, part)
            self.write(place, content(own, 1, part))
            self.settle()
            call()
            alone = b"\\xa7" * (part * own) + content(own, 1, part)
            self.expect(recv, all_parts + tail if reaches else alone + blank[len(alone):])
            self.settle()
        for call in (
            lambda: step.scatter(recv, None, part, root, comm),
            lambda: step.scatterv(recv, None, [part] * size, [part * r for r in range(size)], root,
                                  comm),
        ):
            self.poison(recv)
            if own == root:
                self.write(recv, wholes)
            self.settle()
            call()
            alone = b"\\xa7" * (part * own) + wholes[part * own:part * (own + 1)]
            self.expect(recv, wholes if own == root else alone + blank[len(alone):])
            self.settle()
        step.broadcast(whole, root, comm)
        self.expect(whole, wholes)
        self.settle()
    mixed.close()
    whole.close()

def reductions(self):
    count, size = 1000, self.size
    numbers = [[random.Random(rank * 77 + 1).randrange(1, 100) for _ in range(count)]
               for rank in range(size)]
    columns = list(zip(*numbers))
    for kind, code in ("float32", "f"), ("int64", "q"), ("int16", "h"), ("float64", "d"):
        item = struct.calcsize("<" + code)
        packed = lambda values: struct.pack(f"<{count}{code}", *values)
        cases = {"sum": sum, "max": max, "land": lambda column: int(all(column))}
        if code in "qh":
            cases["bxor"] = lambda column: __import__("functools").reduce(int.__xor__, column)
        for op, function in cases.items():
            wanted = packed([function(column) for column in columns])
            with self.filled(packed(numbers[self.rank])) as send:
                with Memory(self.env, count * item, kind) as recv:
                    self.poison(recv)
                    self.step.all_reduce(send, recv, kind, self.comm, op)
                    self.expect(recv, wanted)
                    self.poison(recv)
                    self.step.reduce(send, recv, kind, 1, self.comm, op)
                    self.expect(recv, wanted if self.rank == 1 else b"\\xa7" * recv.bytes)
                    self.settle()

def refusals(self):
    step, comm = self.step, self.comm
    with Memory(self.env, 64) as memory:
        host = ctypes.create_string_buffer(8)
        for text, call in [
            ("dest_rank is 9", lambda: step.post(memory, memory, memory, 1, 9, comm)),
            ("signal is not from Memory", lambda: step.post(memory, memory, host, 1, 0, comm)),
            ("no type 'int3'", lambda: step.all_reduce(memory, memory, "int3", comm)),
            ("no operator 'most'", lambda: step.all_reduce(memory, memory, "int8", comm, "most")),
            ("no such reduction", lambda: step.all_reduce(memory, memory, "float32", comm, "bor")),
            ("there are 64 bytes", lambda: memory.part(60, 8)),
            ("one a rank is wanted", lambda: step.gatherv(memory, memory, [1], [0], 0, comm)),
            ("no group", step.end),
            ("are not elements", lambda: Memory(self.env, 3, "int16")),
            ("an Environment already", Environment),
        ]:
            try:
                call()
            except polypath.InvalidArgument as error:
                assert text in str(error), str(error)
            else:
                raise AssertionError(text + " is not refused")
        self.settle()
    try:
        memory.address
    except polypath.InvalidArgument as error:
        assert "closed" in str(error)

def arrays(self):
    class OfDlpack:
        def __init__(self, its):
            self.__dlpack__, self.__dlpack_device__ = its.__dlpack__, its.__dlpack_device__
    from polypath import _dlpack
    with Memory(self.env, 96, "float32") as memory:
        interface = memory.__cuda_array_interface__
        assert interface["shape"] == (24,) and interface["typestr"] == "<f4"
        assert interface["data"] == (memory.address, False)
        assert memory.__dlpack_device__() == (2, self.env.device)
        told = _dlpack.describe(OfDlpack(memory))
        assert (told.address, told.shape, told.bits) == (memory.address, (24,), 32)
        mine = lambda: [at for at, kept in _dlpack._exported.items() if kept[2] is memory]
        assert mine() == [], "a capsule that nobody took holds it"
        capsule = memory.__dlpack__(stream=None)
        managed = _dlpack._ManagedTensor.from_address(mine()[0])
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        rename(capsule, b"used_dltensor")  # a consumer took it,
        del capsule
        assert len(mine()) == 1
        end = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)
        end(ctypes.addressof(managed))  # and lets it go
        assert mine() == []

def parts(self):
    part = self.comm.split(self.rank % 2, -self.rank)
    assert self.comm.split(-1) is None
    members = [rank for rank in reversed(range(self.size)) if rank % 2 == self.rank % 2]
    assert (part.size, part.rank) == (len(members), members.index(self.rank))
    whole, self.comm = self.comm, part
    with self.filled(content(self.rank, 3, 40)) as send:
        with Memory(self.env, 40 * self.size) as recv:
            self.poison(recv)
            self.step.all_gather(send, recv, 40, part)
            gathered = b"".join(content(rank, 3, 40) for rank in members)
            self.expect(recv, gathered + b"\\xa7" * (recv.bytes - len(gathered)))
            self.comm = whole
            self.settle()
    part.close()

CASES = send_around, collectives, reductions, refusals, arrays, parts

def run(env):
    self = Rank(env)
    for case in CASES:
        case(self)
    self.step.close()
    self.comm.close()
"""

_FUNCTIONAL = "import os; os.environ['POLYPATH_SIM_MODE'] = 'functional'\n"

_THREADS = (
    _BEGIN
    + """
import sys

failed = []

def thread(bootstrap, body):
    try:
        with Environment(bootstrap) as env:
            assert env.backend == "" and env.reason == ""
            env.set_device(env.node_rank)
            assert (env.world_rank, env.world_size) == (bootstrap.rank, bootstrap.size)
            assert env.node_size == env.world_size
            body(env)
    except BaseException as error:
        failed.append(error)
        raise

def on_threads(size, body):
    threads = [threading.Thread(target=thread, args=(one, body))
               for one in Bootstrap.threads(size)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

if len(sys.argv) > 1:  # a backend, and what stands in for its library
    backend, library = sys.argv[1:]
    ctypes.CDLL(library)
    os.environ["POLYPATH_BACKEND"] = backend
    CASES = tuple(case for case in CASES if case is not refusals)
    backends = []
    def every_case(env):
        run(env)
        backends.append(env.backend)
    on_threads(3, every_case)
    assert not failed
    print(backends)
    sys.exit()

chosen = []
on_threads(3, lambda env: chosen.append((env.backend, env.reason)))
print(chosen)
os.environ["POLYPATH_BACKEND"] = "PolyPath"
on_threads(3, run)
assert not failed
for wrong in "gpuccl", "mpi", "nccl":
    os.environ["POLYPATH_BACKEND"] = wrong
    try:
        with Environment() as alone:
            alone.set_device(0)
    except polypath.PolypathError as error:
        print(type(error).__name__, error)
print("done")
"""
)


def test_threads(polypath_program):
    ran = polypath_program(_THREADS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    reason = "polypath: ranks are of one node, and reach each other's memory"
    assert lines[0] == repr([("polypath", reason)] * 3)
    assert lines[1].startswith("NotSupported POLYPATH_BACKEND is gpuccl: rank 0: ")
    assert "there is no libnccl.so.2: install NCCL" in lines[1]
    assert lines[2].startswith("NotSupported POLYPATH_BACKEND is mpi: rank 0: ")
    assert "no code for it" in lines[2]
    assert lines[3].startswith("InvalidArgument POLYPATH_BACKEND is 'nccl' on rank 0")
    assert lines[4:] == ["done"]


@pytest.mark.parametrize(
    ("backend", "library"),
    [("gpuccl", "nccl-standin/libnccl.so.2"), ("gpushmem", "nvshmem-standin/libnvshmem_host.so.3")],
)
def test_what_stands_in_for_other_libraries(polypath_program, backend, library):
    path = find_library().parent / library
    if not path.is_file():
        pytest.skip(f"needs {path}, of the tests in C++")
    ran = polypath_program(_FUNCTIONAL + _THREADS, backend, str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout == f"{[backend] * 3}\n"


_PROCESS = (
    _BEGIN
    + """
with Environment() as env:
    env.set_device(env.node_rank)
    run(env)
    print("rank", env.world_rank, "of", env.world_size, "by", env.backend)
"""
)


def _on_processes(tmp_path, size: int, **settings: str) -> list[str]:
    with reserved_port() as port:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", _PROCESS],
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(size),
                    "LOCAL_RANK": str(rank),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port - 1),  # they meet at the next one
                    "POLYPATH_SIM_MODE": "functional",
                    "XDG_CACHE_HOME": str(tmp_path),
                    **settings,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(size)
        ]
        try:
            texts = [rank.communicate(timeout=1200)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * size, "\n".join(texts)
    return texts


def test_processes(tmp_path):
    texts = _on_processes(tmp_path, 2)
    assert texts == [f"rank {rank} of 2 by polypath\n" for rank in range(2)]


_OWN_EXCHANGE = (
    _BEGIN
    + """
def refuses(_):
    raise KeyError("no exchange")
for exchange in (refuses, lambda mine: [mine], lambda mine: [mine, mine[:-1]]):
    try:
        Environment(Bootstrap(0, 2, exchange))
    except (KeyError, polypath.InvalidArgument) as error:
        print(error)
with Environment(Bootstrap(0, 1, lambda mine: [mine])) as env:
    env.set_device(1)
    self = Rank(env)
    collectives(self)
    self.comm.close()
try:
    Communicator(env)
except polypath.InvalidArgument as error:
    print(error)
"""
)


def test_an_exchange_of_the_caller(polypath_program):
    ran = polypath_program(_OWN_EXCHANGE)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0] == "'no exchange'"
    assert all(line.startswith("exchange: 2 times") for line in lines[1:3])
    assert lines[3:] == ["the Environment is closed"]
