"""KV cache offloading of vLLM whose blocks go over the host links of all GPUs.

Written for vLLM 0.33.0, whose interface for offloading is experimental. Usage::

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"spec_name": "PolypathOffloadingSpec",
        "spec_module_path": "polypath.plugins.vllm", "cpu_bytes_to_use": 68719476736}}'

The spec is vLLM's `CPUOffloadingSpec`: its memory, its manager and its worker, but for one function
of the worker's transfers, the copy of a list of blocks. That one is polypath's
(`Context.copy_batch_async`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

from ..context import Context, shared_context
from ..errors import NotSupported, PolypathError
from ..streams import stream_handle

VERSIONS = ("0.33.0",)

#: As vLLM has it: addresses of sources and destinations and sizes, each an array of 64-bit integers
#: in host memory, in this order, and ``is_src_access_order_any``. On PyTorch's current stream.
Swap = Callable[..., None]

_HANDLERS = ("_store_handler", "_load_handler", "_expedited_load_handler")
_SWAP = "_swap_blocks_batch"

_log = logging.getLogger(__name__)


class BlockCopier:
    """Copies lists of blocks by polypath; by vLLM's own function what polypath refuses."""

    def __init__(self, context: Context, stock: Swap) -> None:
        self._context = context
        self._stock = stock
        self._has_failed = False

    def __call__(
        self, src: Any, dst: Any, sizes: Any, is_src_access_order_any: bool = False
    ) -> None:
        """Blocks have no order among each other, and each transfer reads memory that no other work
        of the stream's GPU writes meanwhile: vLLM orders transfers by streams and events."""
        try:
            self._context.copy_batch_async(dst, src, sizes, _current_stream())
        except PolypathError as error:
            if not self._has_failed:
                _log.warning("polypath: blocks are copied by vLLM: %s", error)
            self._has_failed = True
            self._stock(src, dst, sizes, is_src_access_order_any=is_src_access_order_any)


class PolypathOffloadingSpec(CPUOffloadingSpec):  # type: ignore[misc]  # vLLM is not there to check
    """`CPUOffloadingSpec`, whose workers copy by polypath."""

    def create_worker(self, kv_caches: Any) -> Any:
        """Called once in each worker process, with its GPU current."""
        worker = super().create_worker(kv_caches)
        try:
            context = shared_context()
            handlers = [getattr(worker, name) for name in _HANDLERS]
            stock = [getattr(handler, _SWAP) for handler in handlers]
        except PolypathError as error:
            _log.warning("polypath: blocks are copied by vLLM: %s", error)
            return worker
        except AttributeError as error:
            worker.shutdown()
            raise NotSupported(
                f"this vLLM's worker is not that of {' or '.join(VERSIONS)}: {error}"
            ) from error
        for handler, swap in zip(handlers, stock, strict=True):
            setattr(handler, _SWAP, self.copier(context, swap, handler.gpu_to_cpu))
        return worker

    def copier(self, context: Context, stock: Swap, gpu_to_cpu: bool) -> Swap:
        """What copies the blocks of one direction. To be overridden by layouts that a copy of all
        ranks together serves better: with ``self.replicated_layout`` all ranks load the same host
        blocks, ``gpu_to_cpu`` being False, and each byte need cross a host link only once."""
        return BlockCopier(context, stock)


def _current_stream() -> int:
    import torch

    return stream_handle(torch.cuda.current_stream())
