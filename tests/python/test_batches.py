"""Batches of small copies: `Context.copy_batch_async`, `polypath bench pages`, and programs that
call cuMemcpyBatchAsync under `polypath run`."""

import array
import ctypes
import json
import re
import sys
import textwrap

import numpy as np
import pytest
from polypath import Context, InvalidArgument
from polypath.errors import WrongType
from simulated import DeviceArray, Driver

NODE = "hgx-h200-x4"
COUNT = 300
BLOCK = 6000


@pytest.fixture(scope="module")
def context():
    with Context(node="narval") as context:
        context.prepare_batches([("host0", "gpu0"), ("gpu0", "host0")])
        yield context


@pytest.fixture
def memory(context):
    """Pinned memory with random contents, a GPU's memory, and the blocks' places in both."""
    driver = Driver(context.devices()["driver"]["library"])
    device = DeviceArray(driver, 0, np.zeros(COUNT * BLOCK, np.uint8))
    pinned = driver.pinned(COUNT * BLOCK)
    random = np.random.default_rng(7)
    pinned[:] = random.integers(0, 256, pinned.size, dtype=np.uint8)
    places = random.permutation(COUNT).astype(np.uint64), random.permutation(COUNT)
    context.reset_counters()
    return driver, device, pinned, places


def expected(pinned, places):
    to, start = places
    contents = np.zeros((COUNT, BLOCK), np.uint8)
    contents[to] = pinned.reshape(COUNT, BLOCK)[start]
    return contents.reshape(-1)


@pytest.mark.parametrize("kind", ["numpy", "array", "ctypes", "list"])
def test_addresses_in_arrays(context, memory, kind):
    driver, device, pinned, (to, start) = memory
    make = {
        "numpy": lambda values: np.array(values, np.uint64),
        "array": lambda values: array.array("Q", values),
        "ctypes": lambda values: (ctypes.c_uint64 * len(values))(*values),
        "list": list,
    }[kind]
    dst = make([device.address + int(place) * BLOCK for place in to])
    src = make([pinned.ctypes.data + int(place) * BLOCK for place in start])
    stream = driver.stream()
    context.copy_batch_async(dst, src, BLOCK, stream)
    driver.synchronise(stream)
    assert np.array_equal(device.numpy(), expected(pinned, (to, start)))
    batches = context.counters()["batches"]
    assert batches["calls"] == 1
    assert batches["native"] == 0
    assert {route["route"] for route in batches["routes"]} == {
        *("direct", "via gpu1", "via gpu2", "via gpu3")
    }
    assert sum(route["bytes"] for route in batches["routes"]) == COUNT * BLOCK


def test_blocks_that_say_their_size(context, memory):
    driver, device, pinned, _ = memory
    sizes = np.arange(COUNT) * 19 + 1
    starts = np.cumsum(sizes) - sizes
    blocks = [pinned[first : first + size] for first, size in zip(starts, sizes, strict=True)]
    dst = [device.address + int(first) for first in starts]
    stream = driver.stream()
    context.copy_batch_async(dst, blocks, stream=stream)
    driver.synchronise(stream)
    whole = int(sizes.sum())
    assert np.array_equal(device.numpy()[:whole], pinned[:whole])
    assert not device.numpy()[whole:].any()
    context.copy_batch_async(dst, blocks, sizes, stream)
    driver.synchronise(stream)


def test_wrong_arguments_are_named(context, memory):
    _, device, pinned, _ = memory
    block = [pinned[:8]]
    with pytest.raises(InvalidArgument, match="2 of dst and 1 of src"):
        context.copy_batch_async([device.address] * 2, block)
    with pytest.raises(InvalidArgument, match="1 of dst and 3 of bytes"):
        context.copy_batch_async([device.address], block, [1, 2, 3])
    with pytest.raises(InvalidArgument, match="copy 0: src has 8 bytes, fewer than 9"):
        context.copy_batch_async([device.address], block, 9)
    with pytest.raises(InvalidArgument, match="bytes is needed"):
        context.copy_batch_async([device.address], [pinned.ctypes.data])
    with pytest.raises(WrongType, match="no sequence"):
        context.copy_batch_async(device.address, block)
    with pytest.raises(InvalidArgument, match=re.escape("dst[0] is read-only")):
        frozen = pinned[:8].copy()
        frozen.flags.writeable = False
        context.copy_batch_async([frozen], block)
    with pytest.raises(InvalidArgument, match="copy 1: src is null"):
        context.copy_batch_async([device.address] * 2, [pinned.ctypes.data, 0], 8)


def test_bench_compares_with_the_drivers_batch(polypath, tmp_path):
    arguments = ("bench", "pages", "--node", NODE, "--sizes", "4K,64K", "--count", "1000")
    plot = tmp_path / "pages.svg"
    done = polypath(*arguments, "--json", "-", "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["src"], row["dst"], row["block_bytes"]) for row in rows] == [
        (src, dst, size)
        for src, dst in (("host0", "gpu0"), ("gpu0", "host0"), ("gpu0", "gpu1"))
        for size in (4096, 65536)
    ]
    for row in rows:
        assert row["verified"] is True
        assert row["bytes"] == 1000 * row["block_bytes"]
        assert row["native_share"] == 0
        assert sum(route["share"] for route in row["routes"]) == pytest.approx(1)
        assert len(row["routes"]) == (1 if row["dst"] == "gpu1" else 4)
        assert row["issue_us"] > 0
    # Over all links: one carries 55 GB/s.
    assert rows[1]["polypath_gbps"] > 150
    assert rows[3]["polypath_gbps"] > 120
    assert "host0 to gpu0" in plot.read_text()


def test_bench_beside_traffic(polypath):
    done = polypath(
        *("bench", "pages", "--node", NODE, "--test", "h2d", "--sizes", "16K", "--count", "800"),
        *("--iterations", "4", "--beside", "h2d:gpu2", "--json", "-"),
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["verified"] is True
    # The kernel of GPU 2 would wait for its link.
    assert row["loaded"]["polypath_gbps"] > row["loaded"]["native_gbps"]


def test_bench_refuses_other_tests(polypath):
    done = polypath("bench", "pages", "--test", "bidir", "--node", NODE)
    assert done.returncode == 2
    assert "h2d, d2h, p2p" in done.stderr


PROGRAM = """
    import ctypes, os, random
    from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        result = getattr(cuda, name)(*arguments)
        assert result == 0, (name, result)

    class Attributes(ctypes.Structure):
        _fields_ = [("order", c_int), ("src", c_int * 2), ("dst", c_int * 2), ("flags", c_uint)]

    count, size = 512, 8192
    call("cuInit", c_uint(0))
    context, stream, host, device = c_void_p(), c_void_p(), c_void_p(), c_uint64()
    call("cuDevicePrimaryCtxRetain", byref(context), c_int(0))
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", byref(stream), c_uint(1))
    call("cuMemHostAlloc", byref(host), c_size_t(count * size), c_uint(0))
    call("cuMemAlloc_v2", byref(device), c_size_t(count * size))
    contents = random.Random(3).randbytes(count * size)
    ctypes.memmove(host, contents, count * size)
    order = list(range(count))
    random.Random(4).shuffle(order)
    dsts = (c_uint64 * count)(*(device.value + i * size for i in range(count)))
    srcs = (c_uint64 * count)(*(host.value + i * size for i in order))
    sizes = (c_size_t * count)(*[size] * count)
    attributes, first = Attributes(order=1), c_size_t(0)
    call("cuMemcpyBatchAsync_v2", dsts, srcs, sizes, c_size_t(count), byref(attributes),
         byref(first), c_size_t(1), stream)
    call("cuStreamSynchronize", stream)
    found = ctypes.create_string_buffer(count * size)
    call("cuMemcpy", c_uint64(ctypes.addressof(found)), device, c_size_t(count * size))
    assert found.raw == b"".join(contents[i * size : (i + 1) * size] for i in order)
"""


@pytest.mark.parametrize("mode", ["virtual", "functional"])
def test_programs_batch_goes_by_all_gpus(polypath, tmp_path, mode):
    statistics = tmp_path / "statistics.json"
    done = polypath(
        *("run", "--node", NODE, "--stats", str(statistics), "--"),
        *(sys.executable, "-c", textwrap.dedent(PROGRAM)),
        POLYPATH_PREPARE="wait",
        POLYPATH_SIM_MODE=mode,
    )
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("statistics.*.json")
    batches = json.loads(file.read_text())["engine"]["batches"]
    assert batches["calls"] == 1
    assert batches["native"] == 0
    assert len(batches["routes"]) == 4
    assert sum(route["bytes"] for route in batches["routes"]) == 512 * 8192
