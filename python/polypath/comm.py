"""Communicators: ranks, one GPU each, with symmetric memory and signals.

>>> with polypath.Context() as context, Communicator.from_environment(context) as comm:
...     memory = comm.alloc("64M")
...     comm.put((comm.rank + 1) % comm.size, memory, 0, tensor, stream=stream)
...     comm.barrier(stream)

Collective calls (creation, `split`, `exchange`, `alloc`, `free`) are made by all ranks in the same
order; ranks of one process make them on a thread each. When a rank ends, aborts or does not come,
the others get a `CommunicatorError` within the timeout.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from . import _api, _c_abi
from .bootstrap import Exchange, Store, as_callback, store_exchange
from .buffers import as_buffer, covered
from .context import Context
from .errors import InvalidArgument
from .handles import WarnsUnlessClosed, is_failure
from .integers import array, checked_size, integer
from .rank_threads import on_all as on_all
from .streams import stream_handle

#: As ``root`` of polypath_comm_spread: host memory that all ranks have.
_SHARED_SOURCE = -1


class SymmetricMemory:
    """Memory that all ranks allocated together, as one rank sees it; to frameworks this rank's own
    part is an array of bytes (``__cuda_array_interface__``). `Communicator.free`, or the end of the
    communicator, frees it."""

    def __init__(self, handle: ctypes.c_void_p, owner: Communicator) -> None:
        self._handle: ctypes.c_void_p | None = handle
        self._owner = owner
        self._rank = owner.rank

    @property
    def bytes(self) -> int:
        """Bytes of each rank's part."""
        return int(_api.library().polypath_symmetric_bytes(self._open()))

    def address(self, rank: int | None = None) -> int:
        """Where the part of ``rank`` is for work of this rank's GPU; default this rank's own."""
        target = self._rank if rank is None else integer(rank, ctypes.c_int, "rank")
        pointer = _api.library().polypath_symmetric_address(self._open(), target)
        if not pointer:
            raise InvalidArgument(f"there is no rank {rank}")
        return int(pointer)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.bytes,),
            "typestr": "|u1",
            "data": (self.address(), False),
            "version": 3,
        }

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise InvalidArgument("the memory was freed")
        self._owner._open()  # the handle goes with it
        return self._handle

    def _signal(self, offset: int, value: int) -> Any:
        return ctypes.byref(_c_abi.Signal(self._open(), offset, value))


class Communicator(WarnsUnlessClosed):
    """One rank. Calls of one rank come from one thread at a time, but for `abort` and `check`.

    ``exchange`` is the one thing by which ranks find each other; `from_environment`, `from_store`,
    `from_mpi` and `all` bring one. ``gpu`` is this rank's, as ``context`` numbers them.
    ``timeout_ms``: how long a rank waits for another one; default the setting
    ``comm_timeout_ms``. The context has to stay open longer than the communicator.
    ``network``: "nccl" where ranks are on several nodes, for collectives; None: they are of one.
    ``max_blocks``, ``reserved_sms`` (keywords wherever one is made): of a kernel of a
    collective at most, and left to kernels of other libraries (comm.h). ``sum_order`` (another
    one): "rank" or "tree", in which order collectives combine floats of ranks, the same on all;
    default the setting ``sum_order``.

    A child process that `os.fork` made has no part in it: its `close` does nothing.

    Use it in a ``with`` statement or call `close`, when the work that uses it has completed.

    Raises `CommunicatorError` on all ranks alike, and what ``exchange`` raises.
    """

    def __init__(
        self,
        context: Context,
        rank: int,
        size: int,
        gpu: int,
        exchange: Exchange,
        timeout_ms: int = 0,
        network: str | None = None,
        **collectives: int | str,
    ) -> None:
        raised: list[BaseException] = []

        handle = ctypes.c_void_p()
        try:
            _api.call(
                "polypath_comm_create",
                context._open(),
                rank,
                size,
                gpu,
                as_callback(exchange, size, raised),
                None,
                ctypes.byref(_options(timeout_ms, network, **collectives)),
                ctypes.byref(handle),
            )
        except Exception:
            if raised:
                raise raised[0] from None
            raise
        self._take(handle, context)

    def _take(self, handle: ctypes.c_void_p, context: Context) -> None:
        self._handle: ctypes.c_void_p | None = handle
        self._context = context  # kept open by this reference, unless it is closed

    @classmethod
    def _of(cls, handle: ctypes.c_void_p, context: Context) -> Communicator:
        comm = cls.__new__(cls)
        comm._take(handle, context)
        return comm

    @classmethod
    def from_environment(
        cls,
        context: Context,
        gpu: int | None = None,
        timeout_ms: int = 0,
        port: int = 0,
        network: str | None = None,
        **collectives: int | str,
    ) -> Communicator:
        """The ranks that torchrun, or any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and
        MASTER_PORT, started. They meet at ``port``; default the setting ``comm_port``, else the
        port after MASTER_PORT. ``gpu``: default LOCAL_RANK."""
        handle = ctypes.c_void_p()
        _api.call(
            "polypath_comm_create_from_environment",
            context._open(),
            -1 if gpu is None else gpu,
            ctypes.byref(_options(timeout_ms, network, port, **collectives)),
            ctypes.byref(handle),
        )
        return cls._of(handle, context)

    @classmethod
    def from_store(
        cls,
        context: Context,
        store: Store,
        rank: int,
        size: int,
        gpu: int,
        timeout_ms: int = 0,
        name: str = "polypath",
        network: str | None = None,
        **collectives: int | str,
    ) -> Communicator:
        """The ranks that share a store, a `torch.distributed.Store` for example."""
        exchange = store_exchange(store, rank, size, name)
        return cls(context, rank, size, gpu, exchange, timeout_ms, network, **collectives)

    @classmethod
    def from_mpi(
        cls,
        context: Context,
        ranks: Any,
        gpu: int,
        timeout_ms: int = 0,
        network: str | None = None,
        **collectives: int | str,
    ) -> Communicator:
        """The ranks of an ``mpi4py`` communicator."""
        rank, size = ranks.Get_rank(), ranks.Get_size()
        exchange = ranks.allgather
        return cls(context, rank, size, gpu, exchange, timeout_ms, network, **collectives)

    @classmethod
    def all(
        cls, context: Context, gpus: Sequence[int], timeout_ms: int = 0, **collectives: int | str
    ) -> list[Communicator]:
        """All ranks in this process, one for each of these GPUs. Their collective calls need a
        thread each (`on_all`)."""
        handles = (ctypes.c_void_p * len(gpus))()
        _api.call(
            "polypath_comm_create_all",
            context._open(),
            array(gpus, ctypes.c_int, "gpus"),
            len(gpus),
            ctypes.byref(_options(timeout_ms, None, **collectives)),
            handles,
        )
        return [cls._of(ctypes.c_void_p(handle), context) for handle in handles]

    def close(self) -> None:
        """Destroys it; later calls do nothing. Not collective. Raises `InvalidArgument` while a
        stream still waits for a signal or at a barrier, or a collective is under way."""
        if self._handle is not None and not self._is_inherited():
            _api.call("polypath_comm_destroy", self._handle)
        self._handle = None

    def _leave(self, error: BaseException | None) -> None:
        if is_failure(error) and self._handle is not None and not self._is_inherited():
            self.abort(f"rank {self.rank} raised {type(error).__name__}: {error}")
        self.close()

    # ---- Ranks -----------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return int(_api.library().polypath_comm_rank(self._open()))

    @property
    def size(self) -> int:
        return int(_api.library().polypath_comm_size(self._open()))

    @property
    def nodes(self) -> int:
        """How many its ranks are on."""
        return int(_api.library().polypath_comm_node_count(self._open()))

    def gpu(self, rank: int | None = None) -> int:
        """The GPU of ``rank``, as this process numbers them; default this rank's own."""
        target = self.rank if rank is None else integer(rank, ctypes.c_int, "rank")
        index = int(_api.library().polypath_comm_gpu(self._open(), target))
        if index < 0:
            raise InvalidArgument(f"there is no rank {rank}")
        return index

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Collective: one communicator for the ranks of each color, ordered by key, then by rank;
        None for a negative color. With the options of this one."""
        handle = ctypes.c_void_p()
        _api.call("polypath_comm_split", self._open(), color, key, ctypes.byref(handle))
        return None if handle.value is None else self._of(handle, self._context)

    def exchange(self, data: bytes) -> list[bytes]:
        """Collective: ``data`` of every rank, equally long on all, in rank order."""
        gathered = ctypes.create_string_buffer(max(1, len(data) * self.size))
        _api.call("polypath_comm_host_all_gather", self._open(), data, gathered, len(data))
        return [gathered.raw[at * len(data) : (at + 1) * len(data)] for at in range(self.size)]

    def abort(self, reason: str | None = None) -> None:
        """Makes it unusable for all ranks: every wait, on host or stream, ends."""
        _api.call("polypath_comm_abort", self._open(), reason.encode() if reason else None)

    def synchronize(self, stream: Any = None) -> None:
        """Waits until all that is on ``stream`` is done; then as `check`."""
        _api.call("polypath_comm_synchronize", self._open(), stream_handle(stream))

    def check(self) -> None:
        """Raises `CommunicatorError` with the reason once it is unusable."""
        _api.call("polypath_comm_check", self._open())

    # ---- Memory ----------------------------------------------------------------------------------

    def alloc(self, bytes: int | str) -> SymmetricMemory:
        """Collective: ``bytes`` bytes of GPU memory on each rank, filled with zeros."""
        handle = ctypes.c_void_p()
        count = checked_size(bytes)
        _api.call("polypath_comm_alloc", self._open(), count, ctypes.byref(handle))
        return SymmetricMemory(handle, self)

    def free(self, memory: SymmetricMemory) -> None:
        """Collective. Work of all ranks that uses it must have completed."""
        _api.call("polypath_comm_free", self._open(), memory._open())
        memory._handle = None

    # ---- On a stream -----------------------------------------------------------------------------

    def put(
        self,
        to: int,
        memory: SymmetricMemory,
        offset: int,
        src: Any,
        bytes: int | None = None,
        signal: tuple[SymmetricMemory, int, int] | None = None,
        stream: Any = None,
    ) -> None:
        """Copies ``src``, anything that `Context.copy_async` takes, to ``offset`` of the memory of
        rank ``to``; ``signal`` (memory, offset, value): then gives that word of that rank its
        value. ``stream``: one of this rank's GPU."""
        address, count = covered(src, "src", bytes)
        arguments = [self._open(), to, memory._open(), offset, address, count]
        if signal is None:
            _api.call("polypath_comm_put", *arguments, stream_handle(stream))
        else:
            where, at, value = signal
            _api.call(
                "polypath_comm_put_signal",
                *arguments,
                where._signal(at, value),
                stream_handle(stream),
            )

    def signal(
        self, to: int, memory: SymmetricMemory, offset: int, value: int, stream: Any = None
    ) -> None:
        """Gives a 64-bit word of rank ``to`` its value, after all that is on the stream before."""
        _api.call(
            "polypath_comm_signal",
            self._open(),
            to,
            memory._signal(offset, value),
            stream_handle(stream),
        )

    def wait_signal(
        self, memory: SymmetricMemory, offset: int, value: int, stream: Any = None
    ) -> None:
        """The stream waits until the word of this rank is at the value, or past it."""
        _api.call(
            "polypath_comm_wait_signal",
            self._open(),
            memory._signal(offset, value),
            stream_handle(stream),
        )

    def barrier(self, stream: Any = None) -> None:
        """The stream waits until the streams of all ranks have come to their call."""
        _api.call("polypath_comm_barrier", self._open(), stream_handle(stream))

    # ---- Collectives -----------------------------------------------------------------------------
    # On a stream of this rank's GPU; all ranks make the same calls in the same order. Buffers are
    # what `Context.copy_async` takes, in memory of this rank's GPU; ``type`` names their elements
    # ("float32", "bfloat16", "int64", ...), ``count`` how many, default all of ``send``'s, or for
    # reduce_scatter and all_to_all the part for one rank. ``op``: sum, product, min, max, avg.
    # Elements are combined in rank order, or with ``sum_order="tree"`` as a balanced binary tree:
    # the same bits on all ranks, in all runs (comm.h).

    def prepare(self) -> None:
        """Collective: takes kernels and scratch, as the first collective does; before a capture."""
        _api.call("polypath_comm_prepare", self._open())

    def limit_blocks(self, blocks: int) -> None:
        """Kernels of later collectives take at most ``blocks`` thread blocks; 0: as many as are
        fastest. The same on all ranks. Raises `InvalidArgument` when it is negative."""
        _api.call("polypath_comm_set_max_blocks", self._open(), blocks)

    def allreduce(
        self,
        send: Any,
        recv: Any,
        type: str,
        op: str = "sum",
        count: int | None = None,
        stream: Any = None,
    ) -> None:
        """What all ranks send, combined, to all of them. ``recv`` may be ``send``."""
        self._collective(
            "polypath_all_reduce", send, recv, type, count, (1, 1), [_operator(op)], stream
        )

    def all_reduce_norm(
        self,
        input: Any,
        output: Any,
        weight: Any,
        type: str,
        epsilon: float = 1e-6,
        *,
        residual: Any = None,
        residual_out: Any,
        scale: Any = None,
        rows: int | None = None,
        hidden: int | None = None,
        stream: Any = None,
    ) -> None:
        """Sums rows over all ranks, adds ``residual`` and normalises (RMSNorm), in one fixed order:
        a row has the same bits with any number of other rows (comm.h, polypath_all_reduce_norm).

        ``type``: float16 or bfloat16. ``residual_out`` receives the sum with the residual and may
        be ``residual``; ``output`` may be ``input``. With ``scale``, a float32 on the GPU,
        ``output`` is FP8 (e4m3), a byte for each element, and the input may be overwritten.
        ``hidden``: elements of a row, default all of ``weight``; ``rows``: default all of
        ``input``."""
        if type not in _api.TYPES:
            raise InvalidArgument(f"there is no type '{type}': {', '.join(_api.TYPES)}")
        width = _api.item_bytes(type)
        if hidden is None:
            hidden = _elements_of(weight, "weight", width)
        if rows is None:
            rows = _elements_of(input, "input", width * max(hidden, 1))
        bytes = integer(rows, ctypes.c_size_t, "rows") * hidden * width
        of_output = bytes if scale is None else bytes // width
        floats = _address(scale, "scale", 4, writes=False)
        norm = _c_abi.Norm(
            *(rows, hidden, _api.TYPES[type], epsilon),
            _address(residual, "residual", bytes, writes=False),
            _address(residual_out, "residual_out", bytes, writes=True),
            _address(weight, "weight", hidden * width, writes=False),
            None if floats is None else ctypes.cast(floats, ctypes.POINTER(ctypes.c_float)),
        )
        _api.call(
            "polypath_all_reduce_norm",
            self._open(),
            _address(input, "input", bytes, writes=scale is not None),
            _address(output, "output", of_output, writes=True),
            ctypes.byref(norm),
            stream_handle(stream),
        )

    def reduce_scatter(
        self,
        send: Any,
        recv: Any,
        type: str,
        op: str = "sum",
        count: int | None = None,
        stream: Any = None,
    ) -> None:
        """Rank r receives the r-th part of what is combined, ``count`` elements."""
        self._collective(
            "polypath_reduce_scatter",
            send,
            recv,
            type,
            count,
            (self.size, 1),
            [_operator(op)],
            stream,
        )

    def reduce_scatterv(
        self,
        send: Any,
        recv: Any,
        counts: Sequence[int],
        type: str,
        op: str = "sum",
        stream: Any = None,
    ) -> None:
        """Rank r receives its part of what is combined, ``counts[r]`` elements, which may be none;
        ``send`` has the parts of all ranks one after another. The first call of it, or of
        `all_gatherv`, waits on the host for all ranks and loads kernels; with counts of 0 it does
        nothing else. Raises `NotSupported` for ranks of several nodes."""
        arguments = [_operator(op)]
        self._uneven("polypath_reduce_scatterv", send, recv, type, counts, arguments, stream)

    def all_gatherv(
        self, send: Any, recv: Any, counts: Sequence[int], type: str, stream: Any = None
    ) -> None:
        """What all ranks send, ``counts[r]`` elements of rank r, in rank order, to all of them.
        Else as `reduce_scatterv`."""
        self._uneven("polypath_all_gatherv", send, recv, type, counts, [], stream)

    def all_gather(
        self, send: Any, recv: Any, type: str, count: int | None = None, stream: Any = None
    ) -> None:
        """What all ranks send, in rank order, to all of them."""
        self._collective("polypath_all_gather", send, recv, type, count, (1, self.size), [], stream)

    def broadcast(
        self,
        send: Any,
        recv: Any,
        type: str,
        root: int = 0,
        count: int | None = None,
        stream: Any = None,
    ) -> None:
        """What ``root`` sends, to all; ``send`` may be None elsewhere, if ``count`` is given."""
        parts = (1 if self.rank == root else 0, 1)
        self._collective("polypath_broadcast", send, recv, type, count, parts, [root], stream)

    def spread(
        self,
        src: Any,
        recv: Any,
        bytes: int | None = None,
        root: int | None = None,
        stream: Any = None,
    ) -> None:
        """The same ``bytes`` to ``recv``, memory of this rank's GPU, on all ranks. ``root`` None:
        from host memory that all ranks have at ``src``, by the links of all their GPUs. Else from
        host memory or the GPU of that rank; ``src`` may be None elsewhere."""
        destination = as_buffer(recv, "recv")
        has_source = root is None or root == self.rank
        source = as_buffer(src, "src") if has_source else None
        if bytes is None:
            bytes = destination.bytes
            if bytes is None and source is not None:
                bytes = source.bytes
            if bytes is None:
                raise InvalidArgument("bytes is not given, and neither buffer has a size")
        to, _ = covered(destination, "recv", bytes, writes=True)
        start = covered(source, "src", bytes)[0] if source is not None else 0
        origin = _SHARED_SOURCE if root is None else root
        _api.call(
            "polypath_comm_spread",
            *(self._open(), start, to, bytes, origin, stream_handle(stream)),
        )

    def reduce(
        self,
        send: Any,
        recv: Any,
        type: str,
        op: str = "sum",
        root: int = 0,
        count: int | None = None,
        stream: Any = None,
    ) -> None:
        """What all ranks send, combined, to ``root``; ``recv`` may be None elsewhere."""
        arguments = [_operator(op), root]
        parts = (1, 1 if self.rank == root else 0)
        self._collective("polypath_reduce", send, recv, type, count, parts, arguments, stream)

    def all_to_all(
        self, send: Any, recv: Any, type: str, count: int | None = None, stream: Any = None
    ) -> None:
        """Part r of ``send`` goes to rank r; what rank r sent is part r of ``recv``."""
        parts = (self.size, self.size)
        self._collective("polypath_all_to_all", send, recv, type, count, parts, [], stream)

    def report(self) -> dict[str, Any]:
        """How many of this rank's collectives went how: ``{"cells", "lines", "channels",
        "copies", "pairwise", "relayed", "hierarchical", "ring", "host_trees", "mixed",
        "changed_by_load", "without_relays", "uneven", "fewer_blocks", "direct", "sum_order",
        "scratch_bytes"}``; ``"changed_by_load"`` counts calls by another algorithm
        that would be mixed on an idle node, ``"without_relays"`` those that would go over idle GPUs
        once all ranks have made them ready and find them free, ``"uneven"`` those of parts of
        different lengths, which are counted by their way as well, ``"fewer_blocks"`` those whose
        kernel had fewer blocks than it wanted, since other communicators had them, ``"direct"``
        those by channels or mixed whose results other ranks stored straight into ``recv``. Puts are
        in ``"puts": {"kernel", "copies"}``: by the kernel for small ones, and by copies. ``"norms":
        {"fused", "apart"}`` counts `all_reduce_norm`. Of several nodes also ``"nodes": {"network",
        "calls", "chunks", "sent_bytes"}``."""
        result: dict[str, Any] = _api.call_json("polypath_comm_report", self._open())
        return result

    def _collective(
        self,
        name: str,
        send: Any,
        recv: Any,
        type: str,
        count: int | None,
        parts: tuple[int, int],
        arguments: list[int],
        stream: Any,
    ) -> None:
        """``parts``: of ``count`` elements, how many this rank's ``send`` and ``recv`` have; 0:
        it is not used."""
        _require_type(type)
        if count is None:
            source = None if send is None else as_buffer(send, "send")
            count = _api.elements(source, type, max(parts[0], 1))
        of_part = integer(count, ctypes.c_size_t, "count") * _api.item_bytes(type)
        _api.call(
            name,
            self._open(),
            _address(send, "send", parts[0] * of_part, writes=False),
            _address(recv, "recv", parts[1] * of_part, writes=True),
            count,
            _api.TYPES[type],
            *arguments,
            stream_handle(stream),
        )

    def _uneven(
        self,
        name: str,
        send: Any,
        recv: Any,
        type: str,
        counts: Sequence[int],
        arguments: list[int],
        stream: Any,
    ) -> None:
        _require_type(type)
        if len(counts) != self.size:
            raise InvalidArgument(
                f"counts has {len(counts)} entries, and there are {self.size} ranks"
            )
        lengths = array(counts, ctypes.c_size_t, "counts")
        own, every = (count * _api.item_bytes(type) for count in (lengths[self.rank], sum(lengths)))
        gathers = name == "polypath_all_gatherv"
        _api.call(
            name,
            self._open(),
            _address(send, "send", own if gathers else every, writes=False),
            _address(recv, "recv", every if gathers else own, writes=True),
            lengths,
            _api.TYPES[type],
            *arguments,
            stream_handle(stream),
        )

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise InvalidArgument("the communicator is closed")
        return self._handle


def _address(memory: Any, name: str, bytes: int, writes: bool) -> int | None:
    """The address of ``memory``, which is checked if ``bytes`` bytes of it are used."""
    if memory is None:
        return None
    if bytes == 0:
        return as_buffer(memory, name).address
    return covered(memory, name, bytes, writes=writes)[0]


def _require_type(name: str) -> None:
    if name not in _api.TYPES:
        raise InvalidArgument(f"there is no type '{name}': {', '.join(_api.TYPES)}")


def _elements_of(memory: Any, name: str, width: int) -> int:
    """How many of ``width`` bytes it has. Raises `InvalidArgument` unless it is a whole number."""
    size = as_buffer(memory, name).bytes
    if size is None:
        raise InvalidArgument(f"{name} has no size, so rows and hidden are wanted")
    if size % width:
        raise InvalidArgument(f"{name}: {size} bytes are no multiple of {width}")
    return size // width


def _operator(name: str) -> int:
    if name not in _api.OPERATORS:
        raise InvalidArgument(f"there is no operator '{name}': {', '.join(_api.OPERATORS)}")
    return _api.OPERATORS[name]


def _options(
    timeout_ms: int,
    network: str | None,
    port: int = 0,
    *,
    max_blocks: int | str = 0,
    reserved_sms: int | str = 0,
    sum_order: int | str = "setting",
) -> _c_abi.CommOptions:
    """What a communicator is created with. Raises `InvalidArgument` for a network or an order that
    does not exist."""
    if network not in (None, "nccl"):
        raise InvalidArgument(f"network: there is no '{network}': nccl, or None")
    nccl = _api.library().polypath_network_nccl() if network else None
    if sum_order not in _api.SUM_ORDERS:
        raise InvalidArgument(f"sum_order: there is no '{sum_order}': rank, tree")
    return _c_abi.CommOptions(
        timeout_ms,
        port,
        nccl,
        max_blocks,
        reserved_sms,
        0,
        _api.SUM_ORDERS[str(sum_order)],
    )
