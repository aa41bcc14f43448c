"""The checks of check_torch_collectives.py: what the backend does, on each rank's GPU."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import train_ddp
from polypath.torch import ddp
from torch import Tensor
from torch_hook_checks import check_hooks, name_of
from train_models import TASKS

POISON = 93
LIMIT = timedelta(minutes=2)
HALF_A_SECOND = 10**9  # cycles of the GPU, about

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
OPERATORS = ("SUM", "PRODUCT", "MIN", "MAX", "AVG")
COUNTS = (1, 3, 1000, 16384, 262147, 3 * 2**20 + 1)


class Place:
    """This rank, its GPU, and the groups."""

    def __init__(self) -> None:
        self.gpu = int(os.environ.get("LOCAL_RANK", "0"))
        torch.cuda.set_device(self.gpu)
        self.device = torch.device("cuda", self.gpu)
        dist.init_process_group("cpu:gloo,cuda:polypath", timeout=LIMIT)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.group: Any = dist.group.WORLD
        self.nccl = dist.new_group(backend="nccl", timeout=LIMIT)
        dist.all_reduce(torch.zeros(1, device=self.device))  # with it comes the communicator

    def values(self, rank: int, count: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
        """What `rank` gives: the same wherever it is asked for."""
        generator = torch.Generator(self.device).manual_seed(1 + rank + 1000 * seed)
        if dtype.is_floating_point:
            return torch.randn(count, generator=generator, device=self.device).to(dtype)
        if dtype.is_complex:
            return torch.randn(count, generator=generator, device=self.device, dtype=dtype)
        top = 2 if dtype == torch.bool else 100
        return torch.randint(0, top, (count,), generator=generator, device=self.device).to(dtype)

    def poisoned(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.full((count,), POISON, device=self.device).to(dtype)

    def combined(self, count: int, dtype: torch.dtype, op: str, seed: int = 0) -> Tensor:
        """In rank order; half types in float32, rounded once."""
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        contributions = [
            self.values(rank, count, dtype, seed).to(wide) for rank in range(self.size)
        ]
        if dtype.is_complex:
            contributions = [torch.view_as_real(values) for values in contributions]
        result = contributions[0]
        for other in contributions[1:]:
            if op in ("SUM", "AVG"):
                result = result + other
            elif op == "PRODUCT":
                result = result * other
            else:
                result = torch.minimum(result, other) if op == "MIN" else result.maximum(other)
        if op == "AVG":
            if result.is_floating_point():
                result = result / self.size
            else:
                result = result.div(self.size, rounding_mode="trunc")
        return torch.view_as_complex(result) if dtype.is_complex else result.to(dtype)

    def own_calls(self) -> int:
        """Calls that polypath carried so far."""
        carried = self.group.report()["polypath"] or {}
        counted = {name: count for name, count in carried.items() if isinstance(count, int)}
        return sum(counted.values()) - sum(
            counted.get(name, 0) for name in ("scratch_bytes", "uneven")
        )

    def elsewhere(self) -> dict[str, int]:
        return dict(self.group.report()["elsewhere"])


def same(actual: Tensor, expected: Tensor, what: str) -> None:
    """Bit by bit, but for NaN."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype, what
    if torch.equal(actual, expected):
        return
    wrong = (actual != expected).flatten().nonzero().flatten()
    first = int(wrong[0]) if len(wrong) else -1
    raise AssertionError(
        f"{what}: {len(wrong)} of {actual.numel()} elements differ, at {first} "
        f"{actual.flatten()[first].item()} instead of {expected.flatten()[first].item()}"
    )


def finish(work: Any) -> None:
    if work is not None:
        work.wait()


def types_and_operators() -> list[tuple[torch.dtype, str]]:
    pairs = [(dtype, op) for dtype in FLOATS + INTEGERS for op in OPERATORS]
    pairs += [(torch.bool, "MIN"), (torch.bool, "MAX")]
    return [*pairs, (torch.complex64, "SUM"), (torch.complex128, "AVG")]


# ---- Checks --------------------------------------------------------------------------------------


def check_reductions(on: Place) -> int:
    """allreduce, reduce, reduce_scatter in their forms, with every type and operator."""
    calls, before, others = 0, on.own_calls(), on.elsewhere()
    for number, (dtype, name) in enumerate(types_and_operators()):
        op = getattr(dist.ReduceOp, name)
        for count in COUNTS:
            seed, what = number * 10, f"{name} of {count} {dtype}"
            whole = count * on.size
            expected, parts = on.combined(count, dtype, name, seed), None
            for late in (False, True):
                tensor = on.values(on.rank, count, dtype, seed)
                finish(dist.all_reduce(tensor, op, async_op=late))
                same(tensor, expected, f"all_reduce {what}, async {late}")
                calls += 1
            root = number % on.size
            tensor = on.values(on.rank, count, dtype, seed)
            dist.reduce(tensor, root, op)
            expected_at_rank = (
                expected if on.rank == root else on.values(on.rank, count, dtype, seed)
            )
            same(tensor, expected_at_rank, f"reduce {what}")
            parts = on.combined(whole, dtype, name, seed + 1).view(on.size, count)
            contribution = on.values(on.rank, whole, dtype, seed + 1)
            output = on.poisoned(count, dtype)
            dist.reduce_scatter_tensor(output, contribution, op)
            same(output, parts[on.rank], f"reduce_scatter_tensor {what}")
            output = on.poisoned(count, dtype)
            finish(
                dist.reduce_scatter(output, list(contribution.chunk(on.size)), op, async_op=True)
            )
            same(output, parts[on.rank], f"reduce_scatter {what}")
            calls += 3
    assert on.own_calls() == before + calls and on.elsewhere() == others, on.group.report()
    return calls


def check_bool_is_or(on: Place) -> int:
    tensor = on.values(on.rank, 1001, torch.bool)
    dist.all_reduce(tensor)
    expected = torch.stack([on.values(rank, 1001, torch.bool) for rank in range(on.size)])
    same(tensor, expected.any(0), "sum of bool")
    return 1


def check_moves(on: Place) -> int:
    """all_gather, broadcast and all_to_all in their forms, with every type."""
    calls, before, others = 0, on.own_calls(), on.elsewhere()
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.int16, torch.complex128):
        for count in COUNTS:
            what = f"{count} {dtype}"
            own = on.values(on.rank, count, dtype)
            every = torch.cat([on.values(rank, count, dtype) for rank in range(on.size)])
            for late in (False, True):
                output = on.poisoned(count * on.size, dtype)
                finish(dist.all_gather_into_tensor(output, own, async_op=late))
                same(output, every, f"all_gather_into_tensor {what}")
                listed = [on.poisoned(count, dtype) for _ in range(on.size)]
                finish(dist.all_gather(listed, own, async_op=late))
                same(torch.cat(listed), every, f"all_gather {what}")
            for root in range(on.size):
                tensor = own.clone() if on.rank == root else on.poisoned(count, dtype)
                dist.broadcast(tensor, root)
                same(tensor, on.values(root, count, dtype), f"broadcast {what}")
            sent = on.values(on.rank, count * on.size, dtype, 7)
            output = on.poisoned(count * on.size, dtype)
            finish(dist.all_to_all_single(output, sent, async_op=True))
            received = [
                on.values(rank, count * on.size, dtype, 7).view(on.size, count)[on.rank]
                for rank in range(on.size)
            ]
            same(output, torch.cat(received), f"all_to_all_single {what}")
            calls += 5 + on.size
    assert on.own_calls() == before + calls and on.elsewhere() == others, on.group.report()
    return calls


def check_uneven(on: Place) -> int:
    """all_gather and reduce_scatter of lists whose tensors differ in size by rank, one of them
    empty."""
    calls, before, others = 0, on.own_calls(), on.elsewhere()
    for largest in COUNTS:
        counts = [largest * (rank % 3) // 2 + rank % 2 for rank in range(on.size)]
        begin = sum(counts[: on.rank])
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            what = f"{counts} {dtype}"
            for late in (False, True):
                listed = [on.poisoned(count, dtype) for count in counts]
                own = on.values(on.rank, counts[on.rank], dtype)
                finish(dist.all_gather(listed, own, async_op=late))
                for rank, part in enumerate(listed):
                    same(part, on.values(rank, counts[rank], dtype), f"all_gather {what}")
                whole = on.values(on.rank, sum(counts), dtype, 5)
                output = on.poisoned(counts[on.rank], dtype)
                finish(dist.reduce_scatter(output, list(whole.split(counts)), async_op=late))
                expected = on.combined(sum(counts), dtype, "SUM", 5)
                same(
                    output,
                    expected[begin : begin + counts[on.rank]],
                    f"reduce_scatter {what}",
                )
                calls += 2 if sum(counts) > 0 else 0
    assert on.own_calls() == before + calls and on.elsewhere() == others, on.group.report()
    return calls


def check_shapes(on: Place) -> int:
    """Empty and channels-last tensors, coalesced calls, functional ones; what is refused."""
    empty = torch.empty(0, device=on.device)
    dist.all_reduce(empty)
    dist.all_gather_into_tensor(torch.empty(0, device=on.device), empty)
    images = on.values(on.rank, 2 * 3 * 4 * 5, torch.float32).view(2, 3, 4, 5)
    images = images.to(memory_format=torch.channels_last)
    dist.all_reduce(images)
    same(images, on.combined(120, torch.float32, "SUM").view(2, 3, 4, 5), "channels last")
    sizes = (1, 1000, 65537)
    with dist._coalescing_manager(async_ops=True) as manager:
        tensors = [on.values(on.rank, size, torch.float32, size) for size in sizes]
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for size, tensor in zip(sizes, tensors, strict=True):
        same(tensor, on.combined(size, torch.float32, "SUM", size), "coalesced")
    own = on.values(on.rank, 4096, torch.float32)
    same(
        functional.all_reduce(own, "sum", on.group) + 0,
        on.combined(4096, torch.float32, "SUM"),
        "functional all_reduce",
    )
    every = torch.cat([on.values(rank, 4096, torch.float32) for rank in range(on.size)])
    gathered = functional.all_gather_tensor(own, 0, on.group)
    same(gathered + 0, every, "functional all_gather_tensor")
    for wrong, reason in (
        (lambda: dist.all_reduce(on.poisoned(64, torch.float32)[::2]), "contiguous"),
        (lambda: dist.all_gather_into_tensor(on.poisoned(3, torch.float32), own), "elements"),
    ):
        try:
            wrong()
        except ValueError as error:
            assert reason in str(error) and f"rank {on.rank}" in str(error), error
        else:
            raise AssertionError(f"not refused: {reason}")
    return len(sizes) + 7


def check_messages(on: Place) -> int:
    """Batches in which all send first, or ranks in different orders: the first ones of their ranks,
    and those that follow; then single messages."""
    before, count, batches = on.elsewhere(), 2**18 + 3, 0  # batches of any rank
    kinds = (torch.float32, torch.bool, torch.complex64)

    def exchange(sends: list[int], recvs: list[int], mixed: bool = False) -> None:
        nonlocal batches
        batches += 1
        dtype = kinds[batches % len(kinds)]

        def sent(source: int, to: int, number: int) -> Tensor:
            seed = 60 + 100 * (batches * on.size + to) + number
            return on.values(source, count + source, dtype, seed)

        outputs = [on.poisoned(count + source, dtype) for source in recvs]
        payloads = [sent(on.rank, to, sends[:at].count(to)) for at, to in enumerate(sends)]
        ops = [dist.P2POp(dist.isend, *pair) for pair in zip(payloads, sends, strict=True)]
        ops += [dist.P2POp(dist.irecv, *pair) for pair in zip(outputs, recvs, strict=True)]
        if not ops:
            return
        (work,) = dist.batch_isend_irecv(ops[::-1] if mixed and on.rank % 2 else ops)
        work.wait()
        for at, source in enumerate(recvs):
            expected = sent(source, on.rank, recvs[:at].count(source))
            same(outputs[at], expected, f"batch {batches}, from {source}")

    right, left = (on.rank + 1) % on.size, (on.rank - 1) % on.size
    other_ranks = [rank for rank in range(on.size) if rank != on.rank]
    for mixed in (False, True):
        exchange([right], [left], mixed)  # two ranks cross, more are a ring
        other = [1 - on.rank] * 3 if on.rank < 2 else []
        exchange(other, other)
        exchange(other_ranks, other_ranks[::-1], mixed)
    exchange([on.rank], [on.rank])  # itself
    own = on.values(on.rank, count, torch.float32)
    if on.rank == 0:
        dist.send(own, 1)
    elif on.rank == 1:
        received = on.poisoned(count, torch.float32)
        dist.recv(received, 0)
        same(received, on.values(0, count, torch.float32), "send")
    after = on.elsewhere()
    sent = after["nccl send"] - before.get("nccl send", 0)
    assert sent == 3 + 2 * (on.size - 1) + 6 * (on.rank < 2) + (on.rank == 0), after
    return batches + 1


def check_others(on: Place) -> int:
    """What polypath lacks goes to NCCL or Gloo, and is right."""
    before = on.elsewhere()
    own = on.values(on.rank, 2**21 + 3, torch.float32)
    gives = [1 + (on.rank + other) % 3 for other in range(on.size)]
    flat = on.values(on.rank, sum(gives), torch.float32, 3)
    output = on.poisoned(sum(gives), torch.float32)  # the table of sizes is symmetric
    dist.all_to_all_single(output, flat, gives, gives)
    for other, part in enumerate(output.split(gives)):
        counts = [1 + (other + third) % 3 for third in range(on.size)]
        sent = on.values(other, sum(counts), torch.float32, 3).split(counts)
        same(part, sent[on.rank], "all_to_all_single with splits")
    listed = [on.poisoned(gives[other], torch.float32) for other in range(on.size)]
    dist.all_to_all(listed, list(flat.split(gives)))
    same(torch.cat(listed), output, "all_to_all")
    outputs = [torch.empty_like(own) for _ in range(on.size)] if on.rank == 1 else None
    dist.gather(own, outputs, 1)
    for rank, part in enumerate(outputs or []):
        same(part, on.values(rank, own.numel(), torch.float32), "gather")
    part = on.poisoned(100, torch.float32)
    parts = list(on.values(0, 100 * on.size, torch.float32).chunk(on.size))
    dist.scatter(part, parts if on.rank == 0 else None, 0)
    same(part, parts[on.rank], "scatter")
    scaled = on.values(on.rank, 1000, torch.float32)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0))
    expected = on.combined(1000, torch.float32, "SUM") * 2
    torch.testing.assert_close(scaled, expected)
    host = torch.full((5,), float(on.rank))
    dist.all_reduce(host)
    assert host[0] == sum(range(on.size)), host
    objects: list[Any] = [None] * on.size
    dist.all_gather_object(objects, {"rank": on.rank})
    assert objects == [{"rank": rank} for rank in range(on.size)], objects
    after = on.elsewhere()
    named = {name.removeprefix("nccl ") for name in after if after[name] > before.get(name, 0)}
    wanted_names = {"alltoall_base", "alltoall", "gather", "scatter", "allreduce"}
    assert wanted_names <= named, after
    return 7


def check_async(on: Place) -> int:
    """Calls after a late stream, on skewed ranks. The host does not wait, and work after ``wait``
    sees the result. Memory that is freed early is not used for another tensor."""
    count, rounds = 2**20, 6
    before = on.own_calls()
    for turn in range(rounds):
        late = turn % on.size == on.rank or turn == 0
        torch.cuda.synchronize()
        dist.barrier()
        if late:
            torch.cuda._sleep(HALF_A_SECOND)
        tensor = on.values(on.rank, count, torch.float32, turn)
        work = dist.all_reduce(tensor, async_op=True)
        assert not late or not work.is_completed(), "the call waited for its stream"
        work.wait()
        assert not late or not work.is_completed(), "wait() waited on the host"
        copy = tensor.clone()
        tensor.fill_(POISON)
        same(copy, on.combined(count, torch.float32, "SUM", turn), f"async, round {turn}")
        again = on.values(on.rank, count, torch.float32, 50 + turn)
        future = dist.all_reduce(again, async_op=True).get_future()
        double = future.then(lambda done: done.value()[0] * 2)
        doubled = double.wait() + 0
        same(doubled, on.combined(count, torch.float32, "SUM", 50 + turn) * 2, "future")
    results = []
    for turn in range(rounds):
        if on.rank == 0:
            torch.cuda._sleep(HALF_A_SECOND // 10)
        temporary = on.values(on.rank, count, torch.float32, turn)
        output = torch.empty(count * on.size, device=on.device)
        work = dist.all_gather_into_tensor(output, temporary, async_op=True)
        del temporary
        for _ in range(3):
            torch.full((count,), float(POISON), device=on.device)
        results.append((work, output))
    for turn, (work, output) in enumerate(results):
        work.wait()
        expected = [on.values(rank, count, torch.float32, turn) for rank in range(on.size)]
        same(output, torch.cat(expected), f"memory of a temporary, round {turn}")
    # One barrier a round besides.
    assert on.own_calls() == before + 4 * rounds, on.group.report()
    return 3 * rounds


def check_graphs(on: Place) -> int:
    """Calls of both kinds in a graph, replayed."""
    count, replays = 70001, 30
    contribution, output = on.poisoned(count, torch.float32), on.poisoned(count, torch.float32)
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = contribution * 1
        dist.all_reduce(first)
        second = first + 1
        work = dist.all_reduce(second, dist.ReduceOp.MAX, async_op=True)
        work.wait()
        output.copy_(second)
    for turn in range(replays):
        contribution.copy_(on.values(on.rank, count, torch.float32, turn))
        if (turn + on.rank) % 5 == 0:
            torch.cuda._sleep(HALF_A_SECOND // 100)
        graph.replay()
        same(output, on.combined(count, torch.float32, "SUM", turn) + 1, f"replay {turn}")
        between = on.values(on.rank, 1000, torch.float32, turn)
        dist.all_reduce(between)
        same(between, on.combined(1000, torch.float32, "SUM", turn), f"between replays {turn}")
    torch.cuda.synchronize()
    del graph
    return 3 * replays


def check_groups(on: Place) -> int:
    """Groups of some ranks, and two groups of all on two streams at once."""
    halves = [list(range(on.size // 2)), list(range(on.size // 2, on.size))]
    for ranks in (*halves, [0, on.size - 1]):
        group = dist.new_group(ranks, backend="cpu:gloo,cuda:polypath", timeout=LIMIT)
        if on.rank not in ranks:
            continue
        tensor = on.values(on.rank, 5000, torch.float32)
        dist.all_reduce(tensor, group=group)
        expected = on.values(ranks[0], 5000, torch.float32)
        for rank in ranks[1:]:
            expected = expected + on.values(rank, 5000, torch.float32)
        same(tensor, expected, f"group of {ranks}")
        dist.broadcast(tensor, ranks[-1], group=group)
        assert group.report()["polypath"] is not None, group.report()
        torch.cuda.synchronize()
        dist.destroy_process_group(group)
    second = dist.new_group(backend="cpu:gloo,cuda:polypath", timeout=LIMIT)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for turn in range(20):
        tensors = [on.values(on.rank, 2**20, torch.float32, turn + number) for number in range(2)]
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        for tensor, stream, group in zip(tensors, streams, (on.group, second), strict=True):
            with torch.cuda.stream(stream):
                dist.all_reduce(tensor, group=group)
        for number, (tensor, stream) in enumerate(zip(tensors, streams, strict=True)):
            torch.cuda.current_stream().wait_stream(stream)
            same(tensor, on.combined(2**20, torch.float32, "SUM", turn + number), "two groups")
    torch.cuda.synchronize()
    dist.destroy_process_group(second)
    return 26


def check_ddp(on: Place) -> int:
    """Losses of DDP by NCCL, by polypath, and without its hook, from the same weights."""
    options = train_ddp.parse(["--steps", "6"])
    groups = {"nccl": on.nccl, "polypath": on.group}
    torch.manual_seed(5)
    model = TASKS["resnet50"].make().to(on.device)
    torch.manual_seed(6 + on.rank)
    batch = TASKS["resnet50"].samples(4, on.device)
    ways = [train_ddp.Way(name, copy.deepcopy(model), groups, on.gpu) for name in train_ddp.WAYS]
    losses = train_ddp.compare_losses(ways, TASKS["resnet50"], batch, options)
    assert train_ddp.equal(losses, on.size), losses
    hooks = {way.name: name_of(way.model) for way in ways}
    assert hooks == {"nccl": None, "polypath": ddp.NAME, "plain": None}, hooks
    for way in ways:
        for parameter in way.model.parameters():
            weights = parameter.detach().clone()
            dist.broadcast(weights, 0)
            same(parameter.detach(), weights, f"weights of {way.name} on ranks 0 and {on.rank}")
    return options.steps * len(ways)


CHECKS: dict[str, Callable[[Place], int]] = {
    "reductions": check_reductions,
    "bool": check_bool_is_or,
    "moves": check_moves,
    "uneven": check_uneven,
    "shapes": check_shapes,
    "messages": check_messages,
    "others": check_others,
    "async": check_async,
    "graphs": check_graphs,
    "groups": check_groups,
    "hooks": check_hooks,
    "ddp": check_ddp,
}
