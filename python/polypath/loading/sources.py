"""The files of a model: from paths to open files with checked headers."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FileError
from .header import Entry, Header, read_header

INDEX_NAME = "model.safetensors.index.json"
_INDEX_SUFFIX = ".index.json"
_SUFFIX = ".safetensors"

PathLike = str | os.PathLike[str]


class Source(NamedTuple):
    """An open file, and which of its tensors are wanted."""

    path: Path
    descriptor: int
    header: Header
    entries: tuple[Entry, ...]
    """In the order of their data."""


@contextmanager
def open_sources(paths: PathLike | Iterable[PathLike]) -> Iterator[list[Source]]:
    """The files that ``paths`` name, open as long as the block runs: a safetensors file; an index
    (``model.safetensors.index.json``) or a folder that holds one; a folder of safetensors files; or
    several of these. All headers are checked first. Raises `FileError`."""
    with ExitStack() as stack:
        sources = []
        for path, names in _files_of(paths):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise FileError(f"{path}: {error.strerror}") from error
            stack.callback(os.close, descriptor)
            header = read_header(descriptor, str(path))
            sources.append(Source(path, descriptor, header, _wanted(path, header, names)))
        _require_unique(sources)
        yield sources


def digest(sources: Sequence[Source]) -> bytes:
    """A digest of the files' headers: equal on ranks that see the same files."""
    hashed = hashlib.sha256()
    for source in sources:
        hashed.update(len(source.header.text).to_bytes(8, "little"))
        hashed.update(source.header.text)
        names = "\0".join(entry.name for entry in source.entries)
        hashed.update(names.encode("utf-8", "surrogatepass"))  # JSON may escape half a character
    return hashed.digest()


def _files_of(paths: PathLike | Iterable[PathLike]) -> Iterator[tuple[Path, set[str] | None]]:
    """Each file, and the tensors that are wanted of it; None: all."""
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not several:
        raise FileError("no file is named")
    for path in map(Path, several):
        if path.is_dir():
            yield from _files_in(path)
        elif path.name.endswith(_INDEX_SUFFIX):
            yield from _files_of_index(path)
        else:
            yield path, None


def _files_in(folder: Path) -> Iterator[tuple[Path, set[str] | None]]:
    index = folder / INDEX_NAME
    if index.is_file():
        yield from _files_of_index(index)
        return
    files = sorted(folder.glob(f"*{_SUFFIX}"))
    if not files:
        raise FileError(f"{folder}: there is no {INDEX_NAME} and no *{_SUFFIX} in it")
    for file in files:
        yield file, None


def _files_of_index(index: Path) -> Iterator[tuple[Path, set[str] | None]]:
    names: dict[str, set[str]] = {}
    for tensor, file in _weight_map(index).items():
        names.setdefault(file, set()).add(tensor)
    for file in sorted(names):
        yield index.parent / file, names[file]


def _weight_map(index: Path) -> dict[str, str]:
    try:
        content: Any = json.loads(index.read_bytes())
    except OSError as error:
        raise FileError(f"{index}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"{index}: no index: {error}") from None
    files = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not files:
        raise FileError(f"{index}: no index: it has no weight_map")
    for tensor, file in files.items():
        # A name only: an index must not lead out of its folder.
        if not isinstance(file, str) or file in ("", ".", "..") or Path(file).name != file:
            raise FileError(f"{index}: the file of '{tensor}' is {file!r}, and no name of a file")
    return files


def _wanted(path: Path, header: Header, names: set[str] | None) -> tuple[Entry, ...]:
    if names is None:
        return header.entries
    missing = names - {entry.name for entry in header.entries}
    if missing:
        raise FileError(f"{path}: '{min(missing)}' is in the index, and not in the file")
    return tuple(entry for entry in header.entries if entry.name in names)


def _require_unique(sources: Sequence[Source]) -> None:
    place: dict[str, Path] = {}
    for source in sources:
        for entry in source.entries:
            first = place.setdefault(entry.name, source.path)
            if first is not source.path:
                raise FileError(f"'{entry.name}' is in {first} and in {source.path}")
