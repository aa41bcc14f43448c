"""What tensors are loaded into: memory of PyTorch where it is installed, else plain memory of the
GPU for users of DLPack."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
from collections.abc import Sequence
from typing import Any, Protocol

from .. import _dlpack
from ..buffers import Buffer
from ..errors import InvalidArgument, NotSupported
from ..gpu import Gpu
from .elements import ELEMENTS
from .header import Entry

#: Kinds of NumPy's type strings, of types that NumPy has.
_NUMPY_KINDS = {"bool": "b", "int": "i", "uint": "u", "float": "f", "complex": "c"}


class Memory(Protocol):
    """Makes blocks of memory on one GPU, and tensors in them. What it issues is on `stream`."""

    stream: int

    def allocate(self, bytes: int) -> Any:
        """A block, which tensors keep."""

    def address(self, block: Any) -> int: ...

    def tensor(self, block: Any, offset: int, entry: Entry, shape: Sequence[int]) -> Any:
        """The tensor that lies at ``offset`` of a block; a copy where its elements would lie at
        odd addresses. Raises `NotSupported` for a type that the framework lacks."""

    def part(self, tensor: Any, dim: int, index: int, count: int) -> Any:
        """A copy of the ``index``-th of ``count`` equal parts."""

    def converted(self, tensor: Any, dtype: Any) -> Any:
        """With elements of another floating-point type."""


def memory_of(gpu: Gpu, framework: str | None, stream: int) -> Memory:
    """``framework``: "torch", "dlpack", or None for PyTorch where it is installed and the GPU is a
    real one. ``stream``: of the plain memory."""
    if framework not in (None, "torch", "dlpack"):
        raise InvalidArgument(f"framework: there is no '{framework}': torch, dlpack, or None")
    has_torch = importlib.util.find_spec("torch") is not None
    if framework == "torch" and not has_torch:
        raise NotSupported("framework 'torch': PyTorch is not installed (pip install torch)")
    is_simulated = gpu.context.topology()["simulated"]
    if framework == "torch" or (framework is None and has_torch and not is_simulated):
        return TorchMemory(gpu)
    return PlainMemory(gpu, stream)


def floating_type(dtype: Any) -> str:
    """The name of PyTorch's floating-point type that a caller gives as ``dtype``. Raises
    `InvalidArgument`."""
    name = str(dtype).removeprefix("torch.")
    known = [element.torch for element in ELEMENTS.values() if element.is_floating]
    if name not in known:
        raise InvalidArgument(f"dtype: '{name}' is no floating-point type, such as bfloat16")
    return name


class TorchMemory:
    """Memory of PyTorch's allocator, on PyTorch's current stream of the GPU."""

    def __init__(self, gpu: Gpu) -> None:
        import torch

        self._torch = torch
        self._device = torch.device("cuda", gpu.index)
        self.stream = int(torch.cuda.current_stream(gpu.index).cuda_stream)

    def allocate(self, bytes: int) -> Any:
        return self._torch.empty(max(1, bytes), dtype=self._torch.uint8, device=self._device)

    def address(self, block: Any) -> int:
        return int(block.data_ptr())

    def tensor(self, block: Any, offset: int, entry: Entry, shape: Sequence[int]) -> Any:
        kind = getattr(self._torch, entry.element.torch or "", None)
        shape = list(shape)
        if entry.dtype == "F4" and shape and shape[-1] % 2 == 0:
            shape[-1] //= 2  # PyTorch's elements are pairs
        elif kind is None or entry.dtype == "F4":
            raise NotSupported(
                f"'{entry.name}': this PyTorch has no tensor of {entry.dtype} and shape {shape}; "
                "framework='dlpack' loads it"
            )
        flat = block[offset : offset + math.prod(shape) * kind.itemsize]
        if offset % kind.itemsize:
            flat = flat.clone()
        return flat.view(kind).view(tuple(shape))

    def part(self, tensor: Any, dim: int, index: int, count: int) -> Any:
        length = tensor.shape[dim] // count
        return tensor.narrow(dim, index * length, length).contiguous()

    def converted(self, tensor: Any, dtype: Any) -> Any:
        return tensor.to(getattr(self._torch, dtype))


class DeviceMemory:
    """Memory of a GPU, freed with the last object that refers to it."""

    def __init__(self, gpu: Gpu, bytes: int) -> None:
        self.gpu = gpu
        self.bytes = bytes
        self._made_by = os.getpid()
        self.address = gpu.allocate(bytes)

    def __del__(self) -> None:
        if getattr(self, "address", None) is not None and self._made_by == os.getpid():
            with contextlib.suppress(Exception):  # the context was destroyed before
                self.gpu.free(self.address)


class DeviceTensor:
    """A tensor in memory of a GPU, C-contiguous, for libraries that take DLPack or
    ``__cuda_array_interface__``. It was complete when it was returned."""

    def __init__(
        self, memory: DeviceMemory, address: int, dtype: str, shape: Sequence[int]
    ) -> None:
        self._memory = memory
        self._address = address
        self.dtype = ELEMENTS[dtype].name
        """As DLPack names it: "bfloat16"."""
        self.shape = tuple(shape)
        self.nbytes = math.prod(shape) * ELEMENTS[dtype].bits // 8
        self.gpu = memory.gpu.index

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self._address

    def __repr__(self) -> str:
        return f"DeviceTensor({self.dtype}, {self.shape}, gpu{self.gpu})"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        kind = self.dtype.rstrip("0123456789")
        if kind not in _NUMPY_KINDS:
            raise AttributeError(f"NumPy has no {self.dtype}; use DLPack")
        item = self.nbytes // max(1, math.prod(self.shape))
        return {
            "shape": self.shape,
            "typestr": ("|" if item <= 1 else "<") + f"{_NUMPY_KINDS[kind]}{max(1, item)}",
            "data": (self._address, False),
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _dlpack.CUDA, self.gpu

    def __dlpack__(self, **_wishes: Any) -> Any:
        return _dlpack.export(self._address, self.shape, self.dtype, self.gpu, self)


class PlainMemory:
    """Memory of the driver."""

    def __init__(self, gpu: Gpu, stream: int) -> None:
        self._gpu = gpu
        self.stream = stream

    def allocate(self, bytes: int) -> DeviceMemory:
        return DeviceMemory(self._gpu, bytes)

    def address(self, block: DeviceMemory) -> int:
        return block.address

    def tensor(
        self, block: DeviceMemory, offset: int, entry: Entry, shape: Sequence[int]
    ) -> DeviceTensor:
        item = max(1, entry.element.bits // 8)
        size = math.prod(shape) * entry.element.bits // 8
        if offset % item and size:
            apart = self.allocate(size)
            source = Buffer(block.address + offset, size)
            with self._gpu.current():
                target = Buffer(apart.address, size)
                self._gpu.context.copy_async(target, source, stream=self.stream)
            block, offset = apart, 0
        return DeviceTensor(block, block.address + offset, entry.dtype, shape)

    def part(self, tensor: DeviceTensor, dim: int, index: int, count: int) -> DeviceTensor:
        raise NotSupported("a split along another dimension than the first needs PyTorch")

    def converted(self, tensor: DeviceTensor, dtype: Any) -> DeviceTensor:
        raise NotSupported("dtype needs PyTorch, whose kernels convert (pip install torch)")
