"""Rows that are summed over the ranks of a group and then normalised, as operators of torch.

`all_reduce_norm` and `all_reduce_norm_out` are ``torch.ops.polypath`` of these names, which
``torch.compile`` keeps as they are. They name the group as functional collectives do, by
``group.group_name``. A torch without ``torch.library.custom_op`` (before 2.4) has the functions
alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch import Tensor

from .group import ProcessGroupPolypath


def _group(name: str) -> ProcessGroupPolypath:
    for group, known in c10d._world.pg_names.items():
        if known == name:
            if isinstance(group, ProcessGroupPolypath):
                return group
            raise ValueError(f"group '{name}' is not one of polypath")
    raise ValueError(f"there is no group '{name}'")


def all_reduce_norm(
    input: Tensor, weight: Tensor, residual: Tensor | None, epsilon: float, group_name: str
) -> tuple[Tensor, Tensor]:
    """The output, and what the residual is from then on; both are new. The last dimension of
    ``input`` is a row. Arithmetic and order: `polypath.comm.Communicator.all_reduce_norm`."""
    return _group(group_name).all_reduce_norm(input, weight, epsilon, residual=residual)


def all_reduce_norm_out(
    input: Tensor,
    output: Tensor | None,
    weight: Tensor,
    residual: Tensor,
    epsilon: float,
    scale: Tensor | None,
    group_name: str,
) -> None:
    """In place: ``residual`` becomes the sum with it. ``output`` None: it takes the place of
    ``input``. With ``scale``, one float32, ``output`` is of ``torch.float8_e4m3fn``, and what
    ``input`` holds afterwards is undefined."""
    _group(group_name).all_reduce_norm(
        *(input, weight, epsilon),
        residual=residual,
        residual_out=residual,
        output=input if output is None else output,
        scale=scale,
    )


def _fake(
    input: Tensor, weight: Tensor, residual: Tensor | None, epsilon: float, group_name: str
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(input), torch.empty_like(input)


def _fake_out(*_: Any) -> None:
    return None


def define() -> None:
    """Makes them operators of torch, where it has what that needs."""
    custom_op = getattr(getattr(torch, "library", None), "custom_op", None)
    if custom_op is None:
        return
    custom_op(
        "polypath::all_reduce_norm",
        all_reduce_norm,
        mutates_args=(),
        schema="(Tensor input, Tensor weight, Tensor? residual, float epsilon, str group_name)"
        " -> (Tensor, Tensor)",
    ).register_fake(_fake)
    custom_op(
        "polypath::all_reduce_norm_out",
        all_reduce_norm_out,
        mutates_args=("input", "output", "residual"),
        schema="(Tensor(a!) input, Tensor(b!)? output, Tensor weight, Tensor(c!) residual, "
        "float epsilon, Tensor? scale, str group_name) -> ()",
    ).register_fake(_fake_out)
