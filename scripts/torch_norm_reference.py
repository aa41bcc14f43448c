"""What all_reduce_norm must give, bit by bit: the documented order of sums, by NumPy in float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

UNIT = 384


def squares(rows: np.ndarray) -> np.ndarray:
    """The sum of the squares of each row: 12 in each of 32 lanes of a unit, lanes by halves, units
    one after another."""
    units = -(-rows.shape[1] // UNIT)
    padded = np.zeros((rows.shape[0], units * UNIT), np.float32)
    padded[:, : rows.shape[1]] = rows * rows
    total = None
    for unit in np.moveaxis(padded.reshape(-1, units, 3, 32, 4), 1, 0):
        lanes = np.zeros((rows.shape[0], 32), np.float32)
        for part in range(3):
            for element in range(4):
                lanes = lanes + unit[:, part, :, element]
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        total = lanes[:, 0] if total is None else total + lanes[:, 0]
    assert total is not None
    return total


def expected(
    inputs: Sequence[Tensor],
    residual: Tensor | None,
    weight: Tensor,
    epsilon: float,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The output and the new residual, in host memory, from the inputs of all ranks."""
    dtype, shape = inputs[0].dtype, inputs[0].shape
    total = _wide(inputs[0])
    for other in inputs[1:]:
        total = total + _wide(other)
    result = _narrow(total, dtype)
    if residual is not None:
        result = _narrow(_wide(result) + _wide(residual), dtype)
    rows = _wide(result).reshape(-1, shape[-1])
    mean = squares(rows) * (np.float32(1) / np.float32(shape[-1]))
    factor = np.float32(1) / np.sqrt(mean + np.float32(epsilon))
    output = _narrow((rows * factor[:, None] * _wide(weight)).reshape(shape), dtype)
    if scale is not None:
        inverse = np.float32(1) / np.float32(scale.item())
        scaled = torch.from_numpy(_wide(output) * inverse).clamp(-448, 448)
        output = scaled.to(torch.float8_e4m3fn)
    return output, result.reshape(shape)


def _wide(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().to(torch.float32).numpy()


def _narrow(values: np.ndarray, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(values).to(dtype)
