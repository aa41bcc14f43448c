"""From an object that stands for a CUDA stream to its handle."""

from __future__ import annotations

import ctypes
from typing import Any

from .errors import WrongType
from .integers import integer


def stream_handle(stream: Any) -> int:
    """The ``CUstream`` of ``stream``, as a number.

    None is 0, the legacy default stream of the current CUDA context. Besides numbers and
    ``ctypes.c_void_p``: objects with ``__cuda_stream__`` (the protocol of cuda.core),
    ``cuda_stream`` (PyTorch), ``ptr`` (CuPy) or ``handle`` (Numba). Raises `WrongType` for anything
    else, `InvalidArgument` for a number past 64 bits.
    """
    if stream is None:
        return 0
    if isinstance(stream, int) and not isinstance(stream, bool):
        return integer(stream, ctypes.c_uint64, "stream")
    if isinstance(stream, ctypes.c_void_p):
        return stream.value or 0
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        _, handle = protocol() if callable(protocol) else protocol
        return int(handle)
    for attribute in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, attribute):
            return stream_handle(getattr(stream, attribute))
    raise WrongType(
        f"stream: {type(stream).__name__} is not a CUDA stream; give its handle (int), or "
        "an object with __cuda_stream__, cuda_stream, ptr or handle"
    )
