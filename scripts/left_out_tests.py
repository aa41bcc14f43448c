#!/usr/bin/env python3
"""Finds the C++ tests that a run of a build folder leaves out: left_out_tests.py FOLDER [OTHER].

These are the tests with the label `soak`, and the tests that run in OTHER as well, by the same
command and in the same environment. Prints two lines:

    exclude  a regular expression of the names of these tests
    targets  the targets of FOLDER without the programs that only these tests need
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

# CMake writes a name as it is, in quotes, or in brackets, [=[name]=], with more signs where it has
# some.
TEST = re.compile(
    r"^add_test\((?:\[=*\[|\")?([^\s\"\]]+)(?:\]=*\]|\")? (.*?)\)\n"
    r"set_tests_properties\([^\n]*? PROPERTIES (.*?)\)\n",
    re.DOTALL | re.MULTILINE,
)
ENVIRONMENT = re.compile(r'ENVIRONMENT "([^"]*)"')
LABELS = re.compile(r'LABELS "([^"]*)"')


class Test(NamedTuple):
    command: str
    environment: frozenset[str]
    is_soak: bool


def tests_of(folder: Path) -> dict[str, Test]:
    """By name, with the folder's own path left out."""
    tests_by_name = {}
    for file in folder.rglob("CTestTestfile.cmake"):
        text = file.read_text(encoding="utf-8")
        tests = TEST.findall(text)
        if len(tests) != len(re.findall("^add_test", text, re.MULTILINE)):
            # The program of a test that is passed over would not be built.
            sys.exit(f"left_out_tests.py: {file} has tests that it cannot read")
        for name, command, properties in tests:
            values = ENVIRONMENT.search(properties)
            # Options of sanitizers mean nothing to a program without them.
            environment = (v for v in (values[1].split(";") if values else ()) if "ASAN" not in v)
            labels = LABELS.search(properties)
            tests_by_name[name] = Test(
                # Its CPU time is written down by the name of the folder.
                command.replace(f"{folder}/", "").replace(f'"{folder.name}" ', "", 1),
                frozenset(v.replace(f"{folder}/", "") for v in environment),
                labels is not None and "soak" in labels[1].split(";"),
            )
    return tests_by_name


def expand(phony: dict[str, list[str]], target: str) -> list[str]:
    """What a target of groups stands for; folders' own groups of tests are taken apart."""
    if not (target == "all" or re.fullmatch(r"tests(/\w+)*/all", target)):
        return [target]
    return [part for group in phony.get(target, []) for part in expand(phony, group)]


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    folder, *others = (Path(argument).resolve() for argument in sys.argv[1:])
    tests = tests_of(folder)
    excluded = {name for name, test in tests.items() if test.is_soak}
    for other in others:
        other_tests = tests_of(other)
        excluded |= {name for name, test in tests.items() if other_tests.get(name) == test}

    def programs(names: set[str]) -> set[str]:
        return {p for name in names for p in re.findall(r'"(bin/\w+)"', tests[name].command)}

    unneeded = programs(excluded) - programs(set(tests) - excluded)
    phony = {
        match[1]: match[2].split()
        for match in re.finditer(
            r"^build (\S*all): phony(.*)$", (folder / "build.ninja").read_text(), re.MULTILINE
        )
    }
    print("exclude=^(" + "|".join(map(re.escape, sorted(excluded))) + ")$")
    print("targets=" + " ".join(t for t in expand(phony, "all") if t not in unneeded))
    return 0


if __name__ == "__main__":
    sys.exit(main())
