"""Messages between GPUs, and between GPU and CPU: queues that kernels push to and pop from, memory
that they allocate, and matching in batches.

>>> with Queues.with_host(comm, host="consumer", item_bytes=12) as queues:
...     launch(kernel, queues.view(0, "producer"))       # a device::queue_view, by value
...     items = numpy.empty((1024, 3), numpy.uint32)
...     count = queues.pop(items)                        # waits

Kernels are CUDA C++ over polypath/device.cuh; a view is bytes, given to a launch by value: as a
``numpy.void`` for CuPy, as a ctypes array for ctypes.
"""

from __future__ import annotations

import ctypes
from typing import Any

from . import _api, _c_abi
from .buffers import covered
from .comm import Communicator
from .errors import InvalidArgument
from .handles import WarnsUnlessClosed, is_failure
from .integers import integer
from .matching import Matcher as Matcher
from .matching import envelopes as envelopes
from .matching import match as match

_KIND = _c_abi.ENUMS["polypath_queue_kind"]
_KINDS = {"queue": _KIND["POLYPATH_QUEUE_MPMC"], "pair": _KIND["POLYPATH_QUEUE_SPSC"]}
_PROTOCOL = _c_abi.ENUMS["polypath_queue_protocol"]
_LAYOUTS = {
    "packets": _PROTOCOL["POLYPATH_PROTOCOL_LL"],
    "line": _PROTOCOL["POLYPATH_PROTOCOL_LL128"],
}
_SIDES = _api.enumerators("polypath_queue_side", "POLYPATH_QUEUE_")


def _number(values: dict[str, int], name: str, what: str) -> int:
    if name not in values:
        raise InvalidArgument(f"{what} is '{name}': it is one of {', '.join(values)}")
    return values[name]


class _OnCommunicator(WarnsUnlessClosed):
    """What stands on a communicator: use it in a ``with`` statement or call `close`, before the
    communicator's, when the kernels that use it have ended."""

    _destroy = ""
    _is_closed = ""

    def __init__(self, handle: ctypes.c_void_p, comm: Communicator) -> None:
        self._handle: ctypes.c_void_p | None = handle
        self._comm = comm

    def close(self) -> None:
        """Destroys it; later calls do nothing."""
        handle, self._handle = self._handle, None
        if handle is not None and not self._is_inherited():
            _api.call(self._destroy, handle)

    def _leave(self, error: BaseException | None) -> None:
        if is_failure(error) and not self._is_inherited():
            self._comm.abort(f"rank {self._comm.rank} raised {type(error).__name__}: {error}")
            self._handle = None  # goes with the communicator
            return
        self.close()

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise InvalidArgument(self._is_closed)
        self._comm._open()
        return self._handle


class Queues(_OnCommunicator):
    """One or several queues or pairs, numbered from 0, as one rank sees them.

    ``item_bytes`` is the ``sizeof`` of the kernels' item. Options are those of
    polypath/messaging/queue.h, with its defaults: ``capacity`` and ``segment`` in items, powers of
    two; ``kind`` "queue" or "pair"; ``layout`` "packets", or "line" between GPUs where lines of 128
    bytes were seen to come whole; ``timeout_ms`` of one wait.

    Use it in a ``with`` statement or call `close`, before the communicator's, when the kernels that
    use it have ended; `connect` and `connect_each` are collective, and so is their end.
    """

    _destroy = "polypath_queue_destroy"
    _is_closed = "the queues are closed"

    def __init__(self, handle: ctypes.c_void_p, comm: Communicator, item_bytes: int) -> None:
        super().__init__(handle, comm)
        self._item_bytes = item_bytes

    @classmethod
    def _made(
        cls, name: str, comm: Communicator, item_bytes: int, options: dict[str, Any], *more: int
    ) -> Queues:
        values = dict(options)
        queue_options = _c_abi.QueueOptions(
            item_bytes,
            values.pop("capacity", 0),
            values.pop("segment", 0),
            _number(_KINDS, values.pop("kind", "queue"), "kind"),
            _number(_LAYOUTS, values.pop("layout", "packets"), "layout"),
            values.pop("timeout_ms", 0),
        )
        if values:
            raise TypeError(f"queues have no option '{next(iter(values))}'")
        handle = ctypes.c_void_p()
        _api.call(name, comm._open(), ctypes.byref(queue_options), *more, ctypes.byref(handle))
        return cls(handle, comm, item_bytes)

    @classmethod
    def local(cls, comm: Communicator, item_bytes: int, count: int = 1, **options: Any) -> Queues:
        """On this rank's GPU, which pushes and pops."""
        return cls._made("polypath_queue_create", comm, item_bytes, options, count)

    @classmethod
    def connect(
        cls,
        comm: Communicator,
        source: int,
        destination: int,
        item_bytes: int,
        count: int = 1,
        **options: Any,
    ) -> Queues:
        """Collective: from rank ``source`` to rank ``destination``."""
        source = integer(source, ctypes.c_int, "source")
        destination = integer(destination, ctypes.c_int, "destination")
        name = "polypath_queue_connect"
        return cls._made(name, comm, item_bytes, options, source, destination, count)

    @classmethod
    def connect_each(cls, comm: Communicator, item_bytes: int, **options: Any) -> Queues:
        """Collective: from each rank to each. View r is the queue to rank r for "producer", and
        that from rank r for "consumer"."""
        return cls._made("polypath_queue_connect_mesh", comm, item_bytes, options)

    @classmethod
    def with_host(
        cls, comm: Communicator, host: str, item_bytes: int, count: int = 1, **options: Any
    ) -> Queues:
        """Between this rank's GPU and CPU threads of this process, which are the ``host`` side."""
        side = _number(_SIDES, host, "host")
        return cls._made("polypath_queue_create_host", comm, item_bytes, options, side, count)

    def __len__(self) -> int:
        return int(_api.library().polypath_queue_count(self._open()))

    def view(self, index: int, side: str) -> bytes:
        """What a kernel on ``side``, "producer" or "consumer", has by value: a
        ``polypath::device::queue_view`` or ``spsc_view``."""
        size = int(_api.library().polypath_queue_view_bytes(self._open()))
        buffer = ctypes.create_string_buffer(size)
        number = _number(_SIDES, side, "side")
        _api.call("polypath_queue_view", self._open(), index, number, buffer, size)
        return buffer.raw

    def report(self) -> list[dict[str, Any]]:
        """How each went: ``{"number", "kind", "layout", "item_bytes", "capacity", "segment",
        "from", "to", "pushed", "popped", "generations", "in_flight",
        "timed_out_wait"}``."""
        result: list[dict[str, Any]] = _api.call_json("polypath_queue_report", self._open())[
            "queues"
        ]
        return result

    # ---- On the CPU ------------------------------------------------------------------------------
    # Items are memory of the host, whole items one after the other. Waits let other threads run.

    def push(self, items: Any, index: int = 0) -> None:
        """Waits while there is no room. Raises `CommunicatorError` past the time limit."""
        address, count = self._items(items)
        _api.call("polypath_queue_push", self._open(), index, address, count)

    def try_push(self, items: Any, index: int = 0) -> bool:
        """False, and nothing was pushed, when there is no room for all."""
        address, count = self._items(items)
        pushed = ctypes.c_size_t()
        _api.call(
            *("polypath_queue_try_push", self._open(), index, address, count),
            ctypes.byref(pushed),
        )
        return pushed.value == count

    def pop(self, items: Any, index: int = 0) -> int:
        """Waits until all of ``items`` have come, or the queue is closed; returns how many have."""
        address, count = self._items(items, writes=True)
        popped = ctypes.c_size_t()
        _api.call(
            *("polypath_queue_pop", self._open(), index, address, count), ctypes.byref(popped)
        )
        return popped.value

    def try_pop(self, items: Any, index: int = 0) -> int | None:
        """Takes what is there; None: the queue is closed, and nothing is left. Places after what
        came may be overwritten."""
        address, count = self._items(items, writes=True)
        popped, closed = ctypes.c_size_t(), ctypes.c_int()
        _api.call(
            *("polypath_queue_try_pop", self._open(), index, address, count),
            *(ctypes.byref(popped), ctypes.byref(closed)),
        )
        return None if closed.value else popped.value

    def end(self, index: int = 0) -> None:
        """No push comes any more: pops that have nothing left end. Not of pairs."""
        _api.call("polypath_queue_close", self._open(), index)

    def _items(self, items: Any, writes: bool = False) -> tuple[int, int]:
        address, size = covered(items, "items", writes=writes)
        if size % self._item_bytes != 0:
            raise InvalidArgument(
                f"items are {size} bytes, which is no multiple of {self._item_bytes}"
            )
        return address, size // self._item_bytes


class Pool(_OnCommunicator):
    """Memory that kernels allocate and free (polypath/device/pool.cuh): ``size`` bytes of blocks,
    in slabs of ``slab_bytes``; 0: as polypath/messaging/pool.h says."""

    _destroy = "polypath_pool_destroy"
    _is_closed = "the pool is closed"

    @classmethod
    def _made(cls, name: str, comm: Communicator, *options: int) -> Pool:
        handle = ctypes.c_void_p()
        pool_options = _c_abi.PoolOptions(*options)
        _api.call(name, comm._open(), ctypes.byref(pool_options), ctypes.byref(handle))
        return cls(handle, comm)

    @classmethod
    def local(cls, comm: Communicator, size: int, slab_bytes: int = 0) -> Pool:
        """A pool for this rank's GPU alone."""
        return cls._made("polypath_pool_create", comm, size, slab_bytes)

    @classmethod
    def shared(cls, comm: Communicator, size: int, slab_bytes: int = 0, returns: int = 0) -> Pool:
        """Collective, and so is its end: one of each rank, whose blocks may go to other ranks.
        ``returns``: how many may be on their way back from one rank to another."""
        return cls._made("polypath_pool_create_shared", comm, size, slab_bytes, returns)

    def view(self, shared: bool = False) -> bytes:
        """What a kernel has by value: a ``polypath::device::pool_view``, or a
        ``shared_pool_view``."""
        size = int(_api.library().polypath_pool_view_bytes(int(shared)))
        buffer = ctypes.create_string_buffer(size)
        _api.call("polypath_pool_view", self._open(), buffer, size)
        return buffer.raw

    def report(self) -> dict[str, Any]:
        """How it went: ``{"bytes", "slab_bytes", "slabs", "shared", "allocated", "freed", "failed",
        "refused", "held_blocks", "held_bytes", "high_water_bytes", "classes"}``."""
        result: dict[str, Any] = _api.call_json("polypath_pool_report", self._open())
        return result
