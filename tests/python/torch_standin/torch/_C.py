from __future__ import annotations

from . import cuda


def _cuda_getDevice() -> int:
    return cuda.current_device()


def _cuda_getCurrentStream(index: int) -> tuple[int, int, int]:
    assert index == cuda.current_device()
    stream = cuda.current_stream()
    return stream.stream_id, stream.device_index, stream.device_type


def _cuda_setStream(stream_id: int, device_index: int, device_type: int) -> None:
    assert device_type == cuda.Stream.device_type
    cuda.make_current(stream_id, device_index)


def _cuda_getCurrentRawStream(index: int) -> int:
    assert index == cuda.current_device()
    return cuda.current_stream().cuda_stream
