"""The check "hooks" of check_torch_collectives.py: `DistributedDataParallel` takes polypath's hook
by itself, and all else of it stays as it is. Each model is trained next to one
with the setting off.
"""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from polypath.torch import ddp
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

STEPS = 3


@contextmanager
def setting(word: str) -> Iterator[None]:
    before = os.environ.get("POLYPATH_DDP_HOOK", "on")
    os.environ["POLYPATH_DDP_HOOK"] = word
    try:
        yield
    finally:
        os.environ["POLYPATH_DDP_HOOK"] = before


class Net(nn.Module):
    """The second half is not used where the sum of a batch is negative and ``some`` is set."""

    def __init__(self, some: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(40, 30), nn.Linear(30, 30)
        self.last, self.some = nn.Linear(30, 3), some

    def forward(self, samples: Tensor) -> Tensor:
        half = torch.relu(self.first(samples))
        return self.last(half if self.some and samples.sum() < 0 else self.second(half))


def name_of(model: Any) -> str | None:
    hook = model._get_ddp_logging_data().get("comm_hook")
    return hook or None


def samples(on: Any, turn: int) -> Tensor:
    return on.values(on.rank, 8 * 40, torch.float32, 300 + turn).view(8, 40)


def train(on: Any, model: Any, begin: int = 0, accumulate: bool = False) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for turn in range(begin, begin + STEPS):
        optimizer.zero_grad()
        if accumulate:
            with model.no_sync():
                model(samples(on, 50 + turn)).square().mean().backward()
        model(samples(on, turn)).square().mean().backward()
        optimizer.step()


def alike(model: Any, other: Any, divisors: Iterable[int], what: str) -> None:
    """`divisors`: of the sums. By three ranks a sum that is divided is not a sum of quotients."""
    is_exact = all(divisor & (divisor - 1) == 0 for divisor in divisors)
    for parameter, expected in zip(model.parameters(), other.parameters(), strict=True):
        if not is_exact:
            torch.testing.assert_close(parameter, expected, msg=what)
        else:
            assert torch.equal(parameter, expected), what


def check_hooks(on: Any) -> int:
    torch.manual_seed(17)
    net = Net().to(on.device)
    steps = 0

    def pair(**options: Any) -> tuple[Any, Any]:
        module = Net(some=True).to(on.device) if "find_unused_parameters" in options else net
        return tuple(
            DistributedDataParallel(copy.deepcopy(module), **options)  # type: ignore[return-value]
            for _ in range(2)
        )

    def both(
        models: tuple[Any, Any],
        run: Callable[[Any], None],
        name: str | None,
        what: str,
        divisors: Iterable[int] = (on.size,),
    ):
        nonlocal steps
        run(models[0])
        with setting("off"):
            run(models[1])
        assert name_of(models[0]) == name, (what, name_of(models[0]))
        assert name_of(models[1]) != ddp.NAME, what
        alike(*models, divisors, what)
        steps += 2 * STEPS

    for options in (
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"bucket_cap_mb": 0.001},
    ):
        both(pair(**options), lambda model: train(on, model), ddp.NAME, str(options))
    both(pair(), lambda model: train(on, model, accumulate=True), ddp.NAME, "no_sync")
    steps += check_own_hooks(on, pair, both)
    steps += check_copies(on, pair)

    def uneven(model: Any, **divided: bool) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Join([model], **divided):
            for turn in range(3 * on.rank):  # the first rank has none at all
                optimizer.zero_grad()
                model(samples(on, turn)).square().mean().backward()
                optimizer.step()

    # One rank has none to join.
    for by_all in (True, False) if on.size > 1 else ():
        run = lambda model: uneven(model, divide_by_initial_world_size=by_all)  # noqa: E731, B023
        # The ranks that have joined are not counted.
        divisors = (on.size,) if by_all else range(1, on.size)
        both(pair(), run, ddp.NAME, f"join, {by_all}", divisors)
    return steps


def check_own_hooks(on: Any, pair: Any, both: Any) -> int:
    """Hooks of the program, before and after the first pass; hooks of torch; no second hook."""

    def registered(register: Callable[[Any], None], late: bool, name: str, what: str) -> None:
        def run(model: Any) -> None:
            if late:
                train(on, model)
            register(model)
            train(on, model, STEPS)
            try:
                register(model)
            except RuntimeError as error:
                assert "only be called once" in str(error), error
            else:
                raise AssertionError(f"{what}: a second hook was registered")

        # The setting is off for the second, but a hook of the program stays on both.
        both(pair(), run, name, what)

    states: list[Any] = []

    # DDP compares annotations with types, which here would be text: none.
    def own_hook(state, bucket):  # type: ignore[no-untyped-def]
        states.append(state)
        return default_hooks.allreduce_hook(on.group, bucket)

    kinds = dist.BuiltinCommHookType
    for late in (False, True):
        registered(
            lambda model: model.register_comm_hook(7, own_hook), late, own_hook.__qualname__, "own"
        )
        for kind in (kinds.ALLREDUCE, kinds.FP16_COMPRESS):
            register = lambda model: model._register_builtin_comm_hook(kind)  # noqa: E731, B023
            registered(register, late, str(kind), f"{kind}, late: {late}")
    assert states and set(states) == {7}
    model, _ = pair()
    model._register_fused_optim(torch.optim.SGD, 0.1)
    model(samples(on, 0)).square().mean().backward()
    assert name_of(model) != ddp.NAME and model._comm_hooks
    return 1


def check_copies(on: Any, pair: Any) -> int:
    if dist.group.WORLD is not on.group:  # torch has no copies of models of other groups
        return 0
    for trained in (False, True):
        model, _ = pair()
        if trained:
            train(on, model)
        kept = io.BytesIO()
        torch.save(model, kept)
        kept.seek(0)
        ones = copy.deepcopy(model), torch.load(kept, weights_only=False)
        for copied in ones:
            assert (name_of(copied) == ddp.NAME) == trained, trained
        for copied in (model, *ones):
            train(on, copied, STEPS)
            assert name_of(copied) == ddp.NAME
        for copied in ones:
            alike(copied, model, (on.size,), f"a copy, {trained}")
    return 6 * STEPS
