"""From objects that stand for a stream to its handle."""

import ctypes
from types import SimpleNamespace

import pytest
from polypath.streams import stream_handle


class CudaCoreStream:
    def __cuda_stream__(self):
        return (0, 77)


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (5, 5),
        (ctypes.c_void_p(6), 6),
        (ctypes.c_void_p(), 0),
        (CudaCoreStream(), 77),
        (SimpleNamespace(cuda_stream=8), 8),
        (SimpleNamespace(ptr=9), 9),
        (SimpleNamespace(handle=ctypes.c_void_p(10)), 10),
    ],
)
def test_reads_the_handle(stream, handle):
    assert stream_handle(stream) == handle


@pytest.mark.parametrize("stream", ["0", True, object(), 1.0])
def test_refuses_what_is_no_stream(stream):
    with pytest.raises(TypeError, match=r"stream: .* is not a CUDA stream"):
        stream_handle(stream)
