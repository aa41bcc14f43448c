"""UNICONN: GPU to GPU over the library that is chosen as the program starts: polypath, NCCL or
NVSHMEM (docs/uniconn.md; the variable POLYPATH_BACKEND).

>>> with Environment() as env:
...     env.set_device(env.node_rank)
...     with Communicator(env) as comm, Memory(env, "64M") as inbox, Memory(env, 8) as word:
...         step = Coordinator(env, stream)
...         with step.group():
...             step.post(tensor, inbox, word, 1, right, comm)
...             step.acknowledge(inbox, word, 1, left, comm)
...         step.wait()

Collective calls (Environment, `Environment.set_device`, Communicator, `Communicator.split`, Memory
and its end) are made by all ranks in the same order. One rank a process; or ranks that are threads
(`Bootstrap.threads`), each with all its calls on its own thread.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from . import _api, _c_abi, _dlpack
from .bootstrap import Bootstrap
from .buffers import Buffer, as_buffer, covered
from .errors import InvalidArgument
from .handles import Closing, is_failure
from .integers import array, checked_size, integer
from .streams import stream_handle


def _constants(*names: str) -> dict[str, int]:
    return {name: _c_abi.CONSTANTS[f"POLYPATH_UNICONN_{name.upper()}"] for name in names}


#: The numbers of the C API (uniconn.h).
TYPES = {**_api.TYPES, **_constants("int16", "uint16")}
OPERATORS = {**_api.OPERATORS, **_constants("land", "lor", "lxor", "band", "bor", "bxor")}


class _Handle(Closing):
    """What is closed by `close`, or in the end of a ``with`` statement."""

    _destroy = ""  # of the C API
    _handle: ctypes.c_void_p | None

    def close(self) -> None:
        """Later calls do nothing. What uses it must have completed."""
        if self._handle is not None and not self._is_inherited():
            getattr(_api.library(), self._destroy)(self._handle)
        self._handle = None

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise InvalidArgument(f"the {type(self).__name__} is closed")
        return self._handle


class Environment(_Handle):
    """The library of this rank, and its GPU; one at a time for each rank.

    Without a bootstrap: the ranks that torchrun, or any launcher that sets RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT, started; without those one rank alone. Collective. The library ends
    with the last of what was made of it.

    Raises `InvalidArgument` for a second one, and what the exchange raises.
    """

    _destroy = "polypath_uniconn_env_destroy"

    def __init__(self, bootstrap: Bootstrap | None = None) -> None:
        self._bootstrap = bootstrap
        self._handle = None
        handle = ctypes.c_void_p()
        with self._raising():
            if bootstrap is None:
                _api.call("polypath_uniconn_env_create_from_environment", ctypes.byref(handle))
            else:
                _api.call(
                    "polypath_uniconn_env_create",
                    bootstrap.rank,
                    bootstrap.size,
                    bootstrap._exchange,
                    bootstrap._user,
                    int(bootstrap._is_thread),
                    ctypes.byref(handle),
                )
        self._handle = handle
        self.device: int | None = None
        """This rank's GPU, once `set_device` was called."""

    def set_device(self, gpu: int) -> None:
        """Makes the GPU's primary context current, and chooses and begins the library. Collective,
        once. Raises `NotSupported` when what POLYPATH_BACKEND names is missing, with how to get
        it."""
        with self._raising():
            _api.call("polypath_uniconn_set_device", self._open(), gpu)
        self.device = gpu

    @property
    def backend(self) -> str:
        """Which library: "polypath", "gpuccl" or "gpushmem"; "" before `set_device`."""
        return str(_api.library().polypath_uniconn_backend(self._open()).decode())

    @property
    def reason(self) -> str:
        """Why that, for a person."""
        return _api.decoded(_api.library().polypath_uniconn_reason(self._open()))

    @property
    def world_rank(self) -> int:
        return int(_api.library().polypath_uniconn_world_rank(self._open()))

    @property
    def world_size(self) -> int:
        return int(_api.library().polypath_uniconn_world_size(self._open()))

    @property
    def node_rank(self) -> int:
        return int(_api.library().polypath_uniconn_node_rank(self._open()))

    @property
    def node_size(self) -> int:
        return int(_api.library().polypath_uniconn_node_size(self._open()))

    @contextlib.contextmanager
    def _raising(self) -> Iterator[None]:
        """Raises what the exchange raised meanwhile, in place of what came of it."""
        try:
            yield
        except Exception:
            if self._bootstrap is not None and self._bootstrap._raised:
                raise self._bootstrap._raised.pop() from None
            raise


class Communicator(_Handle):
    """All ranks of the environment. Collective."""

    _destroy = "polypath_uniconn_comm_destroy"

    def __init__(self, env: Environment) -> None:
        env._open()
        handle = ctypes.c_void_p()
        _api.call("polypath_uniconn_comm_create", ctypes.byref(handle))
        self._take(handle, env)

    def _take(self, handle: ctypes.c_void_p, env: Environment) -> None:
        self._handle = handle
        self._env = env  # and with it the exchange

    @property
    def rank(self) -> int:
        return int(_api.library().polypath_uniconn_comm_rank(self._open()))

    @property
    def size(self) -> int:
        return int(_api.library().polypath_uniconn_comm_size(self._open()))

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Collective: one for the ranks of each color, ordered by key, then by rank; None for a
        negative color."""
        part = ctypes.c_void_p()
        _api.call("polypath_uniconn_comm_split", self._open(), color, key, ctypes.byref(part))
        if part.value is None:
            return None
        comm = Communicator.__new__(Communicator)
        comm._take(part, self._env)
        return comm

    def barrier(self, stream: Any = None) -> None:
        """The stream goes on when those of all ranks have come to their call."""
        _api.call("polypath_uniconn_barrier", self._open(), stream_handle(stream))


class Memory(Closing):
    """Memory of this rank's GPU that others send to: ``size`` bytes, or "64M", on all ranks.
    Collective, and so is `close`, before which work of all ranks that uses it must have completed.

    To frameworks it is an array of ``type``, in one dimension, by ``__cuda_array_interface__`` and
    DLPack; it has to stay open as long as they use it."""

    def __init__(self, env: Environment, size: int | str, type: str = "uint8") -> None:
        if type not in TYPES:
            raise InvalidArgument(f"there is no type '{type}': {', '.join(TYPES)}")
        env._open()
        self.bytes = checked_size(size, "size")
        if self.bytes == 0 or self.bytes % _api.item_bytes(type):
            raise InvalidArgument(f"size: {self.bytes} bytes are not elements of {type}")
        handle = ctypes.c_void_p()
        _api.call("polypath_uniconn_alloc", self.bytes, ctypes.byref(handle))
        self.type = type
        self._env = env
        self._address: int | None = handle.value

    @property
    def address(self) -> int:
        if self._address is None:
            raise InvalidArgument("the Memory is closed")
        return self._address

    def part(self, offset: int, bytes: int | None = None) -> Buffer:
        """The part that begins at ``offset``: ``bytes`` bytes, or all that is left."""
        offset = integer(offset, ctypes.c_size_t, "offset")
        count = self.bytes - offset if bytes is None else integer(bytes, ctypes.c_size_t, "bytes")
        if count < 0 or offset + count > self.bytes:
            raise InvalidArgument(f"part: there are {self.bytes} bytes")
        return Buffer(self.address + offset, count)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        item = _api.item_bytes(self.type)
        kind = {"i": "i", "u": "u", "f": "f", "b": "V"}[self.type[0]]  # of bfloat16 the bytes
        return {
            "shape": (self.bytes // item,),
            "typestr": ("|" if item == 1 else "<") + f"{kind}{item}",
            "data": (self.address, False),
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _dlpack.CUDA, self._env.device or 0

    def __dlpack__(self, **_wishes: Any) -> Any:
        """For any stream: the consumer must order its work after what fills the memory."""
        count = self.bytes // _api.item_bytes(self.type)
        return _dlpack.export(self.address, [count], self.type, self._env.device or 0, self)

    def close(self) -> None:
        """Collective."""
        if self._address is not None and not self._is_inherited():
            _api.call("polypath_uniconn_free", self._address)
        self._address = None

    def _leave(self, error: BaseException | None) -> None:
        if not is_failure(error):  # else others may not come to it; it goes with the environment
            self.close()


class Coordinator(_Handle):
    """Operations of one stream, one after another. Buffers are what `polypath.Context.copy_async`
    takes, memory of this rank's GPU; what others write to, and signals, are of `Memory`, at the
    same place on all ranks. ``bytes``: default all of the buffer. Raises `InvalidArgument`, and
    nothing was issued."""

    _destroy = "polypath_uniconn_coordinator_destroy"

    def __init__(self, env: Environment, stream: Any = None) -> None:
        env._open()
        handle = ctypes.c_void_p()
        _api.call(
            "polypath_uniconn_coordinator_create", stream_handle(stream), ctypes.byref(handle)
        )
        self._handle = handle
        self._env = env

    def start(self) -> None:
        """From here to `end` operations are under way together, in no order."""
        self._call("start")

    def end(self) -> None:
        """What comes on the stream after it finds all that was acknowledged, and may overwrite all
        that was posted."""
        self._call("end")

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """`start`, and `end` also when the body raises: other ranks wait for what was posted."""
        self.start()
        try:
            yield
        finally:
            self.end()

    def wait(self) -> None:
        """The host waits until all that is on the stream is done. Raises when a rank failed
        meanwhile."""
        self._call("wait")

    # ---- From rank to rank -----------------------------------------------------------------------

    def post(
        self,
        src: Any,
        dest: Any,
        signal: Any,
        value: int,
        to: int,
        comm: Communicator,
        bytes: int | None = None,
    ) -> None:
        """Sends ``src`` to ``dest`` of rank ``to``, and after it ``value`` to the 64-bit word
        ``signal`` there. Values of one word rise, and one rank writes it."""
        address, count = covered(src, "src", bytes)
        self._call(
            "post",
            address,
            _address(dest, "dest"),
            count,
            _address(signal, "signal"),
            value,
            to,
            comm._open(),
        )

    def acknowledge(
        self,
        dest: Any,
        signal: Any,
        value: int,
        source: int,
        comm: Communicator,
        bytes: int | None = None,
    ) -> None:
        """What comes after it on the stream finds in ``dest`` what rank ``source`` posted with
        this value."""
        address, count = covered(dest, "dest", bytes, writes=True)
        source = integer(source, ctypes.c_int, "source")
        self._call(
            "acknowledge",
            address,
            count,
            _address(signal, "signal"),
            value,
            source,
            comm._open(),
        )

    # ---- Collectives: all ranks, in the same order -----------------------------------------------
    # ``bytes`` is of one rank's part; ``counts`` and ``displs`` are of each rank, in bytes. In
    # place: ``send`` None in a gather, ``recv`` None in a scatter.

    def all_gather(self, send: Any, recv: Any, bytes: int, comm: Communicator) -> None:
        """What all ranks send, in rank order, to all."""
        whole = _parts(comm, bytes)
        source, target = _used(send, "send", bytes), _used(recv, "recv", whole, writes=True)
        self._call("all_gather", source, target, bytes, comm._open())

    def all_gatherv(
        self,
        send: Any,
        recv: Any,
        counts: Sequence[int],
        displs: Sequence[int],
        comm: Communicator,
    ) -> None:
        lists = _sizes(comm, counts=counts, displs=displs)
        source = _used(send, "send", counts[comm.rank])
        target = _used(recv, "recv", _end(counts, displs), writes=True)
        self._call("all_gatherv", source, target, *lists, comm._open())

    def all_to_all(self, send: Any, recv: Any, bytes: int, comm: Communicator) -> None:
        """Part r of ``send`` to rank r; what rank r sent is part r of ``recv``."""
        whole = _parts(comm, bytes)
        source, target = _used(send, "send", whole), _used(recv, "recv", whole, writes=True)
        self._call("all_to_all", source, target, bytes, comm._open())

    def all_to_allv(
        self,
        send: Any,
        send_counts: Sequence[int],
        send_displs: Sequence[int],
        recv: Any,
        recv_counts: Sequence[int],
        recv_displs: Sequence[int],
        comm: Communicator,
    ) -> None:
        sent = _sizes(comm, send_counts=send_counts, send_displs=send_displs)
        received = _sizes(comm, recv_counts=recv_counts, recv_displs=recv_displs)
        source = _used(send, "send", _end(send_counts, send_displs))
        target = _used(recv, "recv", _end(recv_counts, recv_displs), writes=True)
        self._call("all_to_allv", source, *sent, target, *received, comm._open())

    def broadcast(
        self, buffer: Any, root: int, comm: Communicator, bytes: int | None = None
    ) -> None:
        """What is in ``root``'s buffer, to all."""
        address, count = covered(buffer, "buffer", bytes, writes=comm.rank != root)
        self._call("broadcast", address, count, root, comm._open())

    def gather(self, send: Any, recv: Any, bytes: int, root: int, comm: Communicator) -> None:
        """What all ranks send, in rank order, to ``root``; ``recv`` is named on all."""
        whole = _parts(comm, bytes) if comm.rank == root else 0
        source, target = _used(send, "send", bytes), _used(recv, "recv", whole, writes=True)
        self._call("gather", source, target, bytes, root, comm._open())

    def gatherv(
        self,
        send: Any,
        recv: Any,
        counts: Sequence[int],
        displs: Sequence[int],
        root: int,
        comm: Communicator,
    ) -> None:
        lists = _sizes(comm, counts=counts, displs=displs)
        whole = _end(counts, displs) if comm.rank == root else 0
        source = _used(send, "send", counts[comm.rank])
        target = _used(recv, "recv", whole, writes=True)
        self._call("gatherv", source, target, *lists, root, comm._open())

    def scatter(self, send: Any, recv: Any, bytes: int, root: int, comm: Communicator) -> None:
        """Part r of ``root``'s ``send`` to rank r."""
        whole = _parts(comm, bytes) if comm.rank == root else 0
        source, target = _used(send, "send", whole), _used(recv, "recv", bytes, writes=True)
        self._call("scatter", source, target, bytes, root, comm._open())

    def scatterv(
        self,
        send: Any,
        recv: Any,
        counts: Sequence[int],
        displs: Sequence[int],
        root: int,
        comm: Communicator,
    ) -> None:
        lists = _sizes(comm, counts=counts, displs=displs)
        whole = _end(counts, displs) if comm.rank == root else 0
        source = _used(send, "send", whole)
        target = _used(recv, "recv", counts[comm.rank], writes=True)
        self._call("scatterv", source, target, *lists, root, comm._open())

    def all_reduce(
        self,
        send: Any,
        recv: Any,
        type: str,
        comm: Communicator,
        op: str = "sum",
        count: int | None = None,
    ) -> None:
        """What all ranks send, combined, to all; ``recv`` may be ``send``. ``count``: elements of
        ``type``. ``op``: sum, product, min, max, avg, land, lor, lxor, band, bor, bxor."""
        self._reduce("all_reduce", send, recv, type, op, count, comm)

    def reduce(
        self,
        send: Any,
        recv: Any,
        type: str,
        root: int,
        comm: Communicator,
        op: str = "sum",
        count: int | None = None,
    ) -> None:
        """As all_reduce(), with the result on ``root`` alone."""
        self._reduce("reduce", send, recv, type, op, count, comm, root)

    def _reduce(
        self,
        name: str,
        send: Any,
        recv: Any,
        type: str,
        op: str,
        count: int | None,
        comm: Communicator,
        *root: int,
    ) -> None:
        if type not in TYPES:
            raise InvalidArgument(f"there is no type '{type}': {', '.join(TYPES)}")
        if op not in OPERATORS:
            raise InvalidArgument(f"there is no operator '{op}': {', '.join(OPERATORS)}")
        if count is None:
            count = _api.elements(as_buffer(send, "send"), type)
        size = integer(count, ctypes.c_size_t, "count") * _api.item_bytes(type)
        source = covered(send, "send", size)[0]
        target = _used(recv, "recv", 0 if root and comm.rank != root[0] else size, writes=True)
        arguments = [source, target, count, TYPES[type], OPERATORS[op]]
        self._call(name, *arguments, *root, comm._open())

    def _call(self, name: str, *arguments: Any) -> None:
        _api.call(f"polypath_uniconn_{name}", self._open(), *arguments)


def _address(memory: Any, name: str) -> int | None:
    """The address of another rank's memory, or of memory that this rank does not use."""
    return None if memory is None else as_buffer(memory, name).address


def _used(memory: Any, name: str, bytes: int, *, writes: bool = False) -> int | None:
    """The address of ``bytes`` bytes; 0: this rank does not use it. None: in place."""
    if memory is None or bytes == 0:
        return _address(memory, name)
    return covered(memory, name, bytes, writes=writes)[0]


def _parts(comm: Communicator, bytes: int) -> int:
    """Bytes of one part for each rank."""
    return integer(bytes, ctypes.c_size_t, "bytes") * comm.size


def _end(counts: Sequence[int], displs: Sequence[int]) -> int:
    """Where the last part ends."""
    return max(at + count for at, count in zip(displs, counts, strict=True))


def _sizes(comm: Communicator, **lists: Sequence[int]) -> list[Any]:
    """As the C API has them: one a rank."""
    for name, values in lists.items():
        if len(values) != comm.size:
            raise InvalidArgument(f"{name}: one a rank is wanted, which is {comm.size}")
    return [array(values, ctypes.c_size_t, name) for name, values in lists.items()]
