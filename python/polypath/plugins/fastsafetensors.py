"""The copier "polypath" of fastsafetensors: files go to the GPU over the links of all GPUs.

Written for fastsafetensors 0.3.2. Importing this module registers the copier::

    import polypath.plugins.fastsafetensors

    loader = BaseSafeTensorsFileLoader(pg, device, "polypath")

`install` makes it the copier of loaders that would take "nogds", whose choice is fixed in
``SafeTensorsFileLoader``; programs as vLLM with ``--load-format fastsafetensors`` then take it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from fastsafetensors.copier.base import CopierInterface
from fastsafetensors.copier.registry import (
    register_copier_constructor,
)
from fastsafetensors.st_types import DeviceType, DType

from ..buffers import Buffer
from ..context import Context, shared_context
from ..errors import NotSupported
from ..gpu import Gpu

VERSIONS = ("0.3.2",)
NAME = "polypath"

#: As fastsafetensors has it: (metadata, device, framework) -> copier.
Construct = Callable[[Any, Any, Any], CopierInterface]


class PolypathCopier(CopierInterface):  # type: ignore[misc]  # the package has no types
    """Copies one file's data to a block of the framework's memory."""

    def __init__(self, gpu: Gpu, metadata: Any, device: Any, framework: Any) -> None:
        self._gpu = gpu
        self._metadata = metadata
        self._device = device
        self._framework = framework
        self._streams = contextlib.ExitStack()

    def submit_io(self, use_buf_register: bool, max_copy_block_size: int) -> Any:
        """Returns the block when the file has been read. Raises `FileError`; the block is the
        framework's again then."""
        header = self._metadata.header_length
        size = self._metadata.size_bytes - header
        block = self._framework.alloc_tensor_memory(size, self._device)
        try:
            self._read(block.get_base_address(), header, size, max_copy_block_size)
        except BaseException:
            self._streams.close()
            self._framework.free_tensor_memory(block, self._device)
            raise
        return block

    def _read(self, address: int, header: int, size: int, piece: int) -> None:
        (stream,) = self._streams.enter_context(self._gpu.streams(1))
        # The framework's memory may be used by what its stream still holds.
        self._gpu.order(_stream_of(self._framework, self._gpu.index), stream)
        descriptor = os.open(self._metadata.src, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with self._gpu.current():
                for at in range(0, size, piece):
                    count = min(piece, size - at)
                    self._gpu.context.read_async(
                        descriptor, Buffer(address + at, count), offset=header + at, stream=stream
                    )
        finally:
            os.close(descriptor)

    def wait_io(self, gbuf: Any, dtype: Any = DType.AUTO, noalign: bool = False) -> dict[str, Any]:
        """The tensors in the block, by names."""
        self._streams.close()  # waits
        header = self._metadata.header_length
        tensors: dict[str, Any] = self._metadata.get_tensors(
            gbuf, self._device, header, dtype=dtype
        )
        return tensors


def _stream_of(framework: Any, gpu: int) -> int:
    """The current stream of the framework on the GPU; the default stream where it tells none."""
    if framework.get_name() != "pytorch":
        return 0
    import torch

    return int(torch.cuda.current_stream(gpu).cuda_stream)


def constructor(device: Any, context: Context | None = None, **_options: Any) -> Construct:
    """As `register_copier_constructor` wants it. ``context``: default the one that the process
    shares. Raises `NotSupported` for another device than a GPU."""
    if device.type == DeviceType.CPU:
        raise NotSupported("the copier 'polypath' copies to GPUs; take 'nogds' for the CPU")
    gpu = Gpu(context or shared_context(), device.index or 0)

    def construct(metadata: Any, device: Any, framework: Any) -> CopierInterface:
        return PolypathCopier(gpu, metadata, device, framework)

    return construct


def install() -> None:
    """Takes the place of the copier "nogds" for GPUs; for the CPU that one stays."""
    register_copier_constructor("nogds")(_or_stock(_stock("nogds")))


def _stock(name: str) -> Callable[..., Construct]:
    from fastsafetensors.copier import registry

    stock: Callable[..., Construct] = registry._copier_registry[name]
    return stock


def _or_stock(stock: Callable[..., Construct]) -> Callable[..., Construct]:
    def choose(device: Any, **options: Any) -> Construct:
        if device.type == DeviceType.CPU:
            return stock(device, **options)
        return constructor(device, **options)

    return choose


register_copier_constructor(NAME)(constructor)
