"""`DistributedDataParallel` over a group of ours takes our hook by itself.

Without a hook DDP calls a group that is written in Python from C++, and divides each gradient by a
kernel of its own: that costs more of the host than the sums (docs/pytorch.md). So DDP's classes get
ours with their first forward pass, when a program has registered what it wants; later ones of the
program take the place of ours, as if it had not been there. Not: DDP on the host or over other
groups, with a built-in torch hook (mixed precision, optimizers in backward), under compiled
autograd, and with the setting ``ddp_hook`` off.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from .. import errors
from ..context import settings
from . import group as groups
from .dtypes import averaged
from .hook import allreduce_hook, divided_hook

_log = logging.getLogger("polypath.torch")

#: What torch's records of a model say of its hook.
NAME = "polypath.torch.allreduce_hook"


class _Hook:
    """What the reducer of one model calls for each bucket. The reducer keeps it, and the model the
    reducer, by ways that Python's collector does not see: so no way leads back to the model."""

    def __init__(self, model: Any) -> None:
        self._model = weakref.ref(model)
        #: The program's own hook and its state, if it came after this one.
        self.program_hook: tuple[Callable[..., Any], Any] | None = None
        #: Whether this rank has no more input, and takes part for the others: `join`.
        self.joined = False

    def __call__(self, _: Any, bucket: Any) -> Any:
        if self.program_hook is not None:
            hook, state = self.program_hook
            return hook(state, bucket)
        model: Any = self._model()
        group, buffer = model.process_group, bucket.buffer()
        if _by_ranks_with_input(model):
            count = torch.full((1,), int(not self.joined), device=buffer.device)
            group.allreduce([count]).wait()
            return divided_hook(group, bucket, count)
        if not averaged(buffer):
            return divided_hook(group, bucket, group.size())
        return allreduce_hook(group, bucket)


def _by_ranks_with_input(model: Any) -> bool:
    """``join(divide_by_initial_world_size=False)``: gradients are divided by the number of ranks
    that still have input, where DDP learns it, which is as the first of those that join."""
    join = model._join_config
    return bool(join.enable and join.is_first_joinable and not model._divide_by_initial_world_size)


_hooks: weakref.WeakKeyDictionary[Any, _Hook] = weakref.WeakKeyDictionary()


def _take(model: Any) -> None:
    """Gives a model our hook where it shall have it. The same on all ranks."""
    if model in _hooks or not _wanted(model):
        return
    hook = _Hook(model)
    try:
        dist._register_comm_hook(model.reducer, None, hook)
    except RuntimeError:  # the program gave the reducer one by other ways
        return
    model.logger._set_comm_hook_name(NAME)
    _hooks[model] = hook


def _wanted(model: Any) -> bool:
    known = vars(model)
    return (
        isinstance(known.get("process_group"), groups.ProcessGroupPolypath)
        and known.get("device_type") == groups.GPU
        and known.get("reducer") is not None
        and not known.get("_use_python_reducer")
        and not known.get("_comm_hooks")
        # Hooks in C++ are known to torch's records alone.
        and not model._get_ddp_logging_data().get("comm_hook")
        and _switched_on()
    )


def _switched_on() -> bool:
    try:
        values = {row["name"]: row["value"] for row in settings()}
    except errors.PolypathError:  # nor is there a communicator then
        return False
    return values["ddp_hook"] == "on"


# ---- In the place of methods of DDP --------------------------------------------------------------


def _before_the_first_forward(lazy_init: Any) -> Any:
    def _lazy_init(self: Any) -> None:
        lazy_init(self)
        _take(self)

    return _lazy_init


def _in_a_copy(setstate: Any) -> Any:
    """Copies and what was pickled have a reducer of their own, without a hook; those made after a
    first forward pass have none before them."""

    def __setstate__(self: Any, state: Any) -> None:
        setstate(self, state)
        if vars(self).get("_lazy_init_ran"):
            _take(self)

    return __setstate__


def _by_the_program(register: Any) -> Any:
    def register_comm_hook(self: Any, state: object, hook: Callable[..., Any]) -> None:
        ours = _hooks.get(self)
        if ours is None or ours.program_hook is not None:  # then torch refuses a second one
            register(self, state, hook)
            return
        self._check_comm_hook(hook)
        self.logger._set_comm_hook_name(hook.__qualname__)
        self._comm_hooks.append((hook, state))
        ours.program_hook = hook, state

    return register_comm_hook


def _built_in(register: Any) -> Any:
    """Torch's C++ hooks need what a group written in C++ gives (``TensorList``). Over one of our
    groups they become the hooks of the same names in Python."""

    def _register_builtin_comm_hook(self: Any, comm_hook_type: Any) -> None:
        if not isinstance(self.process_group, groups.ProcessGroupPolypath):
            register(self, comm_hook_type)
            return
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        kinds = dist.BuiltinCommHookType
        alike = {
            kinds.ALLREDUCE: default_hooks.allreduce_hook,
            kinds.FP16_COMPRESS: default_hooks.fp16_compress_hook,
        }
        hook, state = alike[comm_hook_type], self.process_group
        ours = _hooks.get(self)
        if ours is None or ours.program_hook is not None:  # then torch refuses a second one
            dist._register_comm_hook(self.reducer, state, hook)
        else:
            ours.program_hook = hook, state
        self.logger._set_comm_hook_name(str(comm_hook_type))

    return _register_builtin_comm_hook


def _without_input(join_hook: Any) -> Any:
    """A rank that has no more input sums what the others sum, and may be there before its first
    forward pass."""

    def wrapped(self: Any, **kwargs: Any) -> Any:
        joined = join_hook(self, **kwargs)
        sums_for_others = joined.main_hook

        def main_hook() -> None:
            _take(self)
            ours = _hooks.get(self)
            if ours is None:
                sums_for_others()
                return
            ours.joined = True
            try:
                sums_for_others()
            finally:
                ours.joined = False

        joined.main_hook = main_hook
        return joined

    return wrapped


#: What each model's reducer, in C++, waits for last by `join`.
_works: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _keeping_work(notify: Any) -> Any:
    """C++ keeps its part of a call's `Work` alone: when the object in Python is gone, ``wait`` is
    the one of the base class `Work`, which never ends."""

    def notify_join_context(joinable: Any) -> Any:
        work = notify(joinable)
        if work is not None:
            _works[joinable] = work
        return work

    return notify_join_context


_METHODS = {
    "_lazy_init": _before_the_first_forward,
    "__setstate__": _in_a_copy,
    "register_comm_hook": _by_the_program,
    "_register_builtin_comm_hook": _built_in,
    "join_hook": _without_input,
}


def install() -> None:
    """In this process, for models made before as well. torch has no other place for it: a hook is
    registered a model, and the group is not asked."""
    lacking = [name for name in _METHODS if not hasattr(DistributedDataParallel, name)]
    if lacking or not hasattr(dist, "_register_comm_hook"):
        _log.warning(
            "DistributedDataParallel of PyTorch %s does not take polypath's hook by itself (it has "
            "no %s): register polypath.torch.allreduce_hook",
            torch.__version__,
            ", ".join(lacking) or "_register_comm_hook",
        )
        return
    for name, replace in _METHODS.items():
        of_torch = getattr(DistributedDataParallel, name)
        setattr(DistributedDataParallel, name, functools.wraps(of_torch)(replace(of_torch)))
    notify = Join.notify_join_context
    Join.notify_join_context = staticmethod(functools.wraps(notify)(_keeping_work(notify)))
