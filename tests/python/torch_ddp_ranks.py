"""What test_torch.py runs: `DistributedDataParallel` of the stand-in over ranks of the backend, on
a simulated node. ``torch_ddp_ranks.py CASE``; every element is compared."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import polypath.torch
import torch
from polypath.torch import ddp
from torch import distributed
from torch.nn import parallel
from torch.nn.parallel import DistributedDataParallel
from torch_ranks import COUNT, SIZE, Rank, all_values, combined, main, same, values

AVG, SUM = "AVG", "SUM"


class Watched(Rank):
    """A rank whose group keeps the operators of what it sums."""

    def __init__(self, on: Rank) -> None:
        self.__dict__.update(vars(on))
        self.ops: list[str] = []
        for name in ("allreduce", "allreduce_beside"):
            setattr(self.group, name, self._kept(getattr(self.group, name)))
        parallel.here.group = self.group

    def _kept(self, carry: Any) -> Any:
        def call(tensors: Any, opts: Any = None) -> Any:
            self.ops.append(opts.reduceOp.op.name if opts else SUM)
            return carry(tensors, opts)

        return call

    def train(self, model: Any, operators: list[str], what: str, average: bool = True) -> None:
        """One step; ``operators``: those that it takes."""
        self.ops.clear()
        gradients = self.tensor(values(self.rank, "float32"))
        model.forward()
        model.reducer.reduce(gradients)
        if average:
            same(gradients, combined("float32", "AVG"), what)
        assert self.ops == operators, (what, self.ops)


class Own:
    """A program's hook, with a state."""

    def __init__(self) -> None:
        self.states: list[Any] = []

    def hook(self, state: Any, bucket: Any) -> Any:
        self.states.append(state)
        return polypath.torch.allreduce_hook(parallel.here.group, bucket)


def name_of(model: Any) -> str | None:
    return model._get_ddp_logging_data().get("comm_hook")


def taken(own_rank: Rank) -> None:
    """By itself, with the first forward pass; models go when nothing refers to them any more."""
    on = Watched(own_rank)
    model = DistributedDataParallel(COUNT)
    assert name_of(model) is None
    for _ in range(3):
        on.train(model, [AVG], "by itself")
    assert name_of(model) == ddp.NAME and model._comm_hooks == []
    if on.rank == 0:
        gc.disable()
    gone = weakref.ref(model)
    del model
    assert gone() is None


def left(own_rank: Rank) -> None:
    """Where DDP stays as it is."""
    on = Watched(own_rank)
    own = Own()
    for what, options in (
        ("on the host", {"device_type": "cpu"}),
        ("compiled autograd", {"python_reducer": True}),
    ):
        on.train(DistributedDataParallel(COUNT, **options), [SUM], what)
    apart = SimpleNamespace(allreduce=on.group.allreduce, size=on.group.size)
    on.train(DistributedDataParallel(COUNT, apart), [SUM], "another group")
    mixed = DistributedDataParallel(COUNT, mixed_precision=own.hook)
    on.train(mixed, [AVG], "mixed precision")
    assert own.states == [None] and name_of(mixed) == "Own.hook"
    model = DistributedDataParallel(COUNT)
    distributed._register_comm_hook(model.reducer, 7, own.hook)
    on.train(model, [AVG], "a hook that only the reducer knows")
    assert own.states == [None, 7] and name_of(model) is None
    for kind in distributed.BuiltinCommHookType:
        model = DistributedDataParallel(COUNT)
        model._register_builtin_comm_hook(kind)
        on.train(model, [SUM], str(kind))
        assert name_of(model) == str(kind) and model.reducer.refused == 0


def off(own_rank: Rank) -> None:
    on = Watched(own_rank)
    on.train(DistributedDataParallel(COUNT), [SUM], "switched off")


def given_way(own_rank: Rank) -> None:
    """The program's own hook, before the first forward pass and after it; a second is refused."""
    on = Watched(own_rank)
    for before in (True, False):
        model, own = DistributedDataParallel(COUNT), Own()
        if not before:
            on.train(model, [AVG], "before the program's hook")
        model.register_comm_hook("mine", own.hook)
        for _ in range(2):
            on.train(model, [AVG], "the program's hook")
        assert own.states == ["mine"] * 2 and name_of(model) == "Own.hook"
        assert model._comm_hooks == [(own.hook, "mine")]
        refused(lambda: model.register_comm_hook(None, own.hook))  # noqa: B023
        refused(lambda: model._register_builtin_comm_hook(_ALLREDUCE))  # noqa: B023
    for kind in distributed.BuiltinCommHookType:
        model = DistributedDataParallel(COUNT)
        on.train(model, [AVG], "before torch's hook")
        model._register_builtin_comm_hook(kind)
        on.train(model, [SUM], str(kind))
        assert name_of(model) == str(kind)
        refused(lambda: model._register_builtin_comm_hook(kind))  # noqa: B023
    model = DistributedDataParallel(COUNT)
    on.train(model, [AVG], "before a wrong hook")
    try:
        model.register_comm_hook(None, 7)
        raise AssertionError("registered")
    except TypeError:
        on.train(model, [AVG], "behind a wrong hook")


_ALLREDUCE = distributed.BuiltinCommHookType.ALLREDUCE


def refused(register: Any) -> None:
    try:
        register()
    except RuntimeError as error:
        assert "only be called once" in str(error), error
    else:
        raise AssertionError("a second hook was registered")


def copies(own_rank: Rank) -> None:
    """Copies and pickled models take it as well, as soon as what they are copies of."""
    on = Watched(own_rank)
    for trained in (False, True):
        model = DistributedDataParallel(COUNT)
        if trained:
            on.train(model, [AVG], "first")
        for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert (name_of(copied) == ddp.NAME) == trained
            on.train(copied, [AVG], "a copy")
            on.train(model, [AVG], "and its model")
            copied.register_comm_hook("mine", Own().hook)


def join(own_rank: Rank) -> None:
    """Ranks whose input ends early, one of them before its first: what the others have is divided
    by the number of all, or of those that have input."""
    on = Watched(own_rank)
    for all_count in (True, False):
        for first in (True, False):
            model = DistributedDataParallel(COUNT)
            hook = model.join_hook(divide_by_initial_world_size=all_count)
            model._join_config = SimpleNamespace(enable=True, is_first_joinable=first)
            for turn in range(SIZE - 1):
                present = [rank for rank in range(SIZE) if rank > turn]
                if on.rank not in present:
                    if first:
                        on.group.allreduce([torch.full((1,), 0, torch.int64, on.device)]).wait()
                    on.ops.clear()
                    hook.main_hook()
                    assert on.ops == ([SUM] * 2 if first and not all_count else [AVG])
                    continue
                gradients = on.tensor(values(on.rank, "float32"))
                model.forward()
                on.ops.clear()
                model.reducer.reduce(gradients)
                parts = [
                    part if rank in present else np.zeros_like(part)
                    for rank, part in enumerate(all_values("float32"))
                ]
                if first and not all_count:
                    parts = [(part / len(present)).astype("float32") for part in parts]
                total = parts[0]
                for part in parts[1:]:
                    total = total + part
                if not (first and not all_count):
                    total = total / np.float32(SIZE)
                same(gradients, total, f"join, turn {turn}")


def unlike(own_rank: Rank) -> None:
    """What polypath does not average is divided first, as torch does, and goes elsewhere."""
    on = Watched(own_rank)

    class Summed:
        def allreduce(self, tensors: Any, opts: Any) -> Any:
            future = torch.futures.Future()
            future.set_result(tensors)
            return SimpleNamespace(get_future=lambda: SimpleNamespace(then=future_then(future)))

    on.group._others.nccl = Summed
    model = DistributedDataParallel(COUNT)
    on.train(model, [AVG], "dense")
    gradients = on.tensor(values(on.rank, "float32"))
    gradients.is_sparse = True
    on.ops.clear()
    model.forward()
    model.reducer.reduce(gradients)
    same(gradients, values(on.rank, "float32") / np.float32(SIZE), "sparse")
    assert on.ops == [SUM], on.ops


def future_then(future: Any) -> Any:
    def then(call: Any) -> Any:
        return SimpleNamespace(wait=lambda: call(future))

    return then


def old(own_rank: Rank) -> None:
    """A PyTorch that has DDP otherwise: one warning, and nothing is replaced."""
    if own_rank.rank == 0:
        warnings: list[Any] = []
        lazy_init, warning = DistributedDataParallel._lazy_init, ddp._log.warning
        register = DistributedDataParallel.register_comm_hook
        del DistributedDataParallel._lazy_init
        ddp._log.warning = lambda *text: warnings.append(text)
        ddp.install()
        DistributedDataParallel._lazy_init, ddp._log.warning = lazy_init, warning
        assert len(warnings) == 1 and "_lazy_init" in warnings[0][2], warnings
        assert DistributedDataParallel.register_comm_hook is register


if __name__ == "__main__":
    if sys.argv[1] == "off":
        os.environ["POLYPATH_DDP_HOOK"] = "off"
    main(globals()[sys.argv[1]])
