"""What belongs to a process stays its own: its forked children end, in each way, without a hang,
and the parent works on."""

from __future__ import annotations

import pytest

_PROGRAM = """
import ctypes
import multiprocessing
import os
import random
import signal
import sys

import polypath
from polypath.comm import Communicator, on_all
from polypath.matching import Matcher
from polypath.messaging import Pool, Queues
from polypath.uniconn import Bootstrap

context = polypath.Context(node="narval", prepare="wait")
driver = ctypes.CDLL(context.devices()["driver"]["library"])

def check(result):
    assert result == 0, result

primary, stream = ctypes.c_void_p(), ctypes.c_void_p()
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0))
check(driver.cuCtxSetCurrent(primary))
check(driver.cuStreamCreate(ctypes.byref(stream), 1))
SIZE = 8 << 20
src, dst = ctypes.c_void_p(), ctypes.c_void_p()
for memory in src, dst:
    check(driver.cuMemHostAlloc(ctypes.byref(memory), ctypes.c_size_t(SIZE), 1))
on_gpu = ctypes.c_uint64()
check(driver.cuMemAlloc_v2(ctypes.byref(on_gpu), ctypes.c_size_t(SIZE)))

def copy(seed):
    wanted = random.Random(seed).randbytes(SIZE)
    ctypes.memmove(src, wanted, SIZE)
    ctypes.memset(dst, 0xEE, SIZE)
    context.copy_async(on_gpu.value, src.value, SIZE, stream)
    context.copy_async(dst.value, on_gpu.value, SIZE, stream)
    check(driver.cuStreamSynchronize(stream))
    assert ctypes.string_at(dst, SIZE) == wanted

copy(1)  # with its threads
ranks = Communicator.all(context, [0, 1])
queues, pool = Queues.local(ranks[0], 16), Pool.local(ranks[0], 1 << 20)
matcher = Matcher(ranks[1], 64)
meetings = Bootstrap.threads(2)

def close():
    for one in queues, pool, matcher, *ranks, context:
        one.close()

def close_in_time():
    signal.alarm(60)
    close()

def leave(error):
    for one in queues, pool, *ranks, context:
        try:
            with one:
                raise error
        except type(error):
            pass

def forget():
    global queues, pool, matcher, ranks, meetings, context
    del queues, pool, matcher, ranks, meetings, context

def fails_to_execute():
    try:
        os.execv("/nowhere/at/all", ["all"])
    except FileNotFoundError:
        sys.exit(0)

WAYS = {
    "exit": lambda: sys.exit(0),
    "close": close,
    "forget": forget,
    "raise": lambda: leave(KeyError("here")),
    "leave": lambda: leave(SystemExit(0)),
    "exec": fails_to_execute,
}
way = sys.argv[1]
if way == "multiprocessing":
    child = multiprocessing.get_context("fork").Process(target=close_in_time)
    child.start()
    child.join()
    assert child.exitcode == 0, child.exitcode
else:
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends one that hangs
        WAYS[way]()
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

copy(2)
for one in ranks:
    one.check()
assert on_all(ranks, lambda comm: comm.exchange(bytes([comm.rank]))) == [[b"\\0", b"\\1"]] * 2
with matcher, queues, pool:
    assert len(queues.report()) == 1 and not pool.report()["shared"]
on_all(ranks, Communicator.close)
context.close()
print("done")
"""


@pytest.mark.parametrize(
    "way", ["exit", "close", "forget", "raise", "leave", "exec", "multiprocessing"]
)
def test_child_ends_and_parent_goes_on(started_program, way):
    ran = started_program(_PROGRAM, way)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "done\n"


_ENDS = """
import sys

import polypath
from polypath.comm import Communicator, on_all
from polypath.messaging import Queues

context = polypath.Context(node="narval")

def ends(comm, error):
    try:
        with comm:
            raise error
    except type(error):
        pass

def ends_a_generator(comm):
    def steps():
        with comm:
            yield
    made = steps()
    next(made)
    made.close()

def of_two(first):
    ranks = Communicator.all(context, [0, 1])
    first(ranks[0])
    try:
        ranks[1].check()
    except polypath.CommunicatorError as error:
        return str(error)
    finally:
        ranks[1].close()
    return "usable"

def ends_queues(comm):
    ends(Queues.local(comm, 16), SystemExit(0))
    comm.close()

for code in None, 0, False:
    assert of_two(lambda comm: ends(comm, SystemExit(code))) == "usable", code
assert of_two(ends_a_generator) == "usable"
assert of_two(ends_queues) == "usable"
for error in SystemExit(3), SystemExit("why"), KeyboardInterrupt(), KeyError("x"):
    assert f"rank 0 raised {type(error).__name__}" in of_two(lambda comm: ends(comm, error)), error

ranks = Communicator.all(context, [0, 1])
def first_leaves(comm):
    if comm.rank == 0:
        sys.exit(0)
    comm.check()
try:
    on_all(ranks, first_leaves)
except SystemExit as error:
    assert error.code == 0
for comm in ranks:
    comm.check()
    comm.close()
print("done")
"""


def test_normal_ends_are_no_aborts(polypath_program):
    """A program (``sys.exit(0)``) and a generator end, in a ``with`` statement and on threads."""
    ran = polypath_program(_ENDS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "done\n"
