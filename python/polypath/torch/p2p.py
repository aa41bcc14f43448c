"""Batches of messages, by NCCL: what `torch.distributed.batch_isend_irecv` is for groups of ours.

NCCL's calls block until the other side comes whenever two ranks have something to set up: their
communicator, and then the connection that the first message takes. A batch whose calls are made one
by one would therefore wait in its first one for a rank that waits in its own. torch gathers batches
in one call, but for its exact own class of groups alone, and by a communicator of the whole group,
which all ranks would have to make together, where a batch may be that of two.

So two ranks that have messages for each other have a communicator of their own. A batch first sets
up those that are new to it, all at once, each on a thread: it waits for no more than the ranks that
have messages for this one, as NCCL's does. Then each pair's messages, of both directions, are one
call of NCCL, which does not block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work


@dataclass(frozen=True)
class Message:
    sends: bool
    tensor: torch.Tensor
    #: A rank of the group.
    peer: int


class Together(Work):
    """Several calls as one."""

    def __init__(self, works: Sequence[Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        for work in self._works:
            if timeout is None:
                work.wait()
            else:
                work.wait(timeout)
        return True

    def synchronize(self) -> None:
        for work in self._works:
            work.synchronize()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)


class Messages:
    """The messages of one rank."""

    def __init__(self, rank: int, pair: Callable[[int], Any]) -> None:
        """``pair``: makes this rank's group of NCCL with another rank alone, ordered as they are in
        the whole group; called on any thread."""
        self._rank = rank
        self._pair = pair
        self._pairs: dict[int, Any] = {}

    def exchange(self, messages: Sequence[Message]) -> Work:
        """A batch, after what is on the current stream. What one rank sends to another in a batch,
        and batches of the same two ranks, come in order. Raises what NCCL raises, and
        `RuntimeError` in stream capture where ranks have nothing set up yet."""
        device = messages[0].tensor.device
        peers = list(dict.fromkeys(message.peer for message in messages))
        self._set_up([peer for peer in peers if peer not in self._pairs], device)
        works = [
            self._issue(
                self._pairs[peer],
                [candidate for candidate in messages if candidate.peer == peer],
                device,
            )
            for peer in peers
        ]
        return works[0] if len(works) == 1 else Together(works)

    def _issue(self, pair: Any, messages: Iterable[Message], device: torch.device) -> Work:
        pair._start_coalescing(device)
        try:
            for message in messages:
                carry = pair.send if message.sends else pair.recv
                carry([message.tensor], int(message.peer > self._rank), 0)
        finally:
            work = pair._end_coalescing(device)
        return work

    def _set_up(self, peers: Sequence[int], device: torch.device) -> None:
        if peers and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"rank {self._rank}: the first messages of two ranks must not be in stream "
                "capture: send any, in a batch, before"
            )
        failed: list[BaseException] = []

        def connect(peer: int) -> None:
            try:
                self._pairs[peer] = self._connected(peer, device)
            except BaseException as error:
                failed.append(error)

        # No group of torch may be used on two threads at once: each pair has one of its own.
        threads = [threading.Thread(target=connect, args=(peer,), daemon=True) for peer in peers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def _connected(self, peer: int, device: torch.device) -> Any:
        """With one element sent in each direction: NCCL connects ranks only with messages."""
        torch.cuda.set_device(device)  # of this thread
        pair = self._pair(peer)
        with torch.cuda.stream(torch.cuda.Stream(device)):
            sent, received = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
            both = [Message(True, sent, peer), Message(False, received, peer)]
            self._issue(pair, both, device).wait()
        return pair
