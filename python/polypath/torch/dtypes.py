"""Torch element types and operators that polypath has, and their numbers in its C API."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

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
# The sum of booleans is true where one of them is, as in NCCL's backend; their average is an error
# there.
_OF_BOOL = {
    _RedOpType.SUM: _MAX,
    _RedOpType.PRODUCT: _MIN,
    _RedOpType.MIN: _MIN,
    _RedOpType.MAX: _MAX,
}
# What acts on the real and the imaginary part of a complex number alike.
_OF_COMPLEX = {_RedOpType.SUM: _SUM, _RedOpType.AVG: _AVG}
_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def _row(number: int, operators: dict[_RedOpType, int]) -> dict[int, tuple[int, int]]:
    return {int(name): (number, operator) for name, operator in operators.items()}


_REDUCTIONS = {
    **{dtype: _row(number, _OPERATORS) for dtype, number in _TYPES.items()},
    **{dtype: _row(_TYPES[real], _OF_COMPLEX) for dtype, real in _REAL.items()},
    torch.bool: _row(_TYPES[torch.uint8], _OF_BOOL),
}


def combined(tensors: Sequence[torch.Tensor], opts: Any) -> tuple[int, int] | None:
    """The numbers of the C API for what combines these tensors, of which complex ones are taken as
    pairs of real elements (`real`); None: polypath does not combine them. ``opts``: with the
    operator, ``reduceOp``."""
    dtype = tensors[0].dtype
    operators = _REDUCTIONS.get(dtype)
    if operators is None:
        return None
    for tensor in tensors:
        if tensor.is_sparse or tensor.dtype is not dtype:
            return None
    return operators.get(int(opts.reduceOp.op))  # the number: its hash is slow


def averaged(tensor: torch.Tensor) -> bool:
    """Whether polypath averages tensors like this one."""
    operators = _REDUCTIONS.get(tensor.dtype, {})
    return int(_RedOpType.AVG) in operators and not tensor.is_sparse


def real(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, with pairs of real elements for complex ones."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


@functools.cache
def moved(dtype: torch.dtype) -> tuple[int, int]:
    """How elements are moved that are not combined: a type of the C API, and how many of its
    elements one of these is."""
    if dtype in _TYPES:
        return _TYPES[dtype], 1
    return _TYPES[torch.uint8], dtype.itemsize
