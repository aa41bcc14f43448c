"""Queues in Python, on the simulated node."""

from __future__ import annotations

_PROGRAM = """
import ctypes

import polypath
from polypath.comm import Communicator, on_all
from polypath.messaging import Pool, Queues

context = polypath.Context(node="narval")
ranks = Communicator.all(context, [0, 1, 2])

def refused(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except (polypath.InvalidArgument, polypath.PolypathError, TypeError) as error:
        print("refused:", error)
    else:
        raise AssertionError(call)

# From the CPU to itself by way of the same ring: what a kernel on the other side would do.
with Queues.with_host(ranks[0], "producer", 12, capacity=64, segment=16) as queues:
    assert len(queues) == 1 and len(queues.view(0, "consumer")) > 64
    items = (ctypes.c_uint32 * 30)(*range(30))
    queues.push(items)
    assert queues.try_push(items)
    for _ in range(4):
        queues.try_push(items)
    assert not queues.try_push(items), "full"
    (found,) = queues.report()
    assert found["pushed"] == 60 and found["in_flight"] == 60, found
    assert found["timed_out_wait"] == "", found
    assert found["from"] == "host" and found["to"] == 0 and found["capacity"] == 64, found
    queues.end()
    refused(queues.push, (ctypes.c_uint8 * 13)())
    refused(queues.pop, items)
    refused(queues.view, 1, "producer")
    refused(queues.view, 0, "middle")
refused(queues.report)

with Queues.with_host(ranks[1], "consumer", 8, kind="pair", timeout_ms=5) as queues:
    items = (ctypes.c_uint64 * 4)()
    assert queues.try_pop(items) == 0
    refused(queues.end)

def both(comm):
    with Queues.connect(comm, 0, 2, 96, count=3, capacity=128) as queues:
        side = {0: "producer", 2: "consumer"}.get(comm.rank)
        if side is None:
            refused(queues.view, 0, "producer")
        else:
            assert len(queues.view(2, side)) == len(queues.view(0, side))
        assert len(queues.report()) == 3
    with Queues.connect_each(comm, 12, capacity=128) as queues:
        assert len(queues) == 3
        assert {one["from"] for one in queues.report()} == {0, 1, 2}
    return True
assert on_all(ranks, both) == [True] * 3

with Pool.local(ranks[0], 1 << 20) as pool:
    found = pool.report()
    assert found["slabs"] == 64 and found["held_blocks"] == 0 and not found["shared"], found
    assert len(pool.view()) >= 52
    refused(pool.view, True)
refused(pool.report)
refused(Pool.local, ranks[0], 100)

def pools(comm):
    with Pool.shared(comm, 1 << 20, slab_bytes=8192, returns=256) as pool:
        assert len(pool.view(True)) > len(pool.view())
        return pool.report()["shared"]
assert on_all(ranks, pools) == [True] * 3

with Queues.local(ranks[2], 16, count=2) as queues:
    assert [one["number"] for one in queues.report()] != []
refused(Queues.local, ranks[0], 200)
refused(Queues.local, ranks[0], 8, capacity=100)
refused(Queues.local, ranks[0], 8, kind="stack")
refused(Queues.local, ranks[0], 8, size=8)

queues = Queues.with_host(ranks[1], "consumer", 8, timeout_ms=5)
try:
    queues.pop(items)
except polypath.CommunicatorError as error:
    print(error)
queues.close()
for one in ranks:
    one.close()
print("done")
"""


def test_queues(polypath_program):
    ran = polypath_program(_PROGRAM)
    assert ran.returncode == 0, ran.stderr
    for line in (
        "refused: items are 13 bytes, which is no multiple of 12",
        "the CPU is not on that side",
        "refused: index is 1: there are 1 queues",
        "refused: side is 'middle': it is one of producer, consumer",
        "refused: the queues are closed",
        "refused: the pool is closed",
        "refused: view is a shared_pool_view, and the pool is this rank's alone",
        "refused: options->bytes is 100",
        "refused: queue is of pairs: they are not closed",
        "refused: queue 0 goes from rank 0 to rank 2: rank 1 is not on that side",
        "refused: options->item_bytes is 200",
        "refused: options->capacity is 100",
        "refused: kind is 'stack': it is one of queue, pair",
        "refused: queues have no option 'size'",
        "the CPU waited past the time limit at queue 0 from rank 1",
    ):
        assert line in ran.stdout, (line, ran.stdout)
    assert ran.stdout.endswith("done\n")
