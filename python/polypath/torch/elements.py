"""Which of torch's element types and operators polypath has, and by which numbers of its C API."""

from __future__ import annotations

import functools

import torch
from torch.distributed import ReduceOp

from .. import _api

_TYPES = {
    getattr(torch, name): number for name, number in _api.TYPES.items() if hasattr(torch, name)
}
_SUM, _PRODUCT, _MIN, _MAX, _AVG = (
    _api.OPERATORS[name] for name in ("sum", "product", "min", "max", "avg")
)
_RedOpType = ReduceOp.RedOpType
_OPERATORS = {
    _RedOpType.SUM: _SUM,
    _RedOpType.PRODUCT: _PRODUCT,
    _RedOpType.MIN: _MIN,
    _RedOpType.MAX: _MAX,
    _RedOpType.AVG: _AVG,
}
# Of false and true the sum is true where one is, which is what NCCL's backend makes of it; their
# average is an error there.
_OF_BOOL = {_RedOpType.SUM: _MAX, _RedOpType.PRODUCT: _MIN}


def _tables() -> dict[torch.dtype, dict[_RedOpType, tuple[int, int]]]:
    tables = {
        dtype: {name: (number, operator) for name, operator in _OPERATORS.items()}
        for dtype, number in _TYPES.items()
    }
    byte = _TYPES[torch.uint8]
    of_bool = {**_OPERATORS, **_OF_BOOL}
    del of_bool[_RedOpType.AVG]
    tables[torch.bool] = {name: (byte, operator) for name, operator in of_bool.items()}
    return tables


#: By element type and operator (``opts.reduceOp.op``): the numbers of both; what is not in it
#: polypath does not combine.
REDUCTIONS = _tables()

#: Operators that act on the real and the imaginary part of a complex number alike.
OF_COMPLEX = {_RedOpType.SUM, _RedOpType.AVG}


@functools.cache
def moved(dtype: torch.dtype) -> tuple[int, int]:
    """As what elements are moved that nobody combines: a type of the C API, and how many of its
    elements one of these is."""
    if dtype in _TYPES:
        return _TYPES[dtype], 1
    return _TYPES[torch.uint8], dtype.itemsize
