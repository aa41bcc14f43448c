#!/usr/bin/env python3
"""Checks build folders of single parts: check_parts.py FOLDER...

Each folder is one that CMake configured for a part alone (`cmake -S PART -B FOLDER`), for which it
wrote its file API's codemodel: scripts/check_configure.sh does both. Checks that

- all targets are of the part and of parts that the dependency rule (check_layers.py) allows,
- no compiler searches the headers of another part,
- the default target builds what is the part's own, and of others only what that needs,
- with tests, ctest runs those of the part, and no others,
- no source of any part includes a public header of a part that its own does not depend on.

With tests, targets and headers can be of any part: tests use what is above, too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from check_layers import INCLUDE, PARTS, RULES, SOURCES, part_of, resolve, sources

ROOT = Path(__file__).resolve().parents[1]

#: Parts that a part calls through the C API or has in its library. It includes no more of them than
#: public headers.
LIBRARIES = {
    "intercept": {"offload", "uniconn"},
    "plugins": {"engine"},
    "lab": {"messaging", "uniconn"},
}
#: What is of no part: the project's own modules and packages.
SHARED = {"cmake", "tests", ".venv", "build"}


def allowed_parts(root: Path) -> dict[str, set[str]]:
    """For each part: itself, and those that it may depend on, directly or not."""
    folders: dict[str, set[str]] = {part: set() for part in PARTS}  # keys of RULES
    for file in sources(root):
        if file.suffix in SOURCES:
            path = file.relative_to(root)
            folders[path.parts[0]].add(part_of(path))
    owners = {key: part for part, keys in folders.items() for key in keys if key != "api"}
    allowed = {
        part: {part}
        | {owners[other] for key in keys for other in RULES.get(key, ()) if other in owners}
        | LIBRARIES.get(part, set())
        for part, keys in folders.items()
    }
    for _ in PARTS:  # what these depend on
        for parts in allowed.values():
            parts |= set().union(*(allowed[part] for part in parts))
    return allowed


def part_of_file(file: str, folder: Path) -> str | None:
    """The first folder below ROOT of a file; None for files of the build and of the system."""
    path = Path(file)
    if path.is_relative_to(folder) or not path.is_relative_to(ROOT):
        return None
    top = path.relative_to(ROOT).parts[:1]
    return top[0] if top and top[0] not in SHARED else None


def targets_of(folder: Path) -> tuple[Path, list[dict]]:
    """The source folder, and the targets as the file API describes them."""
    replies = folder / ".cmake/api/v1/reply"
    model = json.loads(next(replies.glob("codemodel-v2-*.json")).read_text(encoding="utf-8"))
    (configuration,) = model["configurations"]
    texts = [
        (replies / target["jsonFile"]).read_text(encoding="utf-8")
        for target in configuration["targets"]
    ]
    return Path(model["paths"]["source"]), [json.loads(text) for text in texts]


def tests_of(folder: Path) -> list[tuple[str, str]]:
    """The tests that ctest runs: name, and the part whose CMakeLists.txt adds it."""
    command = ["ctest", "--test-dir", str(folder), "--show-only=json-v1"]
    document = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    graph = document["backtraceGraph"]
    tests = []
    for test in document["tests"]:
        if "backtrace" not in test:  # of gtest_discover_tests(): known when the program is built
            continue
        node = graph["nodes"][test["backtrace"]]
        while not graph["files"][node["file"]].endswith("CMakeLists.txt"):
            node = graph["nodes"][node["parent"]]
        file = Path(graph["files"][node["file"]])
        tests.append((test["name"], part_of_file(str(file), folder) or str(file)))
    return tests


def problems_of(folder: Path, allowed: dict[str, set[str]]) -> list[str]:
    source, targets = targets_of(folder)
    part = source.name
    has_tests = (folder / "tests").is_dir()
    expected = set(PARTS) if has_tests else allowed[part]
    problems = []
    for target in targets:
        place = str((source / target["paths"]["source"]).resolve())
        if (other := part_of_file(place, folder)) not in expected | {None}:
            problems.append(f"{part} alone has the target {target['name']} of {other}")
        for group in [] if has_tests else target.get("compileGroups", []):
            for include in group.get("includes", []):
                path = str(Path(include["path"]).resolve())
                if (other := part_of_file(path, folder)) not in expected | {None}:
                    problems.append(f"{target['name']} of {part} alone sees headers of {other}")
    ninja = (folder / "build.ninja").read_text(encoding="utf-8")
    everything = re.search(r"^build all: phony(.*)$", ninja, re.MULTILINE)
    assert everything
    for built in re.findall(r" (\w+)/all\b", everything[1]):
        if built in PARTS and built != part:
            problems.append(f"the default target of {part} alone is all of {built}, too")
    tests = tests_of(folder) if has_tests else []
    problems += [
        f"with tests, {part} alone runs {name} of {other}" for name, other in tests if other != part
    ]
    if has_tests and not tests and any((ROOT / part / "tests").rglob("CMakeLists.txt")):
        problems.append(f"with tests, {part} alone has none")
    return sorted(set(problems))


def includes_from_above(root: Path, allowed: dict[str, set[str]]) -> list[str]:
    """One line for each include of a part that the file's own part does not depend on."""
    problems = []
    for file in sources(root):
        path = file.relative_to(root)
        if file.suffix not in SOURCES:
            continue
        for include in INCLUDE.finditer(file.read_text(encoding="utf-8")):
            target = resolve(root, file, include[2])
            if (
                target
                and (other := target.relative_to(root).parts[0]) not in allowed[path.parts[0]]
            ):
                problems.append(f"{path} includes {include[2]} of {other}")
    return problems


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    allowed = allowed_parts(ROOT)
    folders = [Path(name).resolve() for name in sys.argv[1:]]
    problems = includes_from_above(ROOT, allowed)
    problems += [problem for folder in folders for problem in problems_of(folder, allowed)]
    print("\n".join(problems) or f"parts alone: {len(folders)} as the dependency rule says")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
