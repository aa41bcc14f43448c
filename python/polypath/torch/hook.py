"""A communication hook for `torch.nn.parallel.DistributedDataParallel`."""

# Annotations are values here: DDP compares them with the types that it wants.

from typing import Any

import torch
import torch.distributed as dist

from .connection import Pending

_AVG = dist.AllreduceOptions()
_AVG.reduceOp = dist.ReduceOp.AVG
_SUM = dist.AllreduceOptions()


def allreduce_hook(
    group: dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients in one call a bucket: the division is part of it, where torch
    divides each gradient when it comes.

    >>> model.register_comm_hook(None, polypath.torch.allreduce_hook)

    DDP over a group of ours takes it by itself (`ddp`). ``group``: None for the default one. One of
    another backend does, too.
    """
    return _reduced(group, bucket.buffer(), _AVG)


def divided_hook(group: Any, bucket: Any, count: Any) -> Any:
    """The same in two steps, as DDP has it without a hook: each rank divides by ``count``, a number
    or a tensor of one element, then the bucket is summed."""
    return _reduced(group, bucket.buffer().div_(count), _SUM)


def _reduced(group: Any, buffer: Any, options: Any) -> Any:
    used = dist.group.WORLD if group is None else group
    beside = getattr(used, "allreduce_beside", used.allreduce)  # of ours
    work = beside([buffer], options)
    if isinstance(work, Pending):
        return work.future_of(buffer)
    return work.get_future().then(lambda done: done.value()[0])
