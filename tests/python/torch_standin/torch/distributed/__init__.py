"""The part of `torch.distributed` that a backend needs."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, ClassVar

from . import distributed_c10d
from .algorithms.ddp_comm_hooks import default_hooks
from .distributed_c10d import AllreduceOptions, ReduceOp

__all__ = ["AllreduceOptions", "ReduceOp", "distributed_c10d"]


class Work:
    pass


class ProcessGroup:
    class BackendType(enum.Enum):
        NCCL = 1
        GLOO = 2

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size


class GradBucket:
    """One bucket of gradients."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def buffer(self) -> Any:
        return self._tensor


class BuiltinCommHookType(enum.Enum):
    ALLREDUCE = 0
    FP16_COMPRESS = 1


def _register_comm_hook(reducer: Any, state: Any, hook: Any) -> None:
    reducer.register(lambda bucket: hook(state, bucket))


def _register_builtin_comm_hook(reducer: Any, kind: BuiltinCommHookType) -> None:
    hook, group = getattr(default_hooks, f"{kind.name.lower()}_hook"), reducer.group
    reducer.register(lambda bucket: hook(group, bucket))


class Backend:
    _plugins: ClassVar[dict[str, Callable[..., Any]]] = {}

    @classmethod
    def register_backend(
        cls, name: str, create: Callable[..., Any], extended_api: bool, devices: list[str]
    ) -> None:
        assert extended_api and devices == ["cuda"]
        cls._plugins[name.upper()] = create


def is_nccl_available() -> bool:
    return False
