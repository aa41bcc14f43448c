"""The environment in which an unmodified program runs under the shim."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .._library import find_library
from ..context import settings as settings_table
from ..errors import InvalidArgument, LibraryNotFound

SHIM = "libpolypath_preload.so"
#: Stands between programs and their NCCL; not there for every processor.
NCCL = "libpolypath_nccl.so"
SIMULATED_DRIVER = "simulated-driver"
#: The shim's own variable; all others are of the settings table.
STATISTICS = "POLYPATH_STATS"
_PROFILE = "POLYPATH_PROFILE"
_NO_FILES = ("", "auto", "off")
#: How many hardware queues a GPU's copies have, and its other work. By default a stream that is
#: held back holds one in four of the other streams' copies; with the shim there are more streams.
COPY_QUEUES = ("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "CUDA_DEVICE_MAX_CONNECTIONS")


def find_shim() -> Path:
    """The library that is preloaded; it lies next to libpolypath.so. Raises `LibraryNotFound`, also
    for a path that LD_PRELOAD cannot hold: spaces and colons separate its entries."""
    shim = find_library().with_name(SHIM)
    if not shim.is_file():
        raise LibraryNotFound(f"{shim} is missing: build it with `make setup`")
    if any(separator in str(shim) for separator in " :"):
        raise LibraryNotFound(
            f"{shim} cannot be preloaded, because of the space or colon in its path: "
            "move polypath to another folder"
        )
    return shim


def find_nccl() -> Path | None:
    """The library that stands between programs and NCCL, next to the shim; None: it was not built.
    Raises `LibraryNotFound` as `find_shim`."""
    library = find_shim().with_name(NCCL)
    return library if library.is_file() else None


def preloaded_libraries() -> list[Path]:
    """What a program is run under. NCCL's is the first: its dlsym() asks the shim's."""
    return [library for library in (find_nccl(), find_shim()) if library is not None]


def reproducible(strict: bool) -> dict[str, str]:
    """The variables by which every float sum of NCCL is in rank order. Raises `LibraryNotFound`
    where that library is missing."""
    if find_nccl() is None:
        raise LibraryNotFound(
            f"{find_shim().with_name(NCCL)} is missing: build it with `make setup`"
        )
    return {"POLYPATH_REPRODUCIBLE": "1", **({"POLYPATH_STRICT": "1"} if strict else {})}


def find_simulated_driver() -> Path:
    """The folder in which the simulated driver has the names of the real one. Raises
    `LibraryNotFound`."""
    folder = find_library().with_name(SIMULATED_DRIVER)
    if not folder.is_dir():
        raise LibraryNotFound(f"{folder} is missing: build it with `make setup`")
    return folder


def assignments(base: Mapping[str, str], node: str | None = None) -> dict[str, str]:
    """The variables that differ from ``base`` where the shim is preloaded; with ``node``, a name of
    `polypath nodes` or a node file, where the simulated driver takes the place of the real one as
    well. Raises `LibraryNotFound`."""
    changed = {"LD_PRELOAD": with_libraries(base.get("LD_PRELOAD", ""), preloaded_libraries())}
    if not any(name in base for name in COPY_QUEUES):
        changed[COPY_QUEUES[0]] = "32"
    profile = base.get(_PROFILE, "")
    if profile != absolute_profile(profile):
        changed[_PROFILE] = absolute_profile(profile)
    if node is not None:
        folder = str(find_simulated_driver())
        others = [
            place
            for place in base.get("LD_LIBRARY_PATH", "").split(":")
            if place not in ("", folder)
        ]
        changed["LD_LIBRARY_PATH"] = ":".join([folder, *others])
        changed["POLYPATH_NODE"] = str(Path(node).absolute()) if Path(node).is_file() else node
        changed["POLYPATH_SIM_MODE"] = "functional"
    return changed


def is_preloaded(environment: Mapping[str, str]) -> bool:
    """Whether programs in this environment are under the shim already, as what another `polypath
    run` started."""
    preloaded = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    return any(Path(entry).name == SHIM for entry in preloaded)


def with_libraries(preloaded: str, libraries: Sequence[Path]) -> str:
    """The value of LD_PRELOAD with these libraries first, once, and what else was there after
    them."""
    others = [
        entry
        for entry in preloaded.replace(":", " ").split()
        if Path(entry).resolve() not in libraries
    ]
    return ":".join([*map(str, libraries), *others])


def settings_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of these settings, by name as `polypath info -c` lists them.

    Sets them in this process as well: the library checks its own environment. Raises
    `InvalidArgument` for a setting that there is not, and for a value that is not allowed, given
    here or in the environment."""
    variables = {row["name"]: row["environment"] for row in settings_table()}
    for name in settings:
        if name not in variables:
            raise InvalidArgument(f"there is no setting '{name}': {', '.join(variables)}")
    environment = {variables[name]: value for name, value in settings.items()}
    if _PROFILE in environment:
        environment[_PROFILE] = absolute_profile(environment[_PROFILE])
    os.environ.update(environment)
    settings_table()
    profile = os.environ.get(_PROFILE, "off")
    if profile not in _NO_FILES and Path(profile).exists() and not Path(profile).is_file():
        raise InvalidArgument(f"{profile}: is no regular file, and a profile is one")
    return environment


def absolute_profile(text: str) -> str:
    """The setting with its file as an absolute path, since processes may change their folder."""
    return text if text in _NO_FILES else str(Path(text).absolute())


def missing_profile() -> str | None:
    """The file that POLYPATH_PROFILE names, where there is none."""
    named = os.environ.get(_PROFILE, "")
    return None if named in _NO_FILES or Path(named).exists() else named


def statistics_target(text: str) -> str:
    """Reads where statistics go: "text", or a file as an absolute path, since processes may change
    their folder. `ValueError` says what is allowed."""
    if text == "text":
        return text
    file = Path(text).absolute()
    if file.suffix != ".json":
        raise ValueError(f"'{text}' is neither text nor the name of a file that ends in .json")
    if not file.parent.is_dir():
        raise ValueError(f"there is no folder {file.parent}")
    return str(file)
