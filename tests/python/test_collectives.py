"""Collectives in Python, and their benchmark, on the simulated node."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from test_comm import _BEGIN
from test_command_line_errors import the_one_line

_ALL = (
    _BEGIN
    + """
import array

COUNT = 1003
SIZE = 4
ranks = Communicator.all(context, range(SIZE))

def given(rank, count):
    random_of = random.Random(rank)
    return array.array("i", [random_of.randrange(-(10**8), 10**8) for _ in range(count)])

def write(address, values):
    data = ctypes.create_string_buffer(values.tobytes(), 4 * len(values))
    check(driver.cuMemcpy(ctypes.c_uint64(address), ctypes.c_uint64(ctypes.addressof(data)),
                          ctypes.c_size_t(len(data))))
    check(driver.cuStreamSynchronize(None))  # what is not pinned may land behind the call

def added(count):
    return array.array("i", map(sum, zip(*(given(rank, count) for rank in range(SIZE)))))

def part(values, rank):
    return values[rank * COUNT : (rank + 1) * COUNT]

class ReadOnly:
    def __init__(self, memory):
        self.__cuda_array_interface__ = dict(memory.__cuda_array_interface__)
        self.__cuda_array_interface__["data"] = (memory.address(), True)

def refuse(comm, send, recv):
    # On all ranks alike: read-only memory to receive in, and memory that is too short.
    last = polypath.buffers.Buffer(recv.address(), 4 * COUNT * SIZE - 1)
    few = (ctypes.c_uint8 * 8)()
    calls = [
        (comm.allreduce, "int32", {}),
        (comm.reduce_scatter, "int32", {}),
        (comm.all_gather, "int32", {"count": COUNT}),
        (comm.broadcast, "int32", {"root": 2}),
        (comm.all_to_all, "int32", {}),
    ]
    for call, kind, more in calls:
        refused("recv is read-only", call, send, ReadOnly(recv), kind, **more)
        if call != comm.reduce_scatter:
            refused("recv has", call, send, last, kind, **more)
    for call in comm.allreduce, comm.all_gather:
        refused("send has 8 bytes, fewer than 12", call, few, recv, "int32", count=3)
    refused("src has 8 bytes, fewer than 9", comm.put, 0, recv, 0, few, 9)
    refused("src has no size", comm.put, 0, recv, 0, send.address())
    if comm.rank == 1:
        refused("recv is read-only", comm.reduce, send, ReadOnly(recv), "int32", root=1)

def refused(words, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except polypath.InvalidArgument as error:
        assert words in str(error), error
    else:
        raise AssertionError((words, call))

def everything(comm):
    gpu = Gpu(comm.gpu())
    send, recv = comm.alloc(4 * COUNT * SIZE), comm.alloc(4 * COUNT * SIZE)
    whole = given(comm.rank, COUNT * SIZE)

    def run(expected, call, **more):
        write(send.address(), whole)
        write(recv.address(), array.array("i", [-1] * COUNT * SIZE))
        comm.exchange(b"")
        call(send, recv, "int32", stream=gpu.stream, **more)
        gpu.synchronize()
        comm.check()
        found = array.array("i", gpu.read(recv.address(), 4 * COUNT * SIZE))
        assert found[: len(expected)] == expected, call
        assert set(found[len(expected) :]) <= {-1}, call
        comm.exchange(b"")

    run(added(COUNT * SIZE), comm.allreduce)
    run(part(added(COUNT * SIZE), comm.rank), comm.reduce_scatter)
    run(sum((given(rank, COUNT * SIZE)[:COUNT] for rank in range(SIZE)), array.array("i")),
        comm.all_gather, count=COUNT)
    run(given(2, COUNT * SIZE), comm.broadcast, root=2)
    run(added(COUNT * SIZE) if comm.rank == 1 else array.array("i"), comm.reduce, root=1)
    run(sum((part(given(rank, COUNT * SIZE), comm.rank) for rank in range(SIZE)), array.array("i")),
        comm.all_to_all)
    for wrong in ({"type": "int33"}, {"type": "int32", "op": "minus"}):
        try:
            comm.allreduce(send, recv, **wrong)
            raise AssertionError(wrong)
        except polypath.InvalidArgument:
            pass
    refuse(comm, send, recv)
    counts = comm.report()
    assert counts["cells"] + counts["lines"] + counts["channels"] == 6, counts
    return comm.rank

assert on_all(ranks, everything) == [0, 1, 2, 3]
for one in ranks:
    one.close()
context.close()
print("all right")
"""
)


def test_every_operation_gives_what_it_says(polypath_program):
    done = polypath_program(_ALL)
    assert (done.stdout, done.returncode) == ("all right\n", 0), done.stderr


_PARTS = (
    _BEGIN
    + """
import array

COUNTS = [700, 0, 3, 1201]
BEGINS = [sum(COUNTS[:rank]) for rank in range(5)]

def f32(value):
    return ctypes.c_float(value).value

def given(rank):
    random_of = random.Random(rank)
    return array.array("f", [random_of.uniform(-2, 2) ** 9 for _ in range(BEGINS[4])])

def tree(values):
    a, b, c, d = values
    return f32(f32(a + b) + f32(c + d))

def in_turn(values):
    total = values[0]
    for value in values[1:]:
        total = f32(total + value)
    return total

def summed(order):
    return array.array("f", map(order, zip(*map(given, range(4)))))

def write(address, values):
    data = ctypes.create_string_buffer(values.tobytes(), 4 * len(values))
    check(driver.cuMemcpy(ctypes.c_uint64(address), ctypes.c_uint64(ctypes.addressof(data)),
                          ctypes.c_size_t(len(data))))
    check(driver.cuStreamSynchronize(None))  # what is not pinned may land behind the call

def parts(comm, order):
    gpu = Gpu(comm.gpu())
    send, recv = comm.alloc(4 * BEGINS[4]), comm.alloc(4 * BEGINS[4])
    own = slice(BEGINS[comm.rank], BEGINS[comm.rank + 1])

    def run(sent, expected, call):
        write(send.address(), sent)
        write(recv.address(), array.array("f", [-1] * BEGINS[4]))
        comm.exchange(b"")
        call()
        gpu.synchronize()
        comm.check()
        found = array.array("f", gpu.read(recv.address(), 4 * BEGINS[4]))
        assert found[: len(expected)] == expected, call
        assert set(found[len(expected) :]) <= {-1}, call

    run(given(comm.rank), summed(order)[own],
        lambda: comm.reduce_scatterv(send, recv, COUNTS, "float32", stream=gpu.stream))
    run(given(comm.rank)[own],
        sum((given(rank)[BEGINS[rank] : BEGINS[rank + 1]] for rank in range(4)), array.array("f")),
        lambda: comm.all_gatherv(send, recv, COUNTS, "float32", stream=gpu.stream))
    run(given(comm.rank), summed(order),
        lambda: comm.allreduce(send, recv, "float32", stream=gpu.stream))
    for wrong in (COUNTS[:3], [*COUNTS[:3], 1202]):
        try:
            comm.all_gatherv(send, recv, wrong, "float32")
            raise AssertionError(wrong)
        except polypath.InvalidArgument as error:
            assert "3 entries" in str(error) or "fewer than" in str(error), error
    report = comm.report()
    assert report["uneven"] == 2 and report["cells"] + report["channels"] == 3, report
    return report["sum_order"]

assert summed(tree) != summed(in_turn)
for name, order in ("rank", in_turn), ("tree", tree):
    ranks = Communicator.all(context, range(4), sum_order=name)
    assert on_all(ranks, lambda comm: parts(comm, order)) == [name] * 4
    for one in ranks:
        one.close()
try:
    Communicator.all(context, range(4), sum_order="other")
except polypath.InvalidArgument as error:
    assert "there is no 'other'" in str(error)
context.close()
print("all right")
"""
)


def test_uneven_parts_and_sums_as_a_tree(polypath_program):
    done = polypath_program(_PARTS)
    assert (done.stdout, done.returncode) == ("all right\n", 0), done.stderr


def test_a_plan_says_the_order(polypath):
    done = polypath("plan", "allreduce", "64M", "--node", "mist", "--order", "tree")
    assert "order of the sum: ((r0 + r1) + (r2 + r3))\n" in done.stdout, done.stdout + done.stderr
    refused = polypath("plan", "allreduce", "64M", "--node", "mist", "--order", "trees")
    assert "'trees' is neither rank nor tree" in refused.stderr


@pytest.mark.parametrize("operation", ["allreduce", "reduce_scatter", "broadcast"])
def test_the_benchmark_compares_every_element(polypath, tmp_path, operation):
    arguments = (
        "--node",
        "hgx-h200-x4",
        "--ranks",
        "2",
        "--sizes",
        "64K,6M",
        "--json",
        "rows.json",
    )
    done = polypath("bench", operation, *arguments)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["bytes"], row["algorithm"]) for row in rows] == [
        (64 << 10, "cells"),
        (6 << 20, "flat"),
    ]
    for row in rows:
        assert row["verified"] and row["exact"] and row["op"] == operation
        assert row["us"] > 0 and row["bus_gbps"] < row["limit_bus_gbps"]
        # Without NCCL an allreduce is compared with the ring, others with nothing.
        baseline = row.get("baseline", {}).get("name")
        assert baseline == ("ring" if operation == "allreduce" else None)


def test_the_benchmark_compares_every_element_with_the_tree(polypath, tmp_path):
    arguments = ("--node", "mist", "--sizes", "64K", "--type", "bfloat16", "--json", "rows.json")
    ways = ("--algorithm", "hierarchical", "--against", "kernels", "--iterations", "1")
    done = polypath("bench", "allreduce", *arguments, *ways, POLYPATH_SUM_ORDER="tree")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert (row["algorithm"], row["exact"]) == ("hierarchical", True)


def test_in_virtual_time_ranks_wait_for_a_busy_machine(polypath):
    arguments = ("--node", "hgx-h200-x4", "--ranks", "2", "--sizes", "64K")
    done = polypath("bench", "allreduce", *arguments, POLYPATH_COMM_TIMEOUT_MS="1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("operation", ["allreduce", "all_to_all"])
def test_json_on_stdout_is_alone_there(polypath, operation):
    done = polypath("bench", operation, "--node", "narval", "--sizes", "8K", "--json", "-")
    assert json.loads(done.stdout)["op"] == operation


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_ranks_and_then_the_benchmark():
    command = [sys.executable, "-m", "polypath", "bench", "allreduce", "--node", "narval"]
    with subprocess.Popen(
        [*command, "--sizes", "16M", "--iterations", "100000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert any("1/1 16M" in line for line in running.stderr)
            time.sleep(0.3)  # the ranks are within the library
            running.send_signal(signal.SIGINT)
            errors = running.communicate(timeout=600)[1]
        finally:
            running.kill()
    assert running.returncode == 130
    assert "polypath: interrupted" in errors.splitlines()
    assert "Traceback" not in errors


def test_the_benchmark_and_the_plan_have_one_set_of_names(polypath, tmp_path):
    for name, options in (("mixed", ()), ("hierarchical", ()), ("pairwise", ("--op", "max"))):
        common = ("allreduce", "--node", "mist")
        done = polypath("plan", *common, "1M", "--algorithm", name, *options, "--json", "plan.json")
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / "plan.json").read_text())["algorithm"] == name
        asked = ("--sizes", "1M", "--algorithm", name, "--against", name, *options)
        done = polypath("bench", *common, *asked, "--json", "rows.json")
        assert done.returncode == 0, done.stderr
        (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
        assert (row["algorithm"], row["baseline"]["name"]) == (name, name)


def test_bench_compares_last_communicator_with_first(polypath, tmp_path):
    common = ("bench", "allreduce", "--node", "hgx-h200-x4", "--sizes", "64K")
    done = polypath(*common, "--communicators", "2", "--json", "rows.json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert row["baseline"]["name"] == "first"
    assert row["exact"]
    assert row["speedup"] > 0.97


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("bench allreduce --communicators 2 --against ring", "not --against"),
        ("bench allreduce --algorithm flat", "; kernels is meant"),
        ("bench allreduce --algorithm host", "; mixed is meant"),
        ("bench allreduce --against rign", "; did you mean ring?"),
        ("bench all_gather --op max", "; all_gather combines nothing"),
        ("plan allreduce 1M --algorithm kernels", "; cells, lines or flat is meant"),
        ("plan allreduce 1M --algorithm published", "; --compare shows it"),
    ],
)
def test_what_is_refused_says_what_is_meant(polypath, command, words):
    assert the_one_line(polypath(*command.split(), "--node", "mist"), 2).endswith(words)


def test_a_library_that_is_none_is_an_answer(polypath):
    done = polypath(
        *("bench", "allreduce", "--node", "hgx-h200-x4", "--sizes", "64K"),
        *("--against", "/nowhere/libnccl.so"),
    )
    assert done.returncode == 1
    assert "NCCL cannot be used: /nowhere/libnccl.so" in done.stderr
