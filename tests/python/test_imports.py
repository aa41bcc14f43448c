"""Programs that CI does not run, as they need GPUs or PyTorch, import what exists."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted(
    path for folder in ("examples", "lab", "scripts") for path in (ROOT / folder).rglob("*.py")
)
EXAMPLES = ROOT / "examples"  # which some scripts add to the path
OTHERS = {
    "cupy",
    "fastsafetensors",
    "matplotlib",
    "nixl_cu13",
    "numpy",
    "polypath",
    "pycparser",
    "pytest",
    "rich",
    "safetensors",
    "torch",
}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_imported_modules_exist(path: Path) -> None:
    neighbours = {other.stem for other in PROGRAMS if other.parent in (path.parent, EXAMPLES)}
    known = sys.stdlib_module_names | OTHERS | neighbours
    assert sorted(set(imported(path)) - known) == []
    assert path.stem not in sys.stdlib_module_names
