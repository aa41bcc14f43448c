"""A communication hook for `torch.nn.parallel.DistributedDataParallel`."""

# Annotations are values here: DDP compares them with the types that it wants.

from typing import Any

import torch
import torch.distributed as dist

from .connection import Pending

_AVG = dist.AllreduceOptions()
_AVG.reduceOp = dist.ReduceOp.AVG


def allreduce_hook(
    group: dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients in one call a bucket: the division is part of it, where torch
    divides each gradient when it comes.

    >>> model.register_comm_hook(None, polypath.torch.allreduce_hook)

    ``group``: None for the default one. One of another backend does, too.
    """
    used: Any = dist.group.WORLD if group is None else group
    buffer = bucket.buffer()
    work = used.allreduce([buffer], _AVG)
    if isinstance(work, Pending):
        return work.future_of(buffer)
    return work.get_future().then(lambda done: done.value()[0])
