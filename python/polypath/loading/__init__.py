"""Tensors of files to GPUs: `load_file` for one GPU, `load_sharded` for ranks."""

from __future__ import annotations

from .load import load_file, load_sharded
from .memory import DeviceTensor

__all__ = ["DeviceTensor", "load_file", "load_sharded"]
