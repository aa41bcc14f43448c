"""What is read at once: ranges of a file's data, and the tensors in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from ..errors import InvalidArgument
from .header import Entry
from .sources import Source

#: Called with a tensor's name and shape: the dimension along which ranks have a part each; None:
#: every rank has all of it.
Split = Callable[[str, tuple[int, ...]], int | None]

#: Bytes of tensors that are read into memory that they leave again, but one tensor may have more.
_TEMPORARY_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class Part:
    """What one rank has of a tensor."""

    entry: Entry
    begin: int
    """First byte that is read, from the begin of the data."""
    end: int
    shape: tuple[int, ...]
    """Shape of the part that is read."""
    split_dim: int | None = None
    """All of the tensor is read, and a part of it kept."""
    is_converted: bool = False
    is_own: bool = False
    """No other rank reads it."""

    @property
    def is_temporary(self) -> bool:
        """Whether the tensor does not stay where it was read to."""
        return self.is_converted or self.split_dim is not None


@dataclasses.dataclass
class Segment:
    source: Source
    parts: list[Part]

    @property
    def begin(self) -> int:
        return self.parts[0].begin

    @property
    def bytes(self) -> int:
        return self.parts[-1].end - self.begin

    @property
    def is_own(self) -> bool:
        return self.parts[0].is_own

    def takes(self, part: Part) -> bool:
        """Whether the part may come after what is in it."""
        first, last = self.parts[0], self.parts[-1]
        if last.end != part.begin or first.is_own or part.is_own:
            return False
        if first.is_temporary != part.is_temporary:
            return False
        return not part.is_temporary or part.end - first.begin <= _TEMPORARY_BYTES


def segments_of(
    sources: Sequence[Source],
    is_converted: Callable[[Entry], bool],
    split: Split | None,
    rank: int,
    size: int,
) -> list[Segment]:
    """The segments that ranks read, in the order in which they do. Raises `InvalidArgument` for a
    tensor that cannot be split so."""
    segments: list[Segment] = []
    for source in sources:
        fresh = True
        for part in _parts_of(source, is_converted, split, rank, size):
            if not fresh and segments[-1].takes(part):
                segments[-1].parts.append(part)
            else:
                segments.append(Segment(source, [part]))
            fresh = False
    return segments


def _parts_of(
    source: Source,
    is_converted: Callable[[Entry], bool],
    split: Split | None,
    rank: int,
    size: int,
) -> Iterator[Part]:
    for entry in source.entries:
        dim = None if split is None or size == 1 else split(entry.name, entry.shape)
        whole = Part(entry, entry.begin, entry.end, entry.shape, None, is_converted(entry))
        if dim is None:
            yield whole
            continue
        _check_split(entry, dim, size)
        dim %= len(entry.shape)
        if dim == 0 and entry.bytes % size == 0:
            of_rank = entry.bytes // size
            begin = entry.begin + rank * of_rank
            shape = (entry.shape[0] // size, *entry.shape[1:])
            yield dataclasses.replace(
                whole, begin=begin, end=begin + of_rank, shape=shape, is_own=True
            )
        else:
            yield dataclasses.replace(whole, split_dim=dim)


def _check_split(entry: Entry, dim: int, size: int) -> None:
    dims = len(entry.shape)
    if not -dims <= dim < dims:
        raise InvalidArgument(f"split: '{entry.name}' has no dimension {dim}: {entry.shape}")
    if entry.shape[dim] % size:
        raise InvalidArgument(
            f"split: dimension {dim} of '{entry.name}', {entry.shape[dim]} long, has no {size} "
            "equal parts"
        )
