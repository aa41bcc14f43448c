#!/usr/bin/env python3
"""Says which tests a change reaches: select_tests.py REV, for the files that differ from REV.

Prints four lines, each `NAME=VALUE`:

    ctest    a regular expression of names of C++ tests
    targets  the build targets that they and the Python tests need
    python   files of tests/python
    mpi      files of tests/mpi

An empty value means none, `*` means all. A change is traced through the parts of the tree. What
the engine (base to core), communicators or collectives are made of reaches everything. A leaf
(messaging, the NCCL library, the shim, the laboratory, UNICONN, a benchmark, a test, a page of
docs) reaches its own tests and those of the parts whose files include a changed one. A file that
no rule knows reaches everything.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from check_layers import INCLUDE, PARTS, SOURCES, resolve

#: Folders whose sources may include each other's headers.
TREES = (*PARTS, "tests", "examples")


@dataclass
class Selection:
    """What is run. A set that holds `*` means all."""

    ctest: set[str] = field(default_factory=set)  # prefixes of names of tests
    targets: set[str] = field(default_factory=set)
    python: set[str] = field(default_factory=set)  # patterns of names of files
    mpi: set[str] = field(default_factory=set)

    def add(self, other: Selection) -> None:
        self.ctest |= other.ctest
        self.targets |= other.targets
        self.python |= other.python
        self.mpi |= other.mpi


EVERYTHING = Selection({"*"}, {"*"}, {"*"}, {"*"})
#: What the Python package loads.
PACKAGE = {"package_contents"}

#: By pattern of the changed file; the first that fits counts. None: no test, lint always runs.
RULES: list[tuple[str, Selection | None]] = [
    (
        "messaging/src/*|messaging/include/*|messaging/CMakeLists.txt",
        Selection(
            {"messaging."},
            {*PACKAGE, "tests/messaging/all", "bench/messaging/all"},
            {"test_messaging.py", "test_matching.py", "test_bench_messaging.py"},
        ),
    ),
    (
        "messaging/tests/*|lab/bench/messaging/*|examples/messaging/*",
        Selection(
            {"messaging."},
            {*PACKAGE, "tests/messaging/all", "bench/messaging/all", "examples/messaging/all"},
            {"test_bench_messaging.py"},
        ),
    ),
    (
        "offload/*",
        Selection(
            {"nccl.", "preload.mpi"},
            {*PACKAGE, "tests/nccl/all", "tests/mpi/all"},
            {"test_nccl.py", "test_torch.py", "test_mpi_programs*.py"},
            {"*"},
        ),
    ),
    (
        "intercept/src/nccl/*|intercept/tests/nccl/*",
        Selection(
            {"nccl."},
            {*PACKAGE, "tests/nccl/all"},
            {"test_nccl.py", "test_torch.py", "test_doctor_torch.py"},
        ),
    ),
    (
        "intercept/src/mpi/*|tests/mpi/*.cpp|tests/mpi/*.hpp",
        Selection(
            {"preload.mpi"},
            {*PACKAGE, "tests/cuda/all", "tests/mpi/all"},
            {"test_mpi_programs*.py"},
            {"*"},
        ),
    ),
    (
        "intercept/*",
        Selection(
            {"preload.", "cudart_standin.", "nccl."},
            {
                *PACKAGE,
                "tests/cuda/all",
                "tests/nccl/all",
                "tests/cudart_standin/all",
            },
            {"test_run*.py", "test_doctor*.py", "test_torch.py", "test_driver_names.py"},
            {"test_shim.py"},
        ),
    ),
    (
        "lab/src/*|lab/include/*",
        Selection(
            {"core.tuning", "core.c_api", "collectives.tuned", "tune."},
            {*PACKAGE, "test_tuning", "test_c_api", "test_tuned_collectives", "tests/tune/all"},
            {
                "test_bench*.py",
                "test_tune*.py",
                "test_graph_phases.py",
                "test_simulated_figures.py",
            },
        ),
    ),
    ("device/tests/*", Selection({"simt"}, {"tests/simt/all"})),
    (
        "device/*",
        Selection(
            {"simt", "comm.", "collectives.", "messaging.", "uniconn.", "sim."},
            {"*"},
            {
                "test_*messaging.py",
                "test_matching.py",
                "test_*collectives.py",
                "test_*comm.py",
                "test_nccl.py",
                "test_*uniconn.py",
            },
            {"*"},
        ),
    ),
    (
        "uniconn/*|lab/bench/uniconn/*|examples/uniconn/*",
        Selection(
            {"uniconn."},
            {*PACKAGE, "tests/uniconn/all", "bench/uniconn/all", "examples/uniconn/all"},
            {"test_uniconn.py", "test_bench_uniconn.py", "test_tune_backend.py"},
            {"test_uniconn*.py"},
        ),
    ),
    (
        "lab/bench/mpi/*|lab/tests/mpi_bench/*",
        Selection(
            {"mpi_bench."},
            {*PACKAGE, "bench/mpi/all", "tests/mpi_bench/all"},
            {"test_bench_mpi.py", "test_mpi_*.py"},
            {"test_stock.py"},
        ),
    ),
    ("bench/results/*|*.png|LICENSE|.gitignore|.editorconfig|.clang-tidy", None),
    (
        "docs/*|examples/tutorials/*|README.md|CHANGELOG.md|mkdocs.yml|CONTRIBUTING.md|ARCHITECTURE.md",
        Selection(set(), PACKAGE, {"test_docs.py", "test_tutorials.py"}),
    ),
    ("lab/bench/*", Selection({"bench."}, {*PACKAGE, "bench/all"})),
    ("python/*", Selection(set(), PACKAGE, {"*"})),
    ("scripts/*|.ci/*|Makefile", Selection(set(), PACKAGE, {"test_check_layers.py"})),
]


def included_by(root: Path) -> dict[str, set[str]]:
    """For each file of the project: the files that include it, by paths from the root."""
    users: dict[str, set[str]] = defaultdict(set)
    for tree in TREES:
        for file in (root / tree).rglob("*"):
            if file.suffix not in SOURCES:
                continue
            for include in INCLUDE.finditer(file.read_text(encoding="utf-8", errors="replace")):
                if target := resolve(root, file, include[2]):
                    users[str(target.relative_to(root))].add(str(file.relative_to(root)))
    return users


def reached(root: Path, changed: list[str]) -> set[str]:
    """The changed files, and those that include one of them, directly or not."""
    users = included_by(root.resolve())
    affected: set[str] = set()
    waiting = list(changed)
    while waiting:
        name = waiting.pop()
        if name not in affected:
            affected.add(name)
            waiting += users[name]
    return affected


def rule_of(name: str) -> Selection | None:
    """What the rule for a file selects; EVERYTHING where there is none."""
    if match := re.fullmatch(r"tests/(python|mpi)/(test_\w+\.py)", name):
        selection = Selection(set(), set(PACKAGE))
        getattr(selection, match[1]).add(match[2])
        return selection
    for patterns, selection in RULES:
        if any(fnmatch(name, pattern) for pattern in patterns.split("|")):
            return selection
    # A folder of C++ tests without a rule of its own: its tests.
    if match := re.fullmatch(r"(?:\w+/)?tests/(?:(\w+)/)?[^/]*\.[ch]pp", name):
        folder = match[1] or name.split("/")[0]
        if folder not in ("support", "mpi", "python", "examples"):
            return Selection({folder}, {f"tests/{folder}/all"})
    return EVERYTHING


def select(root: Path, changed: list[str]) -> Selection:
    """What the change of these files reaches."""
    selection = Selection()
    for name in reached(root, changed):
        if rule := rule_of(name):
            selection.add(rule)
    return selection


def changed_since(root: Path, revision: str) -> list[str]:
    """Files that differ from `revision`, those that git does not know yet among them."""

    def git(*arguments: str) -> list[str]:
        output = subprocess.run(
            ["git", "-C", root, *arguments], check=True, capture_output=True, text=True
        )
        return output.stdout.split("\n")[:-1]

    base = git("merge-base", revision, "HEAD")[0]
    return sorted(
        {*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")}
    )


def main() -> int:
    root = Path(__file__).parents[1]
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    selection = select(root, changed_since(root, sys.argv[1]))

    def files(kind: str) -> str:
        patterns = getattr(selection, kind)
        if "*" in patterns:
            return "*"
        tests = sorted((root / "tests" / kind).glob("test_*.py"))
        return " ".join(
            f"tests/{kind}/{t.name}" for t in tests if any(fnmatch(t.name, p) for p in patterns)
        )

    def all_or(values: set[str], text: str) -> str:
        return "*" if "*" in values else text

    prefixes = "|".join(re.escape(prefix) for prefix in sorted(selection.ctest))
    print("ctest=" + all_or(selection.ctest, f"^({prefixes})" if prefixes else ""))
    print("targets=" + all_or(selection.targets, " ".join(sorted(selection.targets))))
    print("python=" + files("python"))
    print("mpi=" + files("mpi"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
