"""The backend of torch.distributed on tensors in host memory, with a real PyTorch and no GPU.

What is replaced, and so not shown: the library (by one that combines over Gloo, in rank order),
streams and events (by nothing: all is done at once). What is real: torch's own part, from
`torch.distributed` and its C++ down to `ProcessGroupPolypath`, with every element compared.
"""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from polypath import _api
from polypath.torch import comm_creation, connection, ddp, fallback_groups, group, p2p
from torch import Tensor
from torch_norm_reference import expected

_TYPES = {number: getattr(torch, name) for name, number in _api.TYPES.items()}
_OPERATORS = {number: name for name, number in _api.OPERATORS.items()}
_STREAM = 77


def _view(address: int, count: int, dtype: torch.dtype) -> Tensor:
    if count == 0:
        return torch.empty(0, dtype=dtype)
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


class HostCommunicator:
    """A communicator and its library in one. ``calls``: how many of each operation it carried."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.calls: Counter[str] = Counter()
        self.limits: list[int] = []  # of blocks, each when it changed
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("host", store), rank, size)

    def _open(self) -> None:
        return None

    def check(self) -> None:
        pass

    close = prepare = check

    def limit_blocks(self, blocks: int) -> None:
        self.limits.append(blocks)

    def report(self) -> dict[str, Any]:
        return {"cells": self.calls.total(), "scratch_bytes": 0}

    def _all(self, name: str, address: int, count: int, dtype: torch.dtype) -> list[Tensor]:
        """The tensors of all ranks, in rank order."""
        self.calls[name] += 1
        own = _view(address, count, dtype).view(torch.uint8)
        every = [torch.empty_like(own) for _ in range(self.size)]
        self._gloo.allgather([every], [own]).wait()
        return [part.view(dtype) for part in every]

    def _combined(self, name: str, address: int, count: int, kind: int, op: int) -> Tensor:
        dtype, operator = _TYPES[kind], _OPERATORS[op]
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        first, *more = (part.to(wide) for part in self._all(name, address, count, dtype))
        for other in more:
            if operator in ("sum", "avg"):
                first = first + other
            elif operator == "product":
                first = first * other
            else:
                first = torch.minimum(first, other) if operator == "min" else first.maximum(other)
        if operator == "avg":
            rounding = None if wide.is_floating_point else "trunc"
            first = first.div(self.size, rounding_mode=rounding)
        return first.to(dtype)

    def polypath_all_reduce(self, _, send, recv, count, kind, op, stream) -> int:
        assert stream == _STREAM
        combined = self._combined("allreduce", send, count, kind, op)
        _view(recv, count, combined.dtype).copy_(combined)
        return 0

    def polypath_all_reduce_norm(self, _, send, recv, reference, stream) -> int:
        assert stream == _STREAM
        norm = reference._obj
        dtype, shape = _TYPES[norm.type], (norm.rows, norm.hidden)
        count = norm.rows * norm.hidden
        inputs = [part.view(shape) for part in self._all("norm", send, count, dtype)]
        scale = torch.tensor([norm.scale[0]]) if norm.scale else None
        residual = _view(norm.residual, count, dtype).view(shape) if norm.residual else None
        output, after = expected(
            inputs, residual, _view(norm.weight, norm.hidden, dtype), norm.epsilon, scale
        )
        _view(norm.residual_out, count, dtype).copy_(after.flatten())
        _view(recv, count, output.dtype).copy_(output.flatten())
        return 0

    def polypath_reduce(self, _, send, recv, count, kind, op, root, stream) -> int:
        assert stream == _STREAM and (recv is not None) == (root == self.rank)
        combined = self._combined("reduce", send, count, kind, op)
        if recv is not None:
            _view(recv, count, combined.dtype).copy_(combined)
        return 0

    def polypath_reduce_scatter(self, _, send, recv, count, kind, op, stream) -> int:
        assert stream == _STREAM
        combined = self._combined("reduce_scatter", send, count * self.size, kind, op)
        _view(recv, count, combined.dtype).copy_(combined.view(self.size, count)[self.rank])
        return 0

    def polypath_all_gather(self, _, send, recv, count, kind, stream) -> int:
        assert stream == _STREAM
        every = torch.cat(self._all("all_gather", send, count, _TYPES[kind]))
        _view(recv, count * self.size, every.dtype).copy_(every)
        return 0

    def _all_uneven(
        self, name: str, address: int, lengths: list[int], dtype: torch.dtype
    ) -> list[Tensor]:
        """As `_all`, of tensors as long as these."""
        longest = torch.zeros(max(lengths), dtype=dtype)
        longest[: lengths[self.rank]] = _view(address, lengths[self.rank], dtype)
        every = self._all(name, longest.data_ptr(), max(lengths), dtype)
        return [part[:length] for part, length in zip(every, lengths, strict=True)]

    def polypath_reduce_scatterv(self, _, send, recv, counts, kind, op, stream) -> int:
        assert stream == _STREAM
        lengths = list(counts)
        combined = self._combined("reduce_scatterv", send, sum(lengths), kind, op)
        part = combined.split(lengths)[self.rank]
        _view(recv, lengths[self.rank], combined.dtype).copy_(part)
        return 0

    def polypath_all_gatherv(self, _, send, recv, counts, kind, stream) -> int:
        assert stream == _STREAM
        every = torch.cat(self._all_uneven("all_gatherv", send, list(counts), _TYPES[kind]))
        _view(recv, len(every), every.dtype).copy_(every)
        return 0

    def polypath_broadcast(self, _, send, recv, count, kind, root, stream) -> int:
        assert stream == _STREAM and (send is not None) == (root == self.rank)
        every = self._all("broadcast", recv, count, _TYPES[kind])
        _view(recv, count, every[root].dtype).copy_(every[root])
        return 0

    def polypath_all_to_all(self, _, send, recv, count, kind, stream) -> int:
        assert stream == _STREAM
        every = self._all("all_to_all", send, count * self.size, _TYPES[kind])
        parts = [part.view(self.size, count)[self.rank] for part in every]
        _view(recv, count * self.size, parts[0].dtype).copy_(torch.cat(parts))
        return 0


class HostNccl:
    """For messages what a group of NCCL is: a call that is the first of its communicator, of two
    ranks for a single message and of the group for a batch, waits there until the others come."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._made: dict[str, Any] = {}
        self._batch: list[tuple[str, Tensor, int]] | None = None

    def _communicator(self, name: str, rank: int, size: int) -> Any:
        """Made together by its ranks."""
        if name not in self._made:
            self._made[name] = dist.ProcessGroupGloo(
                dist.PrefixStore(name, self._store), rank, size
            )
        return self._made[name]

    def _single(self, operation: str, tensors: list[Tensor], peer: int, tag: int) -> Any:
        if self._batch is not None:
            self._batch.append((operation, tensors[0], peer))
            return None
        low, high = sorted((self._rank, peer))
        two = self._communicator(f"{low}:{high}", int(self._rank == high), 2)
        return getattr(two, operation)(tensors, int(peer == high), tag)

    def send(self, *arguments: Any) -> Any:
        return self._single("send", *arguments)

    def recv(self, *arguments: Any) -> Any:
        return self._single("recv", *arguments)

    def _start_coalescing(self, _: torch.device) -> None:
        self._batch = []

    def _end_coalescing(self, _: torch.device) -> Any:
        batch, self._batch = self._batch or [], None
        own = [message for message in batch if message[2] == self._rank]
        sent = [tensor for operation, tensor, _ in own if operation == "send"]
        received = [tensor for operation, tensor, _ in own if operation == "recv"]
        for output, source in zip(received, sent, strict=True):
            output.copy_(source)
        every = self._communicator("all", self._rank, self._size)
        others = [message for message in batch if message[2] != self._rank]
        works = [getattr(every, operation)([tensor], peer, 0) for operation, tensor, peer in others]
        return p2p.Together(works)

    def shutdown(self) -> None:
        self._made.clear()


class _Stream:
    cuda_stream = _STREAM

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class _Event:
    def record(self, stream: _Stream) -> None:
        pass

    wait = record

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


def _completed(_: Any, value: Any) -> torch.futures.Future:
    future: torch.futures.Future = torch.futures.Future()
    future.set_result(value)
    return future


def install() -> None:
    """Replaces the device. In this process GPU tensors are those in host memory from then on."""
    group.GPU = "cpu"

    def connect(
        store: Any, rank: int, size: int, device: torch.device, timeout: timedelta
    ) -> HostCommunicator:
        assert isinstance(timeout, timedelta)
        return HostCommunicator(store, rank, size)

    comm_creation.connect = connect  # type: ignore[assignment]
    original_init = connection.Connection.__init__

    def with_library(self: Any, comm: Any, *more: Any) -> None:
        original_init(self, comm, *more)
        self.library = comm

    connection.Connection.__init__ = with_library  # type: ignore[method-assign]
    connection._api.library = lambda: None  # type: ignore[assignment]
    ddp.settings = lambda: [
        {"name": "ddp_hook", "value": os.environ.get("POLYPATH_DDP_HOOK", "on")}
    ]
    connection.current_stream = lambda _: _STREAM
    torch.cuda.Stream, torch.cuda.Event = _Stream, _Event  # type: ignore[misc, assignment]
    torch.cuda.current_stream = lambda _=None: _Stream()  # type: ignore[assignment]
    connection.Connection._on_side = lambda _, body: body(_STREAM)  # type: ignore[method-assign]
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    torch.cuda.synchronize = nothing  # type: ignore[assignment]
    torch.cuda.is_current_stream_capturing = lambda: False  # type: ignore[assignment]
    torch.Tensor.record_stream = nothing  # type: ignore[assignment]
    connection.Connection.future = _completed  # type: ignore[method-assign]
    torch.cuda.set_device = nothing  # type: ignore[assignment]

    def nccl(self: Any, part: str, ranks: Any) -> HostNccl:
        return HostNccl(self._store(part), ranks.index(self._given.group_rank), len(ranks))

    fallback_groups.Others._nccl = nccl  # type: ignore[assignment, method-assign]
