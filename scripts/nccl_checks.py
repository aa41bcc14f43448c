"""The checks of check_nccl_programs.py that use torch.distributed, and what all of them need.

Wrong elements are kept (`Place.same`), not raised: ranks stay together, and every check goes on to
its end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

POISON = 93
STEPS, RATE = 3, 0.125
WIDTH, HIDDEN, SAMPLES = 256, 1024, 64
COLUMNS, MAX_ROWS = 5120, 512  # of tensor-parallel products
A_MILLISECOND = 2 * 10**6  # cycles of the GPU, about
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
TOLERANCES = {torch.bfloat16: 2**-6, torch.float16: 2**-9}

Group = Any  # dist.ProcessGroup | None


def bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(INTEGERS[tensor.element_size()])


def in_rank_order(rows: list[Tensor]) -> Tensor:
    """Floats are added in float32, one rank after another, and rounded once to their type."""
    wide = torch.float32 if rows[0].is_floating_point() else rows[0].dtype
    total = rows[0].to(wide, copy=True)
    for row in rows[1:]:
        total += row.to(wide)
    return total.to(rows[0].dtype)


class Place:
    """This rank and its GPU; what a check found, and the calls that polypath must have counted.

    `exact`: sums of floats are compared bit by bit, else with a tolerance.
    """

    def __init__(self, device: torch.device, exact: bool) -> None:
        self.device, self.exact = device, exact
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.begin()

    def begin(self) -> None:
        self.failures: list[str] = []
        self.notes: list[str] = []
        self.expected: Counter[str] = Counter()

    def expect(self, what: str, calls: int) -> None:
        """At least `calls` calls: "ncclAllReduce" taken by polypath, or "ncclAllReduce: REASON"."""
        self.expected[what] += calls

    def values(self, count: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
        """What this rank gives, the same for the same seed."""
        generator = torch.Generator(self.device).manual_seed(1 + self.rank + 64 * seed)
        if dtype.is_floating_point:
            return torch.randn(count, generator=generator, device=self.device).to(dtype)
        top = 2 ** (8 * dtype.itemsize - 5)
        return torch.randint(
            -top, top, (count,), generator=generator, device=self.device, dtype=dtype
        )

    def poisoned(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.full((count,), POISON, device=self.device, dtype=dtype)

    def gathered(self, own: Tensor, group: Group = None) -> list[Tensor]:
        """As bytes, so that nothing of it is a sum of a library's."""
        own = own.detach().contiguous()
        rows = [torch.full_like(own, POISON) for _ in range(dist.get_world_size(group))]
        targets = [row.view(-1).view(torch.uint8) for row in rows]
        dist.all_gather(targets, own.view(-1).view(torch.uint8), group=group)
        return rows

    def summed(self, own: Tensor, group: Group = None) -> Tensor:
        return in_rank_order(self.gathered(own, group))

    def same(self, actual: Tensor, expected: Tensor, what: str, exact: bool | None = None) -> bool:
        """Integers always bit by bit; floats where `exact` says so (None: as this place does)."""
        if actual.shape != expected.shape or actual.dtype != expected.dtype:
            self.failures.append(f"{what}: {actual.shape} {actual.dtype}, not {expected.dtype}")
            return False
        actual, expected = actual.detach(), expected.detach()
        if exact is None:
            exact = self.exact
        if exact or not actual.is_floating_point():
            differs = bits(actual) != bits(expected)
        else:
            near = TOLERANCES.get(actual.dtype, 1e-5)
            differs = ~torch.isclose(actual.float(), expected.float(), rtol=near, atol=near)
        wrong = differs.flatten().nonzero().flatten()
        if len(wrong) == 0:
            return True
        first = int(wrong[0])
        self.failures.append(
            f"{what}: {len(wrong)} of {actual.numel()} elements differ, at {first} "
            f"{actual.flatten()[first].item()} instead of {expected.flatten()[first].item()}"
        )
        return False

    def alike(self, own: Tensor, what: str) -> None:
        """The same bits on all ranks."""
        for rank, remote in enumerate(self.gathered(own)):
            self.same(own, remote, f"{what} of this rank and of {rank}", exact=True)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


# ---- Training ------------------------------------------------------------------------------------


def make_model(on: Place, dtype: torch.dtype) -> nn.Sequential:
    """The same weights on all ranks; blocks of two layers."""
    torch.manual_seed(7)
    blocks = [
        nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
        for _ in range(3)
    ]
    return nn.Sequential(*blocks).to(on.device, dtype)


def backward(model: nn.Module, inputs: Tensor) -> None:
    model(inputs).float().square().mean().mul(64).backward()


def step_of(parameters: Any) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=RATE, foreach=False)


def check_ddp(on: Place) -> None:
    """DDP divides by the number of ranks first (exact for 2 and 4), then sums."""
    for dtype in (torch.bfloat16, torch.float32):
        model = DistributedDataParallel(make_model(on, dtype), bucket_cap_mb=1)
        local = make_model(on, dtype)
        optimizer = step_of(model.parameters())
        for step in range(STEPS):
            what = f"{dtype}, step {step}"
            inputs = on.values(SAMPLES * WIDTH, dtype, step).view(SAMPLES, WIDTH)
            local.load_state_dict(model.module.state_dict())
            for each in (local, model):
                each.zero_grad()
                backward(each, inputs)
            pairs = zip(model.module.named_parameters(), local.parameters(), strict=True)
            for (name, parameter), reference in pairs:
                expected = on.summed(reference.grad * (1 / on.size))
                on.same(parameter.grad, expected, f"gradient of {name}, {what}")
            optimizer.step()
            for name, parameter in model.module.named_parameters():
                on.alike(parameter, f"{name}, {what}")
        on.expect("ncclAllReduce", STEPS)


def check_fsdp2(on: Place) -> None:
    """Compares whole parameters after each step with a model that is not sharded."""
    mesh = DeviceMesh.from_group(dist.group.WORLD, on.device.type)
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for policy in (MixedPrecisionPolicy(), mixed):
        computed = policy.param_dtype or torch.float32
        model, whole = make_model(on, torch.float32), make_model(on, torch.float32)
        local = make_model(on, computed)  # of the weights as they are computed with
        for block in model:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        optimizer, reference = step_of(model.parameters()), step_of(whole.parameters())
        for step in range(STEPS):
            inputs = on.values(SAMPLES * WIDTH, computed, step).view(SAMPLES, WIDTH)
            local.load_state_dict(whole.state_dict())
            for each in (local, model):
                each.zero_grad()
                backward(each, inputs)
            pairs = zip(whole.parameters(), local.parameters(), strict=True)
            for parameter, computed_parameter in pairs:
                parameter.grad = on.summed(computed_parameter.grad.float()) / on.size
            optimizer.step()
            reference.step()
            pairs = zip(model.named_parameters(), whole.parameters(), strict=True)
            for (name, parameter), expected in pairs:
                what = f"{name}, computed in {computed}, step {step}"
                actual = parameter.full_tensor()
                on.alike(actual, what)
                compare_weights(on, actual, expected, what, policy is mixed)
                expected.data.copy_(actual.detach())  # the next step from the same weights
        on.expect("ncclReduceScatter", STEPS * len(model))


def compare_weights(on: Place, actual: Tensor, expected: Tensor, what: str, mixed: bool) -> None:
    """In mixed precision bits that differ are told; the tolerance is of a gradient in bfloat16."""
    if not mixed:
        on.same(actual, expected, what)
    elif not torch.equal(bits(actual), bits(expected)):
        if not torch.allclose(actual, expected, rtol=1e-5, atol=1e-5):
            on.same(actual, expected, what)
        elif on.exact:
            on.notes.append(f"close, other bits: {what}")


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(COLUMNS, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, COLUMNS, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(inputs)))


@torch.no_grad()
def check_tensor_parallel(on: Place) -> None:
    """The module's result; then rows of one matrix, however many there are in a call."""
    mesh = DeviceMesh.from_group(dist.group.WORLD, on.device.type)
    torch.manual_seed(11)
    model = Mlp().to(on.device, torch.bfloat16)
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    up, down = (layer.weight.to_local() for layer in (model.up, model.down))
    torch.manual_seed(12)
    inputs = torch.randn(MAX_ROWS, COLUMNS).to(on.device, torch.bfloat16)

    def partial(rows: Tensor) -> Tensor:
        return nn.functional.linear(torch.relu(nn.functional.linear(rows, up)), down)

    counts = [1, 7, 64, MAX_ROWS]
    for count in counts:
        output = model(inputs[:count]).clone()
        on.same(output, on.summed(partial(inputs[:count])), f"module, {count} rows")
    own = partial(inputs)
    expected = on.summed(own)
    slices = [2**power for power in range(MAX_ROWS.bit_length())]
    for count in slices:
        output = own[:count].clone()
        dist.all_reduce(output)
        on.same(output, expected[:count], f"{count} rows of {MAX_ROWS}")
    on.expect("ncclAllReduce", len(counts) + len(slices))


# ---- Collectives of torch.distributed ------------------------------------------------------------


def check_captured(on: Place) -> None:
    """Three kinds of calls in one graph. Nothing else is called while it runs."""
    count, dtype = 70001, torch.bfloat16
    inputs = [on.poisoned(size, dtype) for size in (count, count, count * on.size)]
    reduced, every, part = (on.poisoned(size, dtype) for size in (count, count * on.size, count))

    def calls() -> None:
        reduced.copy_(inputs[0])
        dist.all_reduce(reduced)
        dist.all_gather_into_tensor(every, inputs[1])
        dist.reduce_scatter_tensor(part, inputs[2])

    calls()
    on.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    for turn in range(5):
        for number, tensor in enumerate(inputs):
            tensor.copy_(on.values(tensor.numel(), dtype, 10 * turn + number))
        for tensor in (reduced, every, part):
            tensor.fill_(POISON)
        if turn % on.size == on.rank:
            torch.cuda._sleep(5 * A_MILLISECOND)
        graph.replay()
        on.synchronize()
        on.same(reduced, on.summed(inputs[0]), f"all_reduce, replay {turn}")
        on.same(every, torch.cat(on.gathered(inputs[1])), f"all_gather, replay {turn}", exact=True)
        expected = on.summed(inputs[2]).view(on.size, count)[on.rank]
        on.same(part, expected, f"reduce_scatter, replay {turn}")
    on.synchronize()
    on.expect("ncclAllReduce", 2)
    on.expect("ncclReduceScatter", 2)


def check_streams(on: Place) -> None:
    """Calls of one group from three streams in turn, while ranks come late."""
    calls, left = 200, 2**26  # bytes
    choose = random.Random(5)  # alike on all ranks
    streams = [torch.cuda.Stream() for _ in range(3)]
    kept: list[tuple[Tensor, int]] = []
    for turn in range(calls):
        dtype = torch.float32 if turn % 4 else torch.bfloat16
        count = 2**22 if turn == 1 else 1 if turn == 2 else int(2 ** choose.uniform(0, 22))
        if count * dtype.itemsize > left // 2:
            count = 1 + count % 1000
        left -= count * dtype.itemsize
        late, sleep = choose.randrange(on.size), choose.randrange(A_MILLISECOND)
        tensor = on.values(count, dtype, turn)
        kept.append((tensor, turn))
        stream = streams[turn % len(streams)]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            if late == on.rank and turn % 3:
                torch.cuda._sleep(sleep)
            dist.all_reduce(tensor)
    on.synchronize()
    for tensor, turn in kept:
        expected = on.summed(on.values(tensor.numel(), tensor.dtype, turn))
        on.same(tensor, expected, f"call {turn}, {tensor.numel()} {tensor.dtype}")
    on.expect("ncclAllReduce", calls)


def check_mixed(on: Place) -> None:
    """Calls on one tensor that are polypath's, NCCL's messages, NCCL's sum, polypath's.

    Contents are small whole numbers: exact in any order of adding, so that only the order of the
    calls matters.
    """
    rounds, scale = 50, on.size // 2 if on.size % 2 == 0 else on.size / 2
    right, left = (on.rank + 1) % on.size, (on.rank - 1) % on.size
    halved = dist._make_nccl_premul_sum(0.5)
    inputs = [
        on.values(1000 + 5003 * turn, torch.int32, turn).remainder(100).float()
        for turn in range(rounds)
    ]
    tensors = [tensor.clone() for tensor in inputs]
    received = [on.poisoned(tensor.numel(), torch.float32) for tensor in inputs]
    on.synchronize()
    for turn, tensor in enumerate(tensors):
        if turn % 8 == on.rank:
            torch.cuda._sleep(A_MILLISECOND)
        dist.all_reduce(tensor)
        ops = [dist.P2POp(dist.isend, tensor, right), dist.P2POp(dist.irecv, received[turn], left)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        dist.all_reduce(tensor, halved)
        dist.all_reduce(tensor)
    on.synchronize()
    for turn, tensor in enumerate(tensors):
        first = on.summed(inputs[turn])
        on.same(received[turn], first, f"message {turn}", exact=True)
        on.same(tensor, first * scale * on.size, f"last sum {turn}", exact=True)
    on.expect("ncclAllReduce", 2 * rounds)
    on.expect("ncclAllReduce: the program's own operator", rounds)


def check_two_groups(on: Place) -> None:
    """On two streams at the same time; one of them is late on one rank."""
    calls, count = 100, 2**17 + 3
    groups = [dist.group.WORLD, dist.new_group()]
    streams = [torch.cuda.Stream() for _ in groups]
    kept: list[list[Tensor]] = [[], []]
    for group in groups:
        dist.all_reduce(on.poisoned(1, torch.float32), group=group)  # with it comes what it needs
    on.synchronize()
    for turn in range(calls):
        for number, (group, stream) in enumerate(zip(groups, streams, strict=True)):
            tensor = on.values(count >> turn % 17, torch.float32, 2 * turn + number)
            kept[number].append(tensor)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                if turn % 10 == 0 and on.rank == turn // 10 % on.size:
                    torch.cuda._sleep(A_MILLISECOND)
                dist.all_reduce(tensor, group=group)
    on.synchronize()
    for number, tensors in enumerate(kept):
        for turn, tensor in enumerate(tensors):
            contribution = on.values(tensor.numel(), torch.float32, 2 * turn + number)
            on.same(tensor, on.summed(contribution), f"group {number}, call {turn}")
    on.synchronize()
    dist.destroy_process_group(groups[1])
    on.expect("ncclAllReduce", len(groups) * (calls + 1))


CHECKS: dict[str, Callable[[Place], None]] = {
    "ddp": check_ddp,
    "fsdp2": check_fsdp2,
    "tensor_parallel": check_tensor_parallel,
    "captured": check_captured,
    "streams": check_streams,
    "mixed": check_mixed,
    "two_groups": check_two_groups,
}
