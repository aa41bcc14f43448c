"""As much of PyTorch as polypath.torch and polypath.loading use, on the simulated node's memory:
for tests where there is no PyTorch. Ranks are threads, each with its own GPU and current stream.

It shows what polypath.torch does with the interfaces, element by element and stream by stream. It
cannot show that PyTorch has them so: tests/python/torch_on_host.py runs with a real one.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from . import cuda

__version__ = "a stand-in"


@dataclasses.dataclass(frozen=True, eq=False)
class dtype:
    name: str
    itemsize: int

    def __str__(self) -> str:
        return f"torch.{self.name}"

    @property
    def numpy(self) -> Any:
        return np.dtype(self.name)


int8, uint8, int16 = dtype("int8", 1), dtype("uint8", 1), dtype("int16", 2)
int32, uint32, int64, uint64 = (
    dtype(name, size) for name, size in (("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8))
)
float16, bfloat16 = dtype("float16", 2), dtype("bfloat16", 2)
float8_e4m3fn = dtype("float8_e4m3fn", 1)
float32, float64 = dtype("float32", 4), dtype("float64", 8)
complex64, complex128 = dtype("complex64", 8), dtype("complex128", 16)
bool = dtype("bool", 1)
_BY_NAME = {kind.name: kind for kind in list(globals().values()) if isinstance(kind, dtype)}
channels_last, channels_last_3d = "channels_last", "channels_last_3d"


@dataclasses.dataclass(frozen=True)
class device:
    type: str
    index: int | None = None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Tensor:
    """In the memory of a GPU, or of the host for ``device("cpu")``, which nothing touches."""

    is_sparse = False

    def __init__(self, address: int, shape: tuple[int, ...], kind: dtype, where: device) -> None:
        self.address, self.shape, self.dtype, self.device = address, shape, kind, where
        self.format: str | None = "contiguous"
        self.recorded: list[cuda.Stream] = []

    def data_ptr(self) -> int:
        return self.address

    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel() * self.dtype.itemsize

    def dim(self) -> int:
        return len(self.shape)

    def is_contiguous(self, memory_format: str = "contiguous") -> Any:
        return self.format == memory_format

    def is_complex(self) -> Any:
        return self.dtype in (complex64, complex128)

    def contiguous(self) -> Tensor:
        if self.format == "contiguous":
            return self
        assert self.format == channels_last
        batch, channels, high, wide = self.shape
        result = empty(self.shape, self.dtype, self.device)
        stored = self.numpy().reshape(batch, high, wide, channels)
        cuda.write(result.address, stored.transpose(0, 3, 1, 2))
        return result

    def view(self, shape: tuple[int, ...] | dtype) -> Tensor:
        if not isinstance(shape, dtype):
            assert math.prod(shape) == self.numel()
            return Tensor(self.address, tuple(shape), self.dtype, self.device)
        assert self.address % shape.itemsize == 0, "storage offset"
        (length,) = self.shape
        count, rest = divmod(length * self.dtype.itemsize, shape.itemsize)
        assert rest == 0
        return Tensor(self.address, (count,), shape, self.device)

    def __getitem__(self, part: slice) -> Tensor:
        (length,) = self.shape
        begin, end, step = part.indices(length)
        assert step == 1 and (begin, end) == (part.start, part.stop), "past the end"
        at = self.address + begin * self.dtype.itemsize
        return Tensor(at, (end - begin,), self.dtype, self.device)

    def clone(self) -> Tensor:
        result = empty(self.shape, self.dtype, self.device)
        result.copy_(self)
        return result

    def narrow(self, dim: int, begin: int, length: int) -> Tensor:
        """A copy, which PyTorch's is not."""
        return tensor(np.take(self.numpy(), range(begin, begin + length), dim), self.device)

    def to(self, kind: dtype) -> Tensor:
        return tensor(self.numpy().astype(kind.numpy), self.device)

    def __iter__(self) -> Any:
        step = self.nbytes // self.shape[0]
        for at in range(self.shape[0]):
            yield Tensor(self.address + at * step, self.shape[1:], self.dtype, self.device)

    def copy_(self, source: Tensor) -> None:
        assert (source.shape, source.dtype) == (self.shape, self.dtype)
        assert source.format == "contiguous"
        if self.format == channels_last:
            cuda.write(self.address, source.numpy().transpose(0, 2, 3, 1))
            return
        cuda.copy(self.address, source.address, self.nbytes)

    def div_(self, by: Any) -> Tensor:
        """By a number or a tensor of one element. The host does it, after the current stream."""
        if isinstance(by, Tensor):
            by = by.numpy()[0]
        cuda.write(self.address, (self.numpy() / by).astype(self.dtype.numpy))
        return self

    def record_stream(self, stream: cuda.Stream) -> None:
        self.recorded.append(stream)

    def numpy(self) -> np.ndarray:
        """After the work of the current stream."""
        values = np.empty(self.shape, self.dtype.numpy)
        cuda.read(values, self.address)
        return values


def empty(shape: Any, dtype: dtype, device: device) -> Tensor:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    result = Tensor(0, shape, dtype, device)
    if device.type == "cuda":
        result.address = cuda.allocate(result.nbytes)
    return result


def empty_like(like: Tensor, dtype: dtype | None = None) -> Tensor:
    return empty(like.shape, dtype or like.dtype, like.device)


def zeros(shape: Any, dtype: dtype, device: device) -> Tensor:
    count = shape if isinstance(shape, int) else math.prod(shape)
    return tensor(np.zeros(count, dtype.numpy), device)


def tensor(values: np.ndarray, device: device) -> Tensor:
    result = empty(values.shape, _BY_NAME[values.dtype.name], device)
    if device.type == "cuda":
        cuda.write(result.address, values)
    return result


def full(shape: Any, value: Any, dtype: dtype = int64, device: Any = None) -> Tensor:
    return tensor(np.full(shape, value, dtype.numpy), device)


def stack(tensors: tuple[Tensor, ...]) -> Tensor:
    first = tensors[0]
    result = empty((len(tensors), *first.shape), first.dtype, first.device)
    for part, source in zip(result, tensors, strict=True):
        part.copy_(source)
    return result


def cat(tensors: tuple[Tensor, ...]) -> Tensor:
    result = empty(sum(part.numel() for part in tensors), tensors[0].dtype, tensors[0].device)
    begin = 0
    for part in tensors:
        if part.numel() > 0:
            result[begin : begin + part.numel()].copy_(part)
        begin += part.numel()
    return result


def view_as_real(source: Tensor) -> Tensor:
    kind = float32 if source.dtype is complex64 else float64
    return Tensor(source.address, (*source.shape, 2), kind, source.device)


from . import _C, distributed, futures, nn  # noqa: E402, F401  they use what stands above
