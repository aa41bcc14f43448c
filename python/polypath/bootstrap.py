"""What ranks find each other by, before they have a communicator: an all-gather of bytes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from . import _api, _c_abi
from .errors import InvalidArgument
from .integers import integer

#: Gathers the bytes of all ranks, which are equally many, in rank order. Raises when it cannot.
Exchange = Callable[[bytes], Sequence[bytes]]


class Store(Protocol):
    """What `torch.distributed.Store` offers of what is needed here."""

    def set(self, key: str, value: bytes, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def add(self, key: str, amount: int, /) -> int: ...


def store_exchange(store: Store, rank: int, size: int, name: str = "polypath") -> Exchange:
    """The exchange of ranks that share a store, for one communicator. ``store.get`` has to wait for
    keys, and to raise after a time. Communicators of one name are created in the same order on all
    ranks."""
    number = store.add(f"{name}/created/{rank}", 1)
    rounds = 0

    def exchange(data: bytes) -> list[bytes]:
        nonlocal rounds
        rounds += 1
        key = f"{name}/{number}/{rounds}"
        store.set(f"{key}/{rank}", data)
        return [bytes(store.get(f"{key}/{other}")) for other in range(size)]

    return exchange


def as_callback(exchange: Exchange, size: int, raised: list[BaseException]) -> Any:
    """The exchange as the C API calls it. What it raises goes into ``raised``, since no exception
    passes through the library."""

    def call(data: int, all_ranks: int, count: int, _user: int | None) -> int:
        try:
            gathered = exchange(ctypes.string_at(data, count))
            if [len(part) for part in gathered] != [count] * size:
                raise InvalidArgument(f"exchange: {size} times {count} bytes are wanted")
            ctypes.memmove(all_ranks, b"".join(gathered), size * count)
            return 0
        except BaseException as error:
            raised.append(error)
            return 1

    return _c_abi.AllGatherFn(call)


class Bootstrap:
    """One rank of those that meet, by an exchange: all bytes of all ranks, in rank order."""

    def __init__(self, rank: int, size: int, exchange: Exchange) -> None:
        self._raised: list[BaseException] = []
        self._take(rank, size, as_callback(exchange, size, self._raised), ctypes.c_void_p(), False)

    def _take(
        self, rank: int, size: int, exchange: Any, user: ctypes.c_void_p, is_thread: bool
    ) -> None:
        self._made_by = os.getpid()
        self.rank = rank
        self.size = size
        self._exchange = exchange
        self._user = user  # a polypath_bootstrap, or null
        self._is_thread = is_thread

    @classmethod
    def threads(cls, size: int, timeout_ms: int = 60_000) -> list[Bootstrap]:
        """Ranks that are threads of this process: each makes its Environment of its own."""
        size = integer(size, ctypes.c_int, "size")
        if size < 1:
            raise InvalidArgument("size is not positive")
        bootstraps = (ctypes.c_void_p * size)()
        _api.call("polypath_bootstrap_threads", size, timeout_ms, bootstraps)
        exchange = ctypes.cast(_api.library().polypath_bootstrap_all_gather, _c_abi.AllGatherFn)
        instances = [cls.__new__(cls) for _ in range(size)]
        for rank, bootstrap in enumerate(instances):
            bootstrap._raised = []
            bootstrap._take(rank, size, exchange, ctypes.c_void_p(bootstraps[rank]), is_thread=True)
        return instances

    @classmethod
    def from_mpi(cls, ranks: Any) -> Bootstrap:
        """The ranks of an ``mpi4py`` communicator."""
        return cls(ranks.Get_rank(), ranks.Get_size(), ranks.allgather)

    def __del__(self) -> None:
        user = getattr(self, "_user", None)
        is_ours = getattr(self, "_made_by", 0) == os.getpid()  # and not of a forked child
        if is_ours and user is not None and user.value is not None:
            _api.library().polypath_bootstrap_destroy(user)
