#!/usr/bin/env python3
"""Checks the dependency rule of ARCHITECTURE.md on the #include lines of all parts of the tree.

    lab > collectives > comm > core; messaging > comm
    sim, exec, comm, collectives, messaging > simt
    collectives > collectives/plan (with collective_types.h, channel_ways.h) > plan
    core > tune > exec > plan > topology > driver > base
    core > registry > base
    offload > collectives
    nccl > gate; cuda, mpi > gate > base (of polypath they see the C API alone)
    simt, exec, comm, collectives, messaging > device (what device code stands on; of simt/ it
    includes what stands for it on the host, where tests find it)

The names are folders PART/src/NAME. A folder may include itself and what is to the right of it.
Some may include less: RULES below lists, for each folder, those that it may include.

Checks also that no source of the parts and of python/ is wider than 100 columns; lists of symbols
(*.def) are tables, and may be wider.
"""

import re
import sys
from pathlib import Path, PurePosixPath

#: Folders of the tree that have src/ or include/.
PARTS = (
    *("node", "engine", "device", "comm", "offload", "intercept", "messaging", "uniconn", "lab"),
    *("plugins", "sim"),
)

# The node and the reader of its files: a part of its own, because the simulated node uses it too.
NODE = {
    *("node", "node_file", "node_file_format", "node_search", "cost_fields", "memory_pattern"),
    "toml_table",
}

ENGINE = {"exec", "plan", "topology", "node", "driver", "base"}
CORE = {"core", "tune", "registry", "api"} | ENGINE

RULES = {
    "base": {"base"},
    "driver": {"driver", "base"},
    "registry": {"registry", "base"},
    "node": {"node", "base"},
    "topology": {"topology", "node", "driver", "base"},
    "plan": {"plan", "topology", "node", "base"},  # pure: no driver
    "exec": {"simt", "device"} | ENGINE,  # its kernels
    "tune": {"tune", "api"} | ENGINE,
    "core": CORE,
    "lab": {"lab", "collectives", "collective_plan", "comm"} | CORE,
    "comm": {"comm", "simt", "device"} | CORE,
    # Pure: no driver; of the API the element types and operators.
    "collective_plan": {"collective_plan", "plan", "topology", "node", "base", "api"},
    "collectives": {"collectives", "collective_plan", "comm", "simt", "device"} | CORE,
    "messaging": {"messaging", "comm", "simt", "device"} | CORE,
    # Public headers; the last error, and what is measured and kept.
    "uniconn": {"uniconn", "api", "collective_plan"} | CORE,
    "offload": {"offload", "collectives", "comm", "api"} | CORE,
    # intercept/src: libraries of their own, so of the base only what is all in its header.
    "gate": {"gate", "base", "api"},
    "cuda": {"cuda", "mpi", "gate", "base", "api"},
    "mpi": {"mpi", "cuda", "gate", "base", "api"},
    "nccl": {"nccl", "gate", "base", "api"},
    "nixl": {"nixl", "api"},  # plugins/src: the C API alone, and the package's own headers
    "simt": {"simt", "device"},
    "device": {"device", "simt"},  # device/include, as the user's compiler has it
    "sim": {"sim", "simt", "node", "base"},
    "api": {"api", "device"},  # include/polypath
}
PURE = {
    "base",
    "registry",
    "node",
    "plan",
    "collective_plan",
    "device",
    "api",
}  # these see no CUDA header either

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
TREES = ("src", "intercept/src", "offload/src", "offload/include", "sim", "simt", "include")
SOURCES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".def"}
MAX_COLUMNS = 100


def part_of(path: PurePosixPath) -> str:
    """The key of RULES for a file; the path is relative to the repository root."""
    top, kind, *rest = path.parts
    if top == "sim":
        return top
    if top == "device":
        return "simt" if kind == "simt" else "device"
    if kind == "include":
        return "api"
    folder = rest[0]
    if top == "offload":
        return "offload"
    if folder == "topology" and path.stem in NODE:
        return "node"
    if folder == "collectives" and (
        rest[1] == "plan" or rest[1:] in (["collective_types.h"], ["channel_ways.h"])
    ):
        return "collective_plan"
    return folder


def include_folders(root: Path) -> list[Path]:
    """Where a quoted include is looked for, after its own folder."""
    parts = [root / part / kind for kind in ("src", "include") for part in PARTS]
    return [*parts, root / "device"]


def sources(root: Path, *more: str) -> list[Path]:
    """All sources of the parts, and of the folders `more`, without tests."""
    folders = [*include_folders(root), root / "device/simt", *(root / top for top in more)]
    folders.remove(root / "device")
    return sorted({file for folder in folders for file in folder.rglob("*")})


def resolve(root: Path, file: Path, name: str) -> Path | None:
    """The file of the project that `#include "name"` in `file` means; None: not the project's."""
    for folder in (file.parent, *include_folders(root)):
        if (folder / name).is_file():
            return (folder / name).resolve()
    return None


def violations(root: Path) -> list[str]:
    """One line, "FILE:LINE: what is wrong", for each include that breaks the rule."""
    root = root.resolve()
    problems = []
    for file in sources(root):
        if file.suffix not in SOURCES:
            continue
        path = file.relative_to(root)
        part = part_of(PurePosixPath(path))
        text = file.read_text(encoding="utf-8")
        for include in INCLUDE.finditer(text):
            name = include[2]
            where = f"{path}:{text.count(chr(10), 0, include.start(2)) + 1}"
            if part not in RULES:
                problems.append(f"{where}: scripts/check_layers.py knows no rule for '{part}'")
            elif name in ("cuda.h", "nvml.h", "cuda_runtime.h") and part in PURE:
                problems.append(f"{where}: {part} includes {name}, but is to know nothing of CUDA")
            elif target := resolve(root, file, name):
                other = part_of(PurePosixPath(target.relative_to(root)))
                if other not in RULES[part]:
                    allowed = ", ".join(sorted(RULES[part]))
                    problems.append(
                        f"{where}: {part} includes {name} of {other}; allowed: {allowed}"
                    )
            elif include[1] == '"':
                problems.append(f'{where}: no such file: "{name}"')
    return problems


def too_wide(root: Path) -> list[str]:
    """One line, "FILE:LINE: its columns", for each line that is too wide."""
    problems = []
    for file in sources(root, "python"):
        if file.suffix not in SOURCES | {".py"}:
            continue
        path = file.relative_to(root)
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS and file.suffix != ".def":
                problems.append(f"{path}:{number}: {len(line)} columns, more than {MAX_COLUMNS}")
    return problems


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    problems = violations(root) + too_wide(root)
    print("\n".join(problems) or "dependency rule, width of lines: kept")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
