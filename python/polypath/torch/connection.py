"""A group's communicator on this rank's GPU, and the streams on which its collectives run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work

from .. import _api
from ..comm import Communicator

#: The handle of the current stream of a GPU.
current_stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream


def _set_stream(number: int, index: int, kind: int) -> None:
    """Makes it the current stream of its GPU, and that the current GPU."""
    torch._C._cuda_setStream(stream_id=number, device_index=index, device_type=kind)


#: Thread blocks of calls that all ranks make to run next to kernels of the program: a block keeps a
#: multiprocessor, also while it waits for another rank (docs/pytorch.md).
BLOCKS_BESIDE = 64


class Done(Work):
    """The work of a call on the current stream. Later work of the stream needs no wait."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    synchronize = block_current_stream = wait

    def get_future(self) -> torch.futures.Future:
        future: torch.futures.Future = torch.futures.Future()
        future.set_result([])
        return future


class Pending(Work):
    """The work of a call on the group's own stream."""

    def __init__(self, connection: Connection, end: torch.cuda.Event, outputs: Any) -> None:
        super().__init__()
        self._connection = connection
        self._end = end
        self._outputs = outputs

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Makes the current stream wait, not the caller; with a timeout also the caller, as NCCL's
        backend has it."""
        self._end.wait(self._connection.current())
        if timeout:
            self._connection.wait_for(self._end, timeout)
        self._connection.comm.check()
        return True

    synchronize = block_current_stream = wait

    def is_completed(self) -> bool:
        return bool(self._end.query())

    def is_success(self) -> bool:
        self._connection.comm.check()
        return True

    def result(self) -> Any:
        return self._outputs

    def get_future(self) -> torch.futures.Future:
        return self.future_of(self._outputs)

    def future_of(self, value: Any) -> torch.futures.Future:
        """Gives ``value``, which is one of the outputs or has them."""
        return self._connection.future(value)


class Arrived(Pending):
    """The work of a barrier: `wait` returns when all ranks have come, on the host too."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        super().wait()
        if timeout:
            self._connection.wait_for(self._end, timeout)
        elif not torch.cuda.is_current_stream_capturing():
            self._end.synchronize()
        self._connection.comm.check()
        return True


class Connection:
    """Calls come from any thread; their order has to be the same on all ranks."""

    def __init__(self, comm: Communicator, device: torch.device, high_priority: bool) -> None:
        self.comm = comm
        self.rank = comm.rank
        self.size = comm.size
        self.device = device
        self._index = device.index
        #: Whether a call of parts of different lengths was made, and its kernels are loaded.
        self.has_uneven = False
        #: Elements whose sum is no news: for barriers.
        self.token = torch.zeros(1, dtype=torch.int32, device=device)
        self.handle = comm._open()
        self.library = _api.library()
        self._side = torch.cuda.Stream(device, priority=-1 if high_priority else 0)
        self._side_handle = self._side.cuda_stream
        self._streams: dict[int, torch.cuda.Stream] = {}  # by their handles
        self._fork = torch.cuda.Event()
        self._lock = threading.Lock()
        self._done = Done()
        self._block_limit = 0

    def run(
        self,
        asynchronous: bool,
        body: Callable[[int], None],
        used: Sequence[torch.Tensor],
        outputs: Any,
        kind: type[Pending] = Pending,
        blocks: int = 0,
    ) -> Work:
        """Runs ``body``, which issues on the stream that it is given, which is also the current
        one: the caller's, or, when it is asynchronous, the group's own, after what is on the
        caller's by now. Then users of ``outputs`` must wait for what this returns, and memory of
        ``used`` is not reused before the call has ended. ``blocks``: the most of the
        call's kernels, 0 for as many as are fastest; the same on all ranks, and so never a matter
        of ``asynchronous``, which is each rank's own."""
        if not asynchronous:
            with self._lock:
                self._limit_blocks(blocks)
                body(current_stream(self._index))
            return self._done
        side = self._side
        with self._lock:
            self._limit_blocks(blocks)
            self._fork.record(self.current())
            self._fork.wait(side)
            self._on_side(body)
            end = torch.cuda.Event()
            end.record(side)
            for tensor in used:
                tensor.record_stream(side)
        return kind(self, end, outputs)

    def _limit_blocks(self, blocks: int) -> None:
        if blocks != self._block_limit:
            self.comm.limit_blocks(blocks)
            self._block_limit = blocks

    def current(self) -> torch.cuda.Stream:
        """The current stream of the GPU. torch makes a new object at each call, which takes longer
        than looking one up."""
        handle = current_stream(self._index)
        stream = self._streams.get(handle)
        if stream is None:
            if len(self._streams) >= 64:
                self._streams.clear()
            stream = self._streams[handle] = torch.cuda.current_stream(self.device)
        return stream

    def _on_side(self, body: Callable[[int], None]) -> None:
        """``body`` with the group's own stream as the current one: what ``torch.cuda.stream`` does,
        at less cost."""
        device = torch._C._cuda_getDevice()
        before = torch._C._cuda_getCurrentStream(self._index)
        _set_stream(self._side.stream_id, self._side.device_index, self._side.device_type)
        try:
            body(self._side_handle)
        finally:
            _set_stream(*before)
            if device != self._index:
                torch._C._cuda_setDevice(device)

    def call(self, function: Callable[..., int], *arguments: Any) -> None:
        """Calls a collective of the C API, but for the communicator, which comes first."""
        status = function(self.handle, *arguments)
        if status != 0:
            _api.fail(status)

    def future(self, value: Any) -> torch.futures.Future:
        """A future that is complete for the host. Streams that wait for it wait for all work that
        is on the group's own stream by now."""
        future: torch.futures.Future = torch.futures.Future(devices=[self.device])
        self._on_side(lambda _: future.set_result(value))
        return future

    def wait_for(self, event: torch.cuda.Event, timeout: timedelta) -> None:
        """Waits on the host. Raises `RuntimeError` when the time is over, `CommunicatorError` when
        the communicator is unusable by then."""
        end = time.monotonic() + timeout.total_seconds()
        while not event.query():
            self.comm.check()
            if time.monotonic() > end:
                raise RuntimeError(
                    f"rank {self.comm.rank}: a collective of polypath did not complete "
                    f"within {timeout.total_seconds():g} s"
                )
            time.sleep(0.0005)

    def close(self) -> None:
        """Waits for all work of the GPU, and for the other ranks to close, too. Raises
        `CommunicatorError` when results since the last check are not to be used."""
        torch.cuda.synchronize(self.device)
        try:
            self.comm.check()
        finally:
            self.comm.close()
