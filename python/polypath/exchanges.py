"""What ranks find each other by, before they have a communicator: an all-gather of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

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

    def exchange(mine: bytes) -> list[bytes]:
        nonlocal rounds
        rounds += 1
        key = f"{name}/{number}/{rounds}"
        store.set(f"{key}/{rank}", mine)
        return [bytes(store.get(f"{key}/{other}")) for other in range(size)]

    return exchange
