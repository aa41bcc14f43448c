"""What test_torch.py runs: ranks of the backend as threads on a simulated node, with the stand-in
of torch. ``torch_ranks.py CASE``; every element is compared."""

from __future__ import annotations

import math
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import polypath
import polypath.torch
import torch
from polypath.torch import comm_creation, norm
from torch import cuda, distributed
from torch.distributed import distributed_c10d as c10d

SIZE = 4
COUNT = 1003
NODE = "hgx-h200-x4"
OP = distributed.ReduceOp


class Store:
    """As torch.distributed.Store, for threads."""

    def __init__(self) -> None:
        self.changed, self.values = threading.Condition(), {}

    def set(self, key: str, value: Any) -> None:
        with self.changed:
            self.values[key] = value.encode() if isinstance(value, str) else value
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        self.wait([key], timedelta(seconds=60))
        return self.values[key]

    def wait(self, keys: list[str], limit: timedelta) -> None:
        def there() -> bool:
            return all(key in self.values for key in keys)

        with self.changed:
            assert self.changed.wait_for(there, limit.total_seconds()), keys

    def add(self, key: str, amount: int) -> int:
        with self.changed:
            self.values[key] = self.values.get(key, 0) + amount
            return self.values[key]


class Elsewhere:
    """In place of NCCL and Gloo: says what came."""

    def __init__(self, name: str, counts: Counter[str]) -> None:
        self._name, self._counts = name, counts

    def __getattr__(self, operation: str) -> Callable[..., str]:
        def carry(*_: Any, **__: Any) -> str:
            self._counts[f"{self._name} {operation}"] += 1
            return operation

        return carry


class Arrival:
    """A batch that arrives at a pair of ranks: after `wait` the current stream has what came."""

    def __init__(self, store: Store, messages: list[tuple[str, Any]]) -> None:
        self._store, self._messages = store, messages

    def wait(self) -> None:
        for key, tensor in self._messages:
            sent, ready = self._store.get(key)
            ready.wait(cuda.current_stream())
            tensor.copy_(sent)


class Pair:
    """In place of a group of NCCL of two ranks, by copies. The end of its first batch waits for the
    other rank, as calls of NCCL do that set something up; those that follow do not wait."""

    def __init__(self, store: Store, rank: int, peer: int) -> None:
        low, high = sorted((rank, peer))
        self._store, self._key, self._place = store, f"pair/{low}-{high}", int(rank > peer)
        self._peers = int(low != high)
        self._numbers: Counter[str] = Counter()
        self._batch: list[tuple[str, str, Any]] | None = None
        self._there = False

    def _start_coalescing(self, device: Any) -> None:
        assert self._batch is None
        self._batch = []

    def _add(self, kind: str, sender: int, tensor: Any) -> None:
        number = self._numbers[kind]
        self._numbers[kind] += 1
        self._batch.append((kind, f"{self._key}/from {sender}/{number}", tensor))

    def send(self, tensors: list[Any], peer: int, tag: int) -> None:
        assert (peer != self._place) == self._peers
        self._add("send", self._place, tensors[0])

    def recv(self, tensors: list[Any], peer: int, tag: int) -> None:
        assert (peer != self._place) == self._peers
        self._add("recv", peer, tensors[0])

    def _end_coalescing(self, device: Any) -> Arrival:
        batch, self._batch = self._batch, None
        if not self._there:
            self._store.set(f"{self._key}/there/{self._place}", "")
            self._store.get(f"{self._key}/there/{self._peers - self._place}")
            self._there = True
        ready = cuda.Event()
        ready.record(cuda.current_stream())
        for kind, key, tensor in batch:
            if kind == "send":
                self._store.set(key, (tensor, ready))
        return Arrival(
            self._store, [(key, tensor) for kind, key, tensor in batch if kind == "recv"]
        )


class Rank:
    def __init__(self, rank: int, store: Store, size: int = SIZE) -> None:
        self.rank, self.size = rank, size
        self.device = torch.device("cuda", rank)
        options = SimpleNamespace(
            store=store,
            group_rank=rank,
            group_size=size,
            timeout=60.0,
            group_id="world",
            global_ranks_in_group=[],
        )
        self.group = distributed.Backend._plugins["POLYPATH"](options)
        self.forwarded: Counter[str] = Counter()
        self.group._others.nccl = lambda: Elsewhere("nccl", self.forwarded)
        self.group._others.pair = lambda peer: Pair(store, rank, peer)
        self.group._others.gloo = lambda: Elsewhere("gloo", self.forwarded)

    def options(self, kind: type, late: bool = False, **fields: Any) -> Any:
        opts = kind()
        opts.asyncOp = late
        for name, value in fields.items():
            setattr(opts, name, value)
        return opts

    def tensor(self, values: np.ndarray) -> Any:
        return torch.tensor(values, self.device)

    def poisoned(self, like: np.ndarray) -> Any:
        return self.tensor(np.full_like(like, 93))


def values(rank: int, kind: str, count: int = COUNT, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng([rank, seed])
    if kind == "bool":
        return generator.integers(0, 2, count).astype(bool)
    if kind.startswith("complex"):
        return (generator.normal(size=count) + 1j * generator.normal(size=count)).astype(kind)
    if kind.startswith("float"):
        return generator.normal(size=count).astype(kind)
    return generator.integers(0, 50, count).astype(kind)


def all_values(kind: str, count: int = COUNT, size: int = SIZE) -> list[np.ndarray]:
    return [values(rank, kind, count) for rank in range(size)]


def combined(kind: str, op: str, count: int = COUNT) -> np.ndarray:
    """In rank order; half types in float32."""
    wide = np.dtype("float32" if kind == "float16" else kind)
    first, *more = (part.astype(wide) for part in all_values(kind, count))
    with np.errstate(over="ignore"):
        for other in more:
            if kind == "bool":
                first = first | other if op in ("SUM", "MAX") else first & other
            elif op in ("SUM", "AVG"):
                first = (first + other).astype(wide)
            elif op == "PRODUCT":
                first = (first * other).astype(wide)
            else:
                first = np.minimum(first, other) if op == "MIN" else np.maximum(first, other)
    if op == "AVG":
        whole = np.issubdtype(wide, np.integer)
        first = np.trunc(first / SIZE).astype(wide) if whole else first / wide.type(SIZE)
    return first.astype(kind)


def same(tensor: Any, expected: np.ndarray, what: str) -> None:
    actual = tensor.numpy()
    assert actual.dtype == expected.dtype and actual.tobytes() == expected.tobytes(), (
        f"{what}: {np.flatnonzero(actual.ravel() != expected.ravel())[:5]} of {actual.size} differ"
    )


# ---- Cases: each rank's own part -----------------------------------------------------------------


def reductions(on: Rank) -> None:
    kinds = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64")
    pairs = [(kind, op) for kind in kinds for op in ("SUM", "PRODUCT", "MIN", "MAX", "AVG")]
    pairs += [("bool", op) for op in ("SUM", "PRODUCT", "MIN", "MAX")]
    pairs += [("complex64", "SUM"), ("complex128", "SUM")]
    for kind, op in pairs:
        what = f"{op} of {kind}"
        own, expected = values(on.rank, kind), combined(kind, op)
        for late in (False, True):
            tensor = on.tensor(own)
            opts = on.options(c10d.AllreduceOptions, late, reduceOp=getattr(OP, op))
            on.group.allreduce([tensor], opts).wait()
            same(tensor, expected, what)
        tensor = on.tensor(own)
        opts = on.options(c10d.ReduceOptions, True, reduceOp=getattr(OP, op), rootRank=2)
        on.group.reduce([tensor], opts).wait()
        same(tensor, expected if on.rank == 2 else own, what)
        contribution, output = on.tensor(values(on.rank, kind, 8 * SIZE)), on.poisoned(own[:8])
        expected = combined(kind, op, 8 * SIZE).reshape(SIZE, 8)[on.rank]
        opts = on.options(c10d.ReduceScatterOptions, True, reduceOp=getattr(OP, op))
        on.group._reduce_scatter_base(output, contribution, opts).wait()
        same(output, expected, what)
        output = on.poisoned(own[:8])
        parts = list(contribution.view((SIZE, 8)))
        on.group.reduce_scatter([output], [parts], opts).wait()
        same(output, expected, what)
    assert calls(on) == 5 * len(pairs) and not on.forwarded, (on.group.report(), on.forwarded)


def layouts_of_lists(on: Rank) -> None:
    """Shapes of the own tensor, and memory formats, that differ by rank."""
    shape, last = (1, 2, 3, 4), torch.channels_last
    inputs = [values(rank, "float32", 24 * SIZE) for rank in range(SIZE)]
    expected = combined("float32", "SUM", 24 * SIZE).reshape(SIZE, 24)[on.rank]
    stored = np.ascontiguousarray(expected.reshape(shape).transpose(0, 2, 3, 1))
    for kinds in (("contiguous",), (last,), ("contiguous", last)):
        opts = on.options(c10d.ReduceScatterOptions, True)
        output, contribution = on.poisoned(expected).view(shape), on.tensor(inputs[on.rank])
        output.format = kinds[on.rank % len(kinds)]
        parts = [part.view(shape) for part in contribution.view((SIZE, 24))]
        on.group.reduce_scatter([output], [parts], opts).wait()
        is_last = output.format == last
        same(output.view((24,)), (stored if is_last else expected).ravel(), str(kinds))
    own = on.tensor(values(on.rank, "int32", 12)).view((12,) if on.rank == 1 else (3, 4))
    listed = [on.poisoned(values(0, "int32", 12)).view((3, 4)) for _ in range(SIZE)]
    on.group.allgather([listed], [own], on.options(c10d.AllgatherOptions, True)).wait()
    for rank, part in enumerate(listed):
        same(part.view((12,)), values(rank, "int32", 12), "gathered")
    output = on.poisoned(expected).view((24,) if on.rank == 2 else (4, 6))
    parts = [part.view((4, 6)) for part in on.tensor(inputs[on.rank]).view((SIZE, 24))]
    opts = on.options(c10d.ReduceScatterOptions, True)
    on.group.reduce_scatter([output], [parts], opts).wait()
    same(output.view((24,)), expected, "scattered")
    assert calls(on) == 5 and not on.forwarded, (on.group.report(), on.forwarded)
    few, other = on.tensor(values(0, "int32", 5)), on.tensor(values(0, "float32", 12))
    for wrong, reason in (
        (
            lambda: on.group.allgather([listed], [few]),
            "5 elements, and each of outputs 12",
        ),
        (lambda: on.group.allgather([listed], [other]), "input is of"),
        (lambda: on.group.reduce_scatter([other], [parts]), "output has 12 elements"),
    ):
        try:
            wrong()
        except ValueError as error:
            assert str(error).startswith(f"rank {on.rank}: ") and reason in str(error), error
        else:
            raise AssertionError(reason)


def uneven(on: Rank) -> None:
    """Lists whose tensors differ in size by rank, one of them empty."""
    shapes = [(7, 3), (0, 3), (1, 3), (400, 3)]
    counts = [math.prod(shape) for shape in shapes]
    begins = [sum(counts[:rank]) for rank in range(SIZE + 1)]
    own = slice(begins[on.rank], begins[on.rank + 1])
    on.group.allreduce([on.tensor(values(0, "int32", 1))])
    cuda.pretend_capture(True)  # what loads kernels goes elsewhere
    listed = [torch.empty(shape, torch.float32, on.device) for shape in shapes]
    on.group.allgather([listed], [on.tensor(values(0, "float32", 1))])
    cuda.pretend_capture(False)
    assert on.forwarded == {"nccl allgather": 1}, on.forwarded
    for kind in ("float32", "int64", "bool"):
        for late in (False, True):
            opts = on.options(c10d.AllgatherOptions, late)
            like = values(0, kind, max(counts))
            listed = [
                on.poisoned(like[:count]).view(shape)
                for count, shape in zip(counts, shapes, strict=True)
            ]
            contribution = on.tensor(values(on.rank, kind, counts[on.rank]))
            contribution = contribution.view(shapes[on.rank])
            on.group.allgather([listed], [contribution], opts).wait()
            for rank, part in enumerate(listed):
                same(part.view((counts[rank],)), values(rank, kind, counts[rank]), kind)
            whole = on.tensor(values(on.rank, kind, begins[-1]))
            parts = [
                whole[begins[rank] : begins[rank + 1]].view(shapes[rank]) for rank in range(SIZE)
            ]
            output = on.poisoned(like[: counts[on.rank]]).view(shapes[on.rank])
            opts = on.options(c10d.ReduceScatterOptions, late)
            on.group.reduce_scatter([output], [parts], opts).wait()
            same(output.view((counts[on.rank],)), combined(kind, "SUM", begins[-1])[own], kind)
    report = on.group.report()["polypath"]
    assert report["uneven"] == 12 and calls(on) == 13, report
    try:
        on.group.allgather([listed], [on.tensor(values(0, "bool", 5))])
    except ValueError as error:
        assert f"input has 5 elements, and each of outputs {counts[on.rank]}" in str(error), error
    else:
        raise AssertionError("not refused")


def moves(on: Rank) -> None:
    kinds = ("float32", "float16", "int64", "bool", "int16", "complex128")
    for kind in kinds:
        own, every = values(on.rank, kind), np.concatenate(all_values(kind))
        opts = on.options(c10d.AllgatherOptions, True)
        output = on.poisoned(every)
        on.group._allgather_base(output, on.tensor(own), opts).wait()
        same(output, every, kind)
        listed = [on.poisoned(own) for _ in range(SIZE)]
        on.group.allgather([listed], [on.tensor(own)], opts).wait()
        for rank, part in enumerate(listed):
            same(part, values(rank, kind), kind)
        tensor = on.tensor(own) if on.rank == 1 else on.poisoned(own)
        on.group.broadcast([tensor], on.options(c10d.BroadcastOptions, rootRank=1)).wait()
        same(tensor, values(1, kind), kind)
        sent = values(on.rank, kind, 12 * SIZE)
        output = on.poisoned(sent)
        on.group.alltoall_base(output, on.tensor(sent), [], [], None).wait()
        received = [part.reshape(SIZE, 12)[on.rank] for part in all_values(kind, 12 * SIZE)]
        same(output, np.concatenate(received), kind)
    assert calls(on) == 4 * len(kinds) and not on.forwarded, (on.group.report(), on.forwarded)


def order(on: Rank) -> None:
    """Asynchronous calls come after what is on the current stream, and `wait` puts what follows
    after them: contents are written late, and read after the current stream alone."""
    slow = [torch.empty(32 << 20, torch.uint8, on.device) for _ in range(2)]
    expected = combined("float32", "SUM", 2**16)
    for turn in range(3):
        tensor = on.poisoned(expected)
        ready = on.tensor(values(on.rank, "float32", 2**16))
        if turn % SIZE == on.rank or turn == 0:
            for _ in range(4):
                slow[0].copy_(slow[1])
        tensor.copy_(ready)
        opts = on.options(c10d.AllreduceOptions, True)
        work = on.group.allreduce([tensor], opts)
        assert tensor.recorded == [on.group._connection._side]
        if turn < 2:
            work.wait()
        else:
            assert work.get_future().wait() == [tensor]
        same(tensor, expected, f"turn {turn}")
    bucket = distributed.GradBucket(on.tensor(values(on.rank, "float32")))
    future = polypath.torch.allreduce_hook(on.group, bucket)
    assert future.wait() is bucket.buffer()
    same(bucket.buffer(), combined("float32", "AVG"), "hook")
    tensors = [on.tensor(values(on.rank, "int32", count)) for count in (1, 17, COUNT)]
    on.group.allreduce_coalesced(tensors, on.options(c10d.AllreduceCoalescedOptions)).wait()
    for tensor in tensors:
        same(tensor, combined("int32", "SUM", tensor.numel()), "coalesced")
    # Whether a call is asynchronous is each rank's own matter, at any size.
    for mixed in range(2):
        tensor = on.tensor(values(on.rank, "float32", 2**20))
        opts = on.options(c10d.AllreduceOptions, (on.rank + mixed) % 2 == 0)
        on.group.allreduce([tensor], opts).wait()
        same(tensor, combined("float32", "SUM", 2**20), "asynchronous on some ranks")
    work = on.group.barrier()
    work.wait()
    assert work.is_completed() and calls(on) == 3 + 1 + 3 + 2 + 1


def choice(on: Rank) -> None:
    """What is not polypath's goes elsewhere, and what is wrong is refused."""
    tensor = on.tensor(values(on.rank, "float32", 4 * SIZE))
    host = torch.empty(3, torch.float32, torch.device("cpu"))
    short = on.tensor(values(on.rank, "int16", 8))
    group = on.group
    group.allreduce([tensor], on.options(c10d.AllreduceOptions, reduceOp=OP.BAND))
    group.allreduce([short], on.options(c10d.AllreduceOptions))
    group.allreduce([on.tensor(values(0, "bool"))], on.options(c10d.AllreduceOptions, reduceOp=1))
    group.alltoall_base(tensor, tensor, [1, 2], [2, 1], None)
    group.alltoall([tensor], [tensor])
    group.allgather([[tensor, short, tensor, tensor]], [tensor])
    group.gather([], [tensor])
    group.scatter([tensor], [])
    group.send([tensor], (on.rank + 1) % SIZE, 0)
    group.recv([tensor], (on.rank - 1) % SIZE, 0)
    group.allreduce([host], on.options(c10d.AllreduceOptions))
    group.send([host], 0, 0)
    assert on.forwarded == {
        "nccl allreduce": 3,
        "nccl alltoall_base": 1,
        "nccl alltoall": 1,
        "nccl allgather": 1,
        "nccl gather": 1,
        "nccl scatter": 1,
        "nccl send": 1,
        "nccl recv": 1,
        "gloo allreduce": 1,
        "gloo send": 1,
    }, on.forwarded
    assert sum(group.report()["elsewhere"].values()) == 10 and calls(on) == 0
    apart, away = on.tensor(values(0, "float32")), on.tensor(values(0, "float32"))
    apart.format, away.device = None, torch.device("cuda", 7)
    for wrong, reason in (
        (lambda: group.allreduce([apart]), "allreduce: tensor: tensors must be contiguous"),
        (lambda: group.allreduce([away]), "is on cuda:7,"),
        (lambda: group._allgather_base(tensor, tensor), "times 16 of input are wanted"),
        (lambda: group._reduce_scatter_base(short, tensor), "is of"),
    ):
        try:
            wrong()
        except ValueError as error:
            assert str(error).startswith(f"rank {on.rank}: ") and reason in str(error), error
        else:
            raise AssertionError(reason)
    empty = torch.empty(0, torch.float32, on.device)
    group.allreduce([empty]).wait()
    group.allreduce(tensor, OP.MAX).wait()  # the short form
    assert calls(on) == 1, on.group.report()  # a call without elements is none


def messages(on: Rank) -> None:
    """Batches in which all ranks send first: a ring, pairs, all to all, a rank and itself; the
    first of their ranks and later ones."""
    cuda.pretend_capture(True)
    try:
        exchange(on, 0, [on.rank], [on.rank])
        raise AssertionError("captured")
    except RuntimeError as error:
        assert f"rank {on.rank}" in str(error) and "capture" in str(error), error
    cuda.pretend_capture(False)
    right, left = (on.rank + 1) % SIZE, (on.rank - 1) % SIZE
    other_ranks = [rank for rank in range(SIZE) if rank != on.rank]
    for turn in range(0, 10, 5):
        exchange(on, turn, [right], [left])
        exchange(on, turn + 1, [on.rank ^ 1], [on.rank ^ 1])
        exchange(on, turn + 2, other_ranks, other_ranks[::-1])
        exchange(on, turn + 3, [on.rank ^ 2] * 3, [on.rank ^ 2] * 3)
        exchange(on, turn + 4, [on.rank], [on.rank])
    host = torch.empty(3, torch.float32, torch.device("cpu"))
    c10d.batch_isend_irecv([c10d.P2POp(c10d.isend, host, right, on.group)])
    assert on.forwarded == {"gloo send": 1} and calls(on) == 0, on.forwarded
    sent = on.group.report()["elsewhere"]["nccl send"]
    assert sent == 2 * (1 + 1 + len(other_ranks) + 3 + 1), on.group.report()


def exchange(on: Rank, seed: int, sends: list[int], recvs: list[int]) -> None:
    def sent(source: int, to: int, number: int) -> np.ndarray:
        return values(source, "float32", seed=100 * (seed * SIZE + to) + number)

    payloads = [on.tensor(sent(on.rank, to, sends[:at].count(to))) for at, to in enumerate(sends)]
    outputs = [on.poisoned(values(0, "float32")) for _ in recvs]
    ops = [c10d.P2POp(c10d.isend, *pair, on.group) for pair in zip(payloads, sends, strict=True)]
    ops += [c10d.P2POp(c10d.irecv, *pair, on.group) for pair in zip(outputs, recvs, strict=True)]
    (work,) = c10d.batch_isend_irecv(ops)
    work.wait()
    for at, source in enumerate(recvs):
        expected = sent(source, on.rank, recvs[:at].count(source))
        same(outputs[at], expected, f"batch {seed}, from {source}")


def alone(on: Rank) -> None:
    """Ranks that have no communicator agree on that; the first call must not be captured."""
    tensor = on.tensor(values(on.rank, "float32"))
    cuda.pretend_capture(True)
    try:
        on.group.allreduce([tensor])
        raise AssertionError("captured")
    except RuntimeError as error:
        assert f"rank {on.rank}" in str(error) and "capture" in str(error), error
    cuda.pretend_capture(False)
    if on.rank == 2:
        comm_creation.context_of[threading.get_ident()] = None
    on.group.allreduce([tensor])
    assert on.forwarded == {"nccl allreduce": 1}, on.forwarded
    assert on.group.report()["reason"] == "rank 2: it has no driver", on.group.report()


def norms(on: Rank) -> None:
    """Rows of an odd sum of squares: one is enough to see which tensor went where. The order of
    sums has tests of its own."""
    rows, hidden, epsilon = 3, 8, 1e-6
    contribution = np.full((rows, hidden), 2.0**on.rank, np.float16)
    residual = np.arange(rows * hidden, dtype=np.float16).reshape(rows, hidden)
    weight = np.full(hidden, 0.5, np.float16)
    expected_residual = (residual + np.float16(2**SIZE - 1)).astype(np.float16)
    wide = expected_residual.astype(np.float32)
    mean = (wide * wide).sum(1, dtype=np.float32) * np.float32(1 / hidden)  # exact: small integers
    factor = np.float32(1) / np.sqrt(mean + np.float32(epsilon))
    expected = (wide * factor[:, None] * np.float32(0.5)).astype(np.float16)
    tensors = [on.tensor(values) for values in (contribution, weight, residual)]
    output, after = on.group.all_reduce_norm(*tensors[:2], epsilon, residual=tensors[2])
    same(output, expected, "output")
    same(after, expected_residual, "residual")
    same(tensors[2], residual, "residual that was not in place")
    if on.rank == 0:
        distributed.distributed_c10d._world = SimpleNamespace(pg_names={on.group: "norms"})
        for name, words in (("norms", None), ("none", "there is no group 'none'")):
            try:
                assert norm._group(name) is on.group and words is None
            except ValueError as error:
                assert words == str(error), error
    polypath.torch.ProcessGroupPolypath.all_reduce_norm(
        on.group,
        *tensors[:2],
        epsilon,
        residual=tensors[2],
        residual_out=tensors[2],
        output=tensors[0],
    )
    same(tensors[0], expected, "output in place")
    same(tensors[2], expected_residual, "residual in place")
    half, short = on.tensor(values(0, "float16", 8)), on.tensor(values(0, "float32", 8))
    for wrong, reason in (
        (lambda: on.group.all_reduce_norm(output, half[0:4], epsilon), "weight has 4 elements"),
        (lambda: on.group.all_reduce_norm(output, short, epsilon), "weight is of"),
        (
            lambda: on.group.all_reduce_norm(output, half, epsilon, residual=half),
            "residual is (8,)",
        ),
        (lambda: on.group.all_reduce_norm(output, half, epsilon, scale=half), "scale is not one"),
    ):
        try:
            wrong()
        except ValueError as error:
            assert str(error).startswith(f"rank {on.rank}: ") and reason in str(error), error
        else:
            raise AssertionError(reason)
    assert on.group.report()["polypath"]["norms"] == {"fused": 2, "apart": 0}


def calls(on: Rank) -> int:
    carried = on.group.report()["polypath"] or {}
    others = (
        "scratch_bytes",
        "puts",
        "spreads",
        "uneven",
        "direct",
        "by_first_scratch",
        "sum_order",
        "norms",
    )
    return sum(count for name, count in carried.items() if name not in others)


# ---- All ranks -----------------------------------------------------------------------------------


def main(case: Callable[[Rank], None]) -> None:
    context = polypath.Context(node=NODE)
    library = context.devices()["driver"]["library"]
    store, failed = Store(), []
    comm_creation.context_of = {}

    def of_rank() -> polypath.Context:
        if threading.get_ident() in comm_creation.context_of:
            raise polypath.NoDevice("it has no driver")
        return context

    comm_creation.context = of_rank

    def run(rank: int) -> None:
        try:
            cuda.use(library, rank)
            on = Rank(rank, store)
            case(on)
            on.group.shutdown()
        except BaseException as error:
            failed.append(f"rank {rank}: {type(error).__name__}: {error}")
            on.group.abort()
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    context.close()
    print("all right")


if __name__ == "__main__":
    main(globals()[sys.argv[1]])
