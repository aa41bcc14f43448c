from __future__ import annotations

import enum
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
