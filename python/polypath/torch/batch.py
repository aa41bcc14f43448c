"""`torch.distributed.batch_isend_irecv` for groups of ours, too."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed import Work

from . import group as groups
from .p2p import Message

_of_torch = c10d.batch_isend_irecv


@functools.wraps(_of_torch)
def batch_isend_irecv(p2p_op_list: list[Any]) -> list[Work]:
    """torch's own but for batches of GPU tensors in a group of ours, which it would make of single
    calls. Returns one Work, as with NCCL's backend."""
    group = getattr(p2p_op_list[0], "group", None) if p2p_op_list else None
    if not isinstance(group, groups.ProcessGroupPolypath) or not all(
        isinstance(op, c10d.P2POp) and op.group is group and op.tensor.device.type == groups.GPU
        for op in p2p_op_list
    ):
        return _of_torch(p2p_op_list)
    messages = [Message(op.op is c10d.isend, _real(op.tensor), op.group_peer) for op in p2p_op_list]
    return [group.exchange(messages)]


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def install() -> None:
    """torch asks for the exact type of a group before it asks the group: there is no other way."""
    dist.batch_isend_irecv = c10d.batch_isend_irecv = batch_isend_irecv
