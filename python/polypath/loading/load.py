"""`load_file` and `load_sharded`: the tensors of safetensors files, in memory of GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ..buffers import Buffer
from ..context import Context, shared_context
from ..errors import CommunicatorError, InvalidArgument
from ..gpu import Gpu
from .header import Entry
from .memory import Memory, floating_type, memory_of
from .segments import Segment, Split, segments_of
from .sources import PathLike, Source, digest, open_sources

if TYPE_CHECKING:
    from ..comm import Communicator

#: Called with the number of bytes read so far, and with their total.
Progress = Callable[[int, int], None]

#: Bytes of one read. Two go at once: while the last chunks of one are sent, the next one begins.
_PIECE = 2 << 30
#: Bytes that each rank reads of a piece.
_RANK_PIECE = 256 << 20
_ALIGNMENT = 16

_Result = TypeVar("_Result")


def load_file(
    paths: PathLike | Iterable[PathLike],
    device: Any = "cuda",
    *,
    dtype: Any = None,
    context: Context | None = None,
    framework: str | None = None,
    progress: bool | Progress = False,
) -> dict[str, Any]:
    """The tensors of a safetensors file by their names, on a GPU: CPU threads read the file, and
    its chunks go over the links of all GPUs. Returns when they are there.

    ``paths``: a file, an index (``model.safetensors.index.json``), a folder with either, or several
    of these. ``device``: "cuda:0", "gpu0", a number, a ``torch.device``; "cuda" is PyTorch's
    current GPU, or GPU 0. ``dtype``: floating-point tensors get this type, on the GPU ("bfloat16",
    ``torch.bfloat16``; needs PyTorch). ``context``: default one that the process shares.
    ``framework``: "torch": PyTorch's tensors; "dlpack": objects with ``__dlpack__``; default
    PyTorch's where it is installed. ``progress``: True shows a bar on stderr; or it is called with
    the bytes read and all bytes.

    Tensors of a file share one block of memory, as long as one of them lives; converted ones have
    their own.

    Raises `FileError` for a file that is malformed or cannot be read, and then loads nothing;
    `InvalidArgument` for a device that is not there; `NotSupported` for what needs PyTorch.
    """
    with open_sources(paths) as sources:
        shared = context or shared_context()
        gpu = Gpu(shared, _gpu_index(device, shared))
        return _load(sources, gpu, None, dtype, None, framework, progress)


def load_sharded(
    paths: PathLike | Iterable[PathLike],
    comm: Communicator,
    *,
    split: Split | None = None,
    dtype: Any = None,
    framework: str | None = None,
    progress: bool | Progress = False,
) -> dict[str, Any]:
    """Collective: `load_file` for the ranks of a communicator. Each rank reads an equal part of the
    bytes over its own links, and an all-gather brings all of them to all ranks.

    ``split``: called with a tensor's name and shape; where it returns a dimension, each rank gets
    its part of the tensor along that one, in rank order, and otherwise all of it. Along dimension 0
    a rank reads its part alone; another one needs PyTorch. It must return the same on all ranks.
    Other arguments and errors: as `load_file`. The bar is rank 0's.

    When one rank fails, nothing is loaded on any: that rank raises its error, the others
    `CommunicatorError` that names it. The communicator stays usable, unless a rank died.
    """
    with contextlib.ExitStack() as stack:
        sources: list[Source] = _together(comm, lambda: stack.enter_context(open_sources(paths)))
        _require_same(comm, digest(sources))
        gpu = Gpu(comm._context, comm.gpu())
        shown = progress if comm.rank == 0 or callable(progress) else False
        return _load(sources, gpu, comm, dtype, split, framework, shown)


def _load(
    sources: list[Source],
    gpu: Gpu,
    comm: Communicator | None,
    dtype: Any,
    split: Split | None,
    framework: str | None,
    progress: bool | Progress,
) -> dict[str, Any]:
    with gpu.streams(4) as streams, _progress(progress) as report:

        def prepared() -> tuple[Memory, list[Segment], str | None]:
            memory = memory_of(gpu, framework, streams[3])
            kind = None if dtype is None else floating_type(dtype)
            rank, size = (0, 1) if comm is None else (comm.rank, comm.size)
            segments = segments_of(sources, lambda entry: _changes(entry, kind), split, rank, size)
            return memory, segments, kind

        memory, segments, kind = _together(comm, prepared)
        reader = _Reader(gpu, comm, streams[:2], streams[2], memory, report)
        reader.total = sum(segment.bytes for segment in segments)
        tensors: dict[str, Any] = {}
        for segment in segments:
            block = reader.read(segment)
            # Another rank may lack what this one has.
            tensors.update(
                _together(comm, lambda b=block, s=segment: _taken(memory, b, s, comm, kind))
            )
            del block
        gpu.synchronize(memory.stream)
        if comm is not None:
            comm.check()
        return tensors


def _changes(entry: Entry, kind: str | None) -> bool:
    return kind is not None and entry.element.is_floating and entry.element.torch != kind


def _taken(
    memory: Memory, block: Any, segment: Segment, comm: Communicator | None, kind: str | None
) -> dict[str, Any]:
    """The tensors of a segment that was read to the block, by names."""
    tensors = {}
    for part in segment.parts:
        tensor = memory.tensor(block, part.begin - segment.begin, part.entry, part.shape)
        if part.split_dim is not None:
            assert comm is not None
            tensor = memory.part(tensor, part.split_dim, comm.rank, comm.size)
        if part.is_converted:
            tensor = memory.converted(tensor, kind)
        tensors[part.entry.name] = tensor
    return tensors


class _Reader:
    """Reads segments to blocks of memory, on two streams in turn."""

    def __init__(
        self,
        gpu: Gpu,
        comm: Communicator | None,
        streams: list[int],
        gathering: int,
        memory: Memory,
        report: Progress,
    ) -> None:
        self._gpu = gpu
        self._comm = comm
        self._streams = streams
        self._gathering = gathering
        self._memory = memory
        self._report = report
        self._pieces = 0
        self._done = 0
        self.total = 0

    def read(self, segment: Segment) -> Any:
        """A block that holds the segment for what is on the memory's stream from now on."""
        comm = None if segment.is_own else self._comm
        size = 1 if comm is None else comm.size
        pieces = list(_pieces(segment.bytes, size))
        block_bytes = max((begin + size * part for begin, part in pieces), default=0)
        block = _together(self._comm, lambda: self._memory.allocate(block_bytes))
        address = self._memory.address(block)
        for stream in (*self._streams, self._gathering):
            self._gpu.order(self._memory.stream, stream)
        # Each rank reads its own parts of tensors without a word to the others.
        _together(
            self._comm if segment.is_own else None,
            lambda: [self._read_piece(segment, address, *piece) for piece in pieces],
        )
        for stream in (*self._streams, self._gathering):
            self._gpu.order(stream, self._memory.stream)
        return block

    def _read_piece(self, segment: Segment, address: int, begin: int, part: int) -> None:
        """Reads `part` bytes by every rank; those of rank 0 begin at `begin`."""
        comm = None if segment.is_own else self._comm
        stream = self._streams[self._pieces % len(self._streams)]
        self._pieces += 1
        own = begin + (0 if comm is None else comm.rank * part)
        count = max(0, min(part, segment.bytes - own))

        def read() -> None:
            if count == 0:
                return
            self._gpu.context.read_async(
                segment.source.descriptor,
                Buffer(address + own, count),
                offset=segment.source.header.data_offset + segment.begin + own,
                stream=stream,
            )

        with self._gpu.current():
            _together(comm, read)
            if comm is not None:
                self._gpu.order(stream, self._gathering)
                everyone = Buffer(address + begin, part * comm.size)
                comm.all_gather(
                    Buffer(address + own, part), everyone, "uint8", part, self._gathering
                )
        of_all = part if comm is None else part * comm.size
        self._done += min(of_all, segment.bytes - begin)
        self._report(self._done, self.total)


def _pieces(bytes: int, ranks: int) -> Iterator[tuple[int, int]]:
    """Where each piece of a segment begins, and how many bytes of it each rank reads."""
    of_rank = _PIECE if ranks == 1 else _RANK_PIECE
    begin = 0
    while begin < bytes:
        part = -(-(bytes - begin) // ranks)
        part = min(of_rank, -(-part // _ALIGNMENT) * _ALIGNMENT if ranks > 1 else part)
        yield begin, part
        begin += part * ranks


def _together(comm: Communicator | None, action: Callable[[], _Result]) -> _Result:
    """What ``action`` returns, once it has succeeded on all ranks."""
    if comm is None:
        return action()
    failure: Exception | None = None
    try:
        result = action()
    except Exception as error:
        failure = error
    succeeded = comm.exchange(b"\0" if failure else b"\1")
    if failure is not None:
        raise failure
    for rank, flag in enumerate(succeeded):
        if flag != b"\1":
            raise CommunicatorError(f"rank {rank} could not load its part: nothing is loaded")
    return result


def _require_same(comm: Communicator, own: bytes) -> None:
    for rank, other in enumerate(comm.exchange(own)):
        if other != own:
            raise InvalidArgument(f"rank {rank} names other files than rank {comm.rank}")


def _gpu_index(device: Any, context: Context) -> int:
    """The number of the GPU that ``device`` names. Raises `InvalidArgument`."""
    count = len(context.topology()["gpus"])
    name = str(device)
    for prefix in ("cuda:", "gpu"):
        name = name.removeprefix(prefix)
    index = _current_gpu() if name == "cuda" else int(name) if name.isdecimal() else -1
    if not 0 <= index < count:
        raise InvalidArgument(f"device '{device}' is none of cuda:0 to cuda:{count - 1}")
    return index


def _current_gpu() -> int:
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_available():
        return 0
    return int(torch.cuda.current_device())


@contextlib.contextmanager
def _progress(progress: bool | Progress) -> Iterator[Progress]:
    if callable(progress):
        yield progress
        return
    if not progress:
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn

    from ..cli.output import bars

    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with bars(Console(stderr=True), *columns) as update:
        yield lambda done, total: update(completed=done, total=total)
