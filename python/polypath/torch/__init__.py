"""The backend "polypath" of `torch.distributed`: importing this package registers it.

>>> import polypath.torch
>>> torch.distributed.init_process_group("cpu:gloo,cuda:polypath")
>>> model = DistributedDataParallel(model, device_ids=[gpu])  # takes `allreduce_hook` by itself

Collectives on GPU tensors go over polypath's communicators, where the ranks of a group are on one
node and polypath has the operation, the type and the operator; all others go to NCCL, and those on
CPU tensors to Gloo. `ProcessGroupPolypath.report` says which went where.
"""

from __future__ import annotations

import torch.distributed

from . import batch, ddp, norm
from .group import ProcessGroupPolypath
from .hook import allreduce_hook
from .norm import all_reduce_norm, all_reduce_norm_out

__all__ = ["ProcessGroupPolypath", "all_reduce_norm", "all_reduce_norm_out", "allreduce_hook"]

if "POLYPATH" not in torch.distributed.Backend._plugins:
    torch.distributed.Backend.register_backend(
        "polypath", ProcessGroupPolypath.create, extended_api=True, devices=["cuda"]
    )
    batch.install()
    ddp.install()
    norm.define()
