"""Integers that C would not take as they are, refused by their names wherever there are any."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from polypath import _api
from polypath.bootstrap import Bootstrap
from polypath.buffers import Buffer, as_buffer
from polypath.comm import Communicator, SymmetricMemory
from polypath.context import Context
from polypath.errors import InvalidArgument
from polypath.integers import Checked, Integers, array, checked_size, integer
from polypath.matching import OUTCOME, Matcher, outcome_of
from polypath.messaging import Pool, Queues
from polypath.streams import stream_handle
from polypath.uniconn import Communicator as Ranks
from polypath.uniconn import Coordinator, Environment, Memory

WRAPS_32, WRAPS_64 = 1 << 32, 1 << 64
NO_INTEGERS = [4.5, 1e3, "7", None, np.float64(1), [1]]


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        (ctypes.c_int, -(1 << 31), (1 << 31) - 1),
        (ctypes.c_uint32, 0, WRAPS_32 - 1),
        (ctypes.c_uint64, 0, WRAPS_64 - 1),
        (ctypes.c_size_t, 0, WRAPS_64 - 1),
    ],
)
def test_what_a_type_holds(kind, least, most):
    assert integer(least, kind, "x") == kind(least).value
    assert integer(most, kind, "x") == kind(most).value
    for value in least - 1, most + 1:
        with pytest.raises(InvalidArgument, match=f"^x: {value} is not allowed: .* to 2\\^"):
            integer(value, kind, "x")


@pytest.mark.parametrize("value", NO_INTEGERS)
def test_what_is_no_integer(value):
    with pytest.raises(InvalidArgument, match=r"^x: .* is no integer$"):
        integer(value, ctypes.c_int, "x")


@pytest.mark.parametrize("value", [np.int8(7), np.uint64(7), np.int64(7), 7])
def test_integers_of_numpy(value):
    number = integer(value, ctypes.c_int, "x")
    assert number == 7 and type(number) is int


def test_arrays_and_sizes():
    assert list(array(np.arange(3), ctypes.c_int, "x")) == [0, 1, 2]
    with pytest.raises(InvalidArgument, match="x: 4294967296 is not"):
        array([0, WRAPS_32], ctypes.c_int, "x")
    assert checked_size("4K") == checked_size(np.int32(4096)) == 4096
    with pytest.raises(InvalidArgument, match=r"bytes: 4\.5 is no integer"):
        checked_size(4.5)


def test_structures_and_parameters():
    class Two(Checked, ctypes.Structure):
        _fields_ = [("name", ctypes.c_char_p), ("count", ctypes.c_int), ("more", ctypes.c_uint32)]

    pair = Two(b"a", np.int64(5))
    assert (pair.name, pair.count, pair.more) == (b"a", 5, 0)
    with pytest.raises(InvalidArgument, match="more: -1 is not"):
        Two(b"a", 5, -1)
    unnamed = Integers([ctypes.c_int, ctypes.c_void_p])
    assert unnamed.checked((WRAPS_32, None)) == (WRAPS_32, None)


class Things(NamedTuple):
    """One rank of each kind, and what it has."""

    context: Context
    comm: Communicator
    symmetric: SymmetricMemory
    queues: Queues
    env: Environment
    ranks: Ranks
    step: Coordinator
    memory: Memory
    words: Memory


@pytest.fixture(scope="module")
def things() -> Iterator[Things]:
    with (
        pytest.MonkeyPatch.context() as patch,
        Context(node="narval") as context,
        Communicator.all(context, [0])[0] as comm,
        Queues.with_host(comm, "producer", 8, capacity=64, segment=16) as queues,
    ):
        patch.setenv("POLYPATH_NODE", "narval")
        for name in "RANK", "WORLD_SIZE":
            patch.delenv(name, raising=False)
        with Environment() as env:
            env.set_device(np.int64(0))
            with (
                Ranks(env) as ranks,
                Coordinator(env) as step,
                Memory(env, np.uint16(4096), "float32") as memory,
                Memory(env, 64) as words,
            ):
                yield Things(
                    *(context, comm, comm.alloc(np.int64(4096)), queues),
                    *(env, ranks, step, memory, words),
                )


#: The name of an integer, its bits, and a call that takes it.
CASES: list[tuple[str, int, Callable[[Things, Any], Any]]] = [
    # Contexts.
    ("bytes", 64, lambda on, x: on.context.copy_async(4096, 8192, x)),
    (r"transfers\[0\]: bytes", 64, lambda on, x: on.context.group_copy_async([(4096, 8192, x)])),
    ("bytes", 64, lambda on, x: on.context.prepare("gpu0", "gpu1", x)),
    ("bytes", 64, lambda on, x: on.context.plan("gpu0", "gpu1", x)),
    ("bytes", 64, lambda on, x: on.context.plan_collective("allreduce", x)),
    ("ranks", 32, lambda on, x: on.context.plan_collective("allreduce", 64, ranks=x)),
    ("ranks", 32, lambda on, x: on.context.plan_collective("allreduce", 64, ranks=[0, x])),
    ("root", 32, lambda on, x: on.context.plan_collective("reduce", 64, root=x)),
    ("nodes", 32, lambda on, x: on.context.plan_collective("reduce", 64, nodes=x)),
    ("max_blocks", 32, lambda on, x: on.context.plan_collective("reduce", 64, max_blocks=x)),
    ("bytes", 64, lambda on, x: on.context.plan_backend("post", x)),
    ("ranks", 32, lambda on, x: on.context.plan_backend("post", 64, ranks=x)),
    ("window", 32, lambda on, x: on.context.bench([("gpu0", "gpu1", 64)], window=x)),
    ("warmup", 32, lambda on, x: on.context.bench([("gpu0", "gpu1", 64)], warmup=x)),
    ("iterations", 32, lambda on, x: on.context.bench([("gpu0", "gpu1", 64)], iterations=x)),
    ("sizes", 64, lambda on, x: on.context.tune(sizes=["1M", x])),
    ("nodes", 32, lambda on, x: on.context.graph_phases("gpu0", "gpu1", "1M", x)),
    # Communicators.
    ("rank", 32, lambda on, x: Communicator(on.context, x, 1, 0, lambda own: [own])),
    ("gpu", 32, lambda on, x: Communicator(on.context, 0, 1, x, lambda own: [own])),
    ("gpus", 32, lambda on, x: Communicator.all(on.context, [0, x])),
    ("timeout_ms", 32, lambda on, x: Communicator.all(on.context, [0], x)),
    ("gpu", 32, lambda on, x: Communicator.from_environment(on.context, x)),
    ("port", 32, lambda on, x: Communicator.from_environment(on.context, 0, port=x)),
    ("rank", 32, lambda on, x: on.symmetric.address(x)),
    ("rank", 32, lambda on, x: on.comm.gpu(x)),
    ("color", 32, lambda on, x: on.comm.split(x)),
    ("key", 32, lambda on, x: on.comm.split(0, x)),
    ("bytes", 64, lambda on, x: on.comm.alloc(x)),
    ("to", 32, lambda on, x: on.comm.put(x, on.symmetric, 0, on.symmetric, 8)),
    ("offset", 64, lambda on, x: on.comm.put(0, on.symmetric, x, on.symmetric, 8)),
    ("bytes", 64, lambda on, x: on.comm.put(0, on.symmetric, 0, 4096, x)),
    ("value", 64, lambda on, x: on.comm.put(0, *_put(on), signal=(on.symmetric, 0, x))),
    ("offset", 64, lambda on, x: on.comm.put(0, *_put(on), signal=(on.symmetric, x, 1))),
    ("to", 32, lambda on, x: on.comm.signal(x, on.symmetric, 0, 1)),
    ("value", 64, lambda on, x: on.comm.signal(0, on.symmetric, 0, x)),
    ("value", 64, lambda on, x: on.comm.wait_signal(on.symmetric, 0, x)),
    ("blocks", 32, lambda on, x: on.comm.limit_blocks(x)),
    ("count", 64, lambda on, x: on.comm.allreduce(4096, 4096, "int8", count=x)),
    ("count", 64, lambda on, x: on.comm.reduce_scatter(4096, 4096, "int8", count=x)),
    ("count", 64, lambda on, x: on.comm.all_gather(4096, 4096, "int8", count=x)),
    ("count", 64, lambda on, x: on.comm.all_to_all(4096, 4096, "int8", count=x)),
    ("root", 32, lambda on, x: on.comm.broadcast(4096, 4096, "int8", x, count=1)),
    ("root", 32, lambda on, x: on.comm.reduce(4096, 4096, "int8", root=x, count=1)),
    # Messages.
    ("item_bytes", 64, lambda on, x: Queues.local(on.comm, x)),
    ("count", 32, lambda on, x: Queues.local(on.comm, 8, x)),
    ("capacity", 32, lambda on, x: Queues.local(on.comm, 8, capacity=x)),
    ("segment", 32, lambda on, x: Queues.connect_each(on.comm, 8, segment=x)),
    ("timeout_ms", 32, lambda on, x: Queues.local(on.comm, 8, timeout_ms=x)),
    ("source", 32, lambda on, x: Queues.connect(on.comm, x, 0, 8)),
    ("destination", 32, lambda on, x: Queues.connect(on.comm, 0, x, 8)),
    ("count", 32, lambda on, x: Queues.with_host(on.comm, "consumer", 8, x)),
    ("index", 32, lambda on, x: on.queues.view(x, "consumer")),
    ("index", 32, lambda on, x: on.queues.push(_ITEMS, x)),
    ("index", 32, lambda on, x: on.queues.try_push(_ITEMS, x)),
    ("index", 32, lambda on, x: on.queues.pop(_ITEMS, x)),
    ("index", 32, lambda on, x: on.queues.try_pop(_ITEMS, x)),
    ("index", 32, lambda on, x: on.queues.end(x)),
    ("bytes", 64, lambda on, x: Pool.local(on.comm, x)),
    ("slab_bytes", 32, lambda on, x: Pool.local(on.comm, 1 << 20, x)),
    ("returns", 32, lambda on, x: Pool.shared(on.comm, 1 << 20, 0, x)),
    ("capacity", 32, lambda on, x: Matcher(on.comm, x)),
    ("number", 32, lambda on, x: outcome_of(np.zeros(1, dtype=OUTCOME), x)),
    # UNICONN.
    ("size", 32, lambda on, x: Bootstrap.threads(x)),
    ("timeout_ms", 32, lambda on, x: Bootstrap.threads(1, x)),
    ("rank", 32, lambda on, x: Environment(Bootstrap(x, 1, lambda own: [own]))),
    ("size", 32, lambda on, x: Environment(Bootstrap(0, x, lambda own: [own]))),
    ("gpu", 32, lambda on, x: on.env.set_device(x)),
    ("size", 64, lambda on, x: Memory(on.env, x)),
    ("offset", 64, lambda on, x: on.memory.part(x)),
    ("bytes", 64, lambda on, x: on.memory.part(0, x)),
    ("color", 32, lambda on, x: on.ranks.split(x)),
    ("key", 32, lambda on, x: on.ranks.split(0, x)),
    ("value", 64, lambda on, x: on.step.post(on.memory, on.memory, on.words, x, 0, on.ranks)),
    ("to", 32, lambda on, x: on.step.post(on.memory, on.memory, on.words, 1, x, on.ranks)),
    ("value", 64, lambda on, x: on.step.acknowledge(on.memory, on.words, x, 0, on.ranks)),
    ("source", 32, lambda on, x: on.step.acknowledge(on.memory, on.words, 1, x, on.ranks)),
    ("bytes", 64, lambda on, x: on.step.all_gather(on.memory, on.memory, x, on.ranks)),
    ("bytes", 64, lambda on, x: on.step.all_to_all(on.memory, on.memory, x, on.ranks)),
    ("root", 32, lambda on, x: on.step.broadcast(on.memory, x, on.ranks)),
    ("bytes", 64, lambda on, x: on.step.broadcast(on.memory, 0, on.ranks, x)),
    ("root", 32, lambda on, x: on.step.gather(on.memory, on.memory, 8, x, on.ranks)),
    ("root", 32, lambda on, x: on.step.scatter(on.memory, on.memory, 8, x, on.ranks)),
    ("counts", 64, lambda on, x: on.step.all_gatherv(None, on.memory, [x], [0], on.ranks)),
    ("displs", 64, lambda on, x: on.step.gatherv(None, on.memory, [8], [x], 0, on.ranks)),
    ("root", 32, lambda on, x: on.step.scatterv(on.memory, None, [8], [0], x, on.ranks)),
    ("send_counts", 64, lambda on, x: on.step.all_to_allv(8, [x], [0], 8, [1], [0], on.ranks)),
    ("recv_displs", 64, lambda on, x: on.step.all_to_allv(8, [1], [0], 8, [1], [x], on.ranks)),
    ("count", 64, lambda on, x: on.step.all_reduce(8, 8, "int8", on.ranks, count=x)),
    ("root", 32, lambda on, x: on.step.reduce(8, 8, "int8", x, on.ranks, count=1)),
]
_ITEMS = (ctypes.c_uint64 * 1)()


def _put(on: Things) -> tuple[SymmetricMemory, int, SymmetricMemory, int]:
    return on.symmetric, 0, on.symmetric, 8


@pytest.mark.parametrize(("name", "bits", "call"), CASES)
def test_every_call_refuses(things, name, bits, call):
    for value in (WRAPS_32 if bits == 32 else -1), WRAPS_64 + 1, 4.5:
        with pytest.raises(InvalidArgument, match=rf"^{name}: {value} is (not allowed|no integer)"):
            call(things, value)


@pytest.mark.parametrize("value", [-1, WRAPS_64])
def test_addresses_and_streams(value):
    with pytest.raises(InvalidArgument, match=f"^src: {value} is not allowed"):
        as_buffer(value, "src")
    with pytest.raises(InvalidArgument, match=f"^stream: {value} is not allowed"):
        stream_handle(value)


def test_integers_of_numpy_are_taken(things):
    unit, none = np.int64(1), np.uint8(0)
    things.comm.put(none, things.symmetric, np.int64(8), things.symmetric, np.int16(8))
    things.comm.signal(none, things.symmetric, none, unit)
    things.comm.wait_signal(things.symmetric, none, unit)
    part = things.memory.part(np.int64(8), np.int64(8))
    assert part == Buffer(things.memory.address + 8, 8)
    things.step.post(part, things.memory, things.words, unit, none, things.ranks)
    things.step.acknowledge(part, things.words, unit, none, things.ranks)
    things.step.all_gatherv(None, things.memory, np.array([8]), np.array([0]), things.ranks)
    things.step.wait()
    assert things.context.plan_collective("allreduce", 4096, ranks=np.int64(2))["gpus"] == [0, 1]


def test_buffers_of_no_whole_number_of_elements(things):
    part = things.memory.part(0, 10)
    refused = pytest.raises(InvalidArgument, match="send: 10 bytes are no whole number of float32")
    with refused:
        things.step.all_reduce(part, things.memory, "float32", things.ranks)
    with refused:
        things.comm.allreduce(part, things.memory, "float32")
    things.step.all_reduce(part, things.memory, "float32", things.ranks, count=2)
    things.step.wait()
    with pytest.raises(InvalidArgument, match="9 bytes are no whole number of int8 for each of 2"):
        _api.elements(Buffer(4096, 9), "int8", 2)
