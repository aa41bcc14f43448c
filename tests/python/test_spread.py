"""The same bytes to several GPUs: `Context.spread_async`, `Communicator.spread`, `polypath plan
spread`, `polypath bench spread`."""

import json
import mmap

import numpy as np
import pytest
from polypath import Context, InvalidArgument
from polypath.comm import Communicator, on_all
from polypath.errors import WrongType
from simulated import DeviceArray, Driver

NODE = "hgx-h200-x4"
BYTES = 12 * 2**20 + 77


@pytest.fixture(scope="module")
def context():
    with Context(node="narval") as context:
        context.prepare_spread("host0", range(4))
        yield context


@pytest.fixture
def memory(context):
    """Pinned memory with random contents, a poisoned buffer on each GPU, and streams."""
    driver = Driver(context.devices()["driver"]["library"])
    arrays = [DeviceArray(driver, gpu, np.full(BYTES, 0xA5, np.uint8)) for gpu in range(4)]
    pinned = driver.pinned(BYTES)
    pinned[:] = np.random.default_rng(5).integers(0, 256, BYTES, dtype=np.uint8)
    context.reset_counters()
    return driver, pinned, arrays


def test_every_gpu_fetches_a_part(context, memory):
    driver, pinned, arrays = memory
    stream = driver.stream()
    context.spread_async(arrays, pinned, streams=stream)
    driver.synchronise(stream)
    for each in arrays:
        assert np.array_equal(each.numpy(), pinned)
    spreads = context.counters()["spreads"]
    assert (spreads["calls"], spreads["native"]) == (1, 0)
    assert sum(route["bytes"] for route in spreads["routes"]) == 4 * BYTES
    assert {route["route"] for route in spreads["routes"]} == {
        *("direct", "via gpu0", "via gpu1", "via gpu2", "via gpu3")
    }


def test_mapped_file(context, memory, tmp_path):
    driver, pinned, arrays = memory
    path = tmp_path / "weights"
    path.write_bytes(pinned.tobytes())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        stream = driver.stream()
        source = np.frombuffer(mapped, np.uint8)
        context.spread_async([each.address for each in arrays], source, BYTES, [stream] * 4)
        driver.synchronise(stream)
        del source
    for each in arrays:
        assert np.array_equal(each.numpy(), pinned)


def test_wrong_arguments_are_named(context, memory):
    _, pinned, arrays = memory
    with pytest.raises(InvalidArgument, match="4 of dst and 1 of streams"):
        context.spread_async(arrays, pinned, streams=[None])
    with pytest.raises(InvalidArgument, match=r"src has \d+ bytes, fewer than"):
        context.spread_async([each.address for each in arrays], pinned, BYTES + 1)
    with pytest.raises(InvalidArgument, match="destination 1: dst is null"):
        context.spread_async([arrays[0].address, 0], pinned, 8)
    with pytest.raises(InvalidArgument, match="destinations 0 and 1 overlap"):
        context.spread_async([arrays[0].address, arrays[0].address + 1], pinned, 8)
    with pytest.raises(WrongType, match="no sequence"):
        context.spread_async(arrays[0].address, pinned, 8)
    with pytest.raises(InvalidArgument, match="one is there twice"):
        context.prepare_spread("host0", [1, 1])
    with pytest.raises(InvalidArgument, match="source and destination are both"):
        context.plan_spread("gpu1", [1, 2], "1M")


def test_plan_names_the_parts(context):
    plan = context.plan_spread("host0", [0, 1, 2, 3], "256M")
    assert not plan["native"]
    assert [part["gpu"] for part in plan["parts"]] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert sum(part["bytes"] for part in plan["parts"]) == plan["bytes"]
    assert plan["predicted_gbps"] > 3 * plan["native_gbps"]
    assert context.plan_spread("host0", [0, 1], "256K")["native"]


def test_ranks_share_a_source(context, memory):
    _, pinned, arrays = memory
    comms = Communicator.all(context, range(4))

    def shared(comm):
        comm.spread(pinned, arrays[comm.rank])
        comm.synchronize(None)

    def of_one_rank(comm):
        comm.spread(pinned if comm.rank == 2 else None, arrays[comm.rank], root=2)
        comm.synchronize(None)
        return comm.report()["spreads"]

    on_all(comms, shared)
    for each in arrays:
        assert np.array_equal(each.numpy(), pinned)
    pinned[:] = ~pinned
    for counts in on_all(comms, of_one_rank):
        assert counts["calls"] == 2
        assert counts["native"] == 0
        assert counts["pieces"] > 2
    for each in arrays:
        assert np.array_equal(each.numpy(), pinned)
    for comm in comms:
        comm.close()


def test_command_plans(polypath):
    done = polypath("plan", "spread", "256M", "--node", NODE)
    assert done.returncode == 0, done.stderr
    assert "4 GPUs fetch a part each and send it on" in done.stdout
    done = polypath("plan", "spread", "64M", "--node", NODE, "--src", "gpu1", "--json", "-")
    assert json.loads(done.stdout)["gpus"] == ["gpu0", "gpu2", "gpu3"]


def test_command_measures(polypath, tmp_path):
    plot = tmp_path / "spread.svg"
    arguments = ("bench", "spread", "--node", NODE, "--sizes", "512K,32M")
    done = polypath(*arguments, "--json", "-", "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    small, large = json.loads(done.stdout)["rows"]
    assert small["native_calls"] == small["calls"]
    assert large["native_calls"] == 0
    assert [part["gpu"] for part in large["parts"]] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert large["speedup"] > 2.4
    assert large["verified"]
    assert small["verified"]
    assert plot.stat().st_size > 0


def test_command_measures_pageable_memory(polypath):
    arguments = ("bench", "spread", "--node", NODE, "--sizes", "16M", "--src", "host0:pageable")
    done = polypath(*arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["src"] == "host0:pageable"
    assert row["native_calls"] == 0
    assert row["speedup"] > 4
    assert row["verified"]


def test_command_measures_next_to_traffic(polypath):
    arguments = ("bench", "spread", "--node", NODE, "--sizes", "32M", "--iterations", "4")
    done = polypath(*arguments, "--beside", "h2d:gpu1", "--json", "-")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["verified"]
    assert row["idle"]["speedup"] > 2
