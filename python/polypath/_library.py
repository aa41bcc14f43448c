"""Where libpolypath.so, libpolypath_lab.so and the node files lie."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

from .errors import LibraryNotFound

_NAME = "libpolypath.so"
_LABORATORY = "libpolypath_lab.so"  # the same, with benchmarks and the tuner
_PACKAGE = Path(__file__).resolve().parent


def find_library() -> Path:
    """The library: the file that POLYPATH_LIBRARY names, else the one in this package (a wheel),
    else the release build of the source tree that this package lies in. Raises
    `LibraryNotFound`."""
    named = os.environ.get("POLYPATH_LIBRARY")
    if named:
        places = [Path(named)]
    else:
        places = [_PACKAGE / "lib" / _NAME, _PACKAGE.parents[1] / "build" / "release" / _NAME]
    for place in places:
        if place.is_file():
            return place.resolve()
    if named:
        raise LibraryNotFound(f"POLYPATH_LIBRARY names {named}, and there is no such file")
    looked = ", ".join(str(place) for place in places)
    raise LibraryNotFound(
        f"{_NAME} was not found (looked for {looked}): "
        "run `make setup`, or set POLYPATH_LIBRARY to the file"
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Opens the library with its laboratory, or without where there is none, once a process. Raises
    `LibraryNotFound`."""
    path = find_library()
    if (whole := path.with_name(_LABORATORY)).is_file():
        path = whole
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryNotFound(f"{path} cannot be loaded: {error}") from error


def node_directories() -> list[Path]:
    """Folders of node files that exist, in the order in which the library looks them up. Raises
    `LibraryNotFound` where there is none."""
    library = find_library()
    beside = library.parent
    places = ["nodes", "../share/polypath/nodes", "../nodes", "../../nodes", "../../../nodes"]
    folders = [(beside / place).resolve() for place in places if (beside / place).is_dir()]
    if not folders:
        named = os.environ.get("POLYPATH_LIBRARY")
        who = f"POLYPATH_LIBRARY names {named}, and" if named else f"{library}:"
        raise LibraryNotFound(f"{who} no node files lie beside it, as beside every {_NAME}")
    return folders
