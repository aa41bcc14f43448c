from __future__ import annotations

from . import cuda


def _cuda_getCurrentRawStream(index: int) -> int:
    assert index == cuda.current_device()
    return cuda.current_stream().cuda_stream
