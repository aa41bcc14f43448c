"""Refuses the arguments that torch's NCCL backend refuses, and names the argument and the rank."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .connection import Connection

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def require_usable(name: str, argument: str, tensor: torch.Tensor, on: Connection) -> None:
    """Raises `ValueError` for memory of another GPU, and where elements are not in one block."""
    if tensor.is_contiguous() and tensor.device == on.device:
        return
    where = f"rank {on.rank}: {name}: {argument}"
    if tensor.device != on.device:
        raise ValueError(f"{where} is on {tensor.device}, and the group's GPU is {on.device}")
    form = _FORMATS.get(tensor.dim())
    if form is None or not tensor.is_contiguous(memory_format=form):
        raise ValueError(f"{where}: tensors must be contiguous")


def require_parts(
    name: str,
    on: Connection,
    whole: tuple[str, torch.Tensor],
    part: tuple[str, torch.Tensor],
) -> None:
    """Raises `ValueError` unless the first tensor has as many elements as the second on each rank,
    and of the same type."""
    (long, tensor), (short, piece) = whole, part
    if tensor.dtype != piece.dtype:
        raise ValueError(
            f"rank {on.rank}: {name}: {long} is of {tensor.dtype}, and {short} of {piece.dtype}"
        )
    if tensor.numel() != piece.numel() * on.size:
        raise ValueError(
            f"rank {on.rank}: {name}: {long} has {tensor.numel()} elements, "
            f"and {on.size} ranks times {piece.numel()} of {short} are wanted"
        )


def require_like(
    name: str, on: Connection, own: tuple[str, torch.Tensor], listed: tuple[str, torch.Tensor]
) -> None:
    """Raises `ValueError` unless this rank's own tensor has as many elements as those of the list,
    and of the same type. Shapes may differ."""
    (label, tensor), (labels, other) = own, listed
    if tensor.dtype != other.dtype:
        raise ValueError(
            f"rank {on.rank}: {name}: {label} is of {tensor.dtype}, and {labels} of {other.dtype}"
        )
    if tensor.numel() != other.numel():
        raise ValueError(
            f"rank {on.rank}: {name}: {label} has {tensor.numel()} elements, and each of {labels} "
            f"{other.numel()}"
        )


def require_rows(
    name: str,
    on: Connection,
    input: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor | None,
    like: Mapping[str, torch.Tensor | None],
) -> None:
    """Raises `ValueError` unless ``weight`` is a row of ``input``, ``scale`` one float32, and the
    others have the shape of ``input`` and its type, or for an output with a scale FP8."""
    where = f"rank {on.rank}: {name}"
    row = input.shape[-1] if input.dim() > 0 else 0
    if weight.numel() != row or row == 0:
        raise ValueError(f"{where}: weight has {weight.numel()} elements, and a row {row}")
    if scale is not None and (scale.dtype != torch.float32 or scale.numel() != 1):
        raise ValueError(f"{where}: scale is not one float32")
    for argument, tensor in {"input": input, "weight": weight, "scale": scale, **like}.items():
        if tensor is None:
            continue
        require_usable(name, argument, tensor, on)
        if not tensor.is_contiguous():  # not in the order of rows
            raise ValueError(f"{where}: {argument}: tensors must be contiguous")
        if argument in like and tensor.shape != input.shape:
            raise ValueError(
                f"{where}: {argument} is {tuple(tensor.shape)}, and input {tuple(input.shape)}"
            )
        is_float8 = argument == "output" and scale is not None
        required = torch.float8_e4m3fn if is_float8 else input.dtype
        if argument != "scale" and tensor.dtype != required:
            raise ValueError(f"{where}: {argument} is of {tensor.dtype}, and {required} is wanted")
