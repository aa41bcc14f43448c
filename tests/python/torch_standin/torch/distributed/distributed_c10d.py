from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any


class _RedOpType(enum.IntEnum):
    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5


class ReduceOp:
    """As in torch, a value of its own around the operator."""

    RedOpType = _RedOpType
    SUM, AVG, PRODUCT, MIN, MAX, BAND = _RedOpType

    def __init__(self, op: _RedOpType) -> None:
        self.op = op


class _Options:
    def __init__(self) -> None:
        self.asyncOp = True
        self.rootRank = 0
        self.reduceOp = ReduceOp.SUM
        self.device = None
        self.device_ids: list[int] = []

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "reduceOp" and not isinstance(value, ReduceOp):
            value = ReduceOp(value)
        object.__setattr__(self, name, value)


class AllreduceOptions(_Options):
    pass


class AllreduceCoalescedOptions(AllreduceOptions):
    pass


class BroadcastOptions(_Options):
    pass


class ReduceOptions(_Options):
    pass


class AllgatherOptions(_Options):
    pass


class ReduceScatterOptions(_Options):
    pass


class AllToAllOptions(_Options):
    pass


class BarrierOptions(_Options):
    pass


def isend(tensor: Any, group: Any, peer: int) -> Any:
    return group.send([tensor], peer, 0)


def irecv(tensor: Any, group: Any, peer: int) -> Any:
    return group.recv([tensor], peer, 0)


@dataclasses.dataclass
class P2POp:
    op: Callable[..., Any]
    tensor: Any
    group_peer: int
    group: Any


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    """As torch's for a group that is not of its own class."""
    return [p2p_op.op(p2p_op.tensor, p2p_op.group, p2p_op.group_peer) for p2p_op in p2p_op_list]
