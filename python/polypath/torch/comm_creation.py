"""How the ranks of a group come to a communicator, or agree that they have none."""

from __future__ import annotations

import functools
from datetime import timedelta

import torch

from .. import errors
from ..comm import Communicator, Store, store_exchange
from ..context import Context, shared_context

_MAX_MILLISECONDS = 2**32 - 1


@functools.cache
def context() -> Context:
    """One for all groups of the process. The caller's streams may still use it when the last group
    is gone."""
    return shared_context()


def milliseconds(limit: timedelta) -> int:
    return max(1, min(_MAX_MILLISECONDS, int(limit.total_seconds() * 1000)))


def connect(
    store: Store, rank: int, size: int, device: torch.device, timeout: timedelta
) -> Communicator | str:
    """The communicator of this group on the GPU of each rank, ready for stream capture; or why
    there is none, and then on all ranks. Collective over the store. ``timeout``: how long a rank
    waits for another one from then on.

    Raises what the store raises when a rank does not come.
    """
    problem = b""
    try:
        context()
    except errors.PolypathError as error:
        problem = str(error).encode()
    # One rank without a library or a driver is the same answer on all.
    ready = store_exchange(store, rank, size, "polypath/ready")
    for other, reason in enumerate(ready(problem)):
        if reason:
            return f"rank {other}: {reason.decode()}"
    try:
        comm = Communicator.from_store(
            *(context(), store, rank, size, device.index), milliseconds(timeout)
        )
    except (errors.CommunicatorError, errors.NotSupported) as error:
        return str(error)
    try:
        comm.prepare()
    except (errors.CommunicatorError, errors.NotSupported) as error:
        comm.close()
        return str(error)
    return comm
