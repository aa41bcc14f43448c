#!/usr/bin/env python3
"""Checks the figures of docs/ways.md: the source files that one call passes.

A figure is a fence whose first line is `NAME: N files`; rows follow, with names of files as
`#include` lines have them. Each name must be that of one file of the parts, and be there once in
its figure, and N must be their number. Checks also that each source that ARCHITECTURE.md names in
backticks is there.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from check_layers import PARTS, sources

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/ways.md"
OVERVIEW = ROOT / "ARCHITECTURE.md"
NAME = re.compile(r"[\w/]+\.(?:cpp|hpp|cuh|cu|h|S|def)\b")
FIGURE = re.compile(r"^```text\n([^\n]+): (\d+) files\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files_named(name: str) -> list[Path]:
    """The files of the parts that a name means, as in an include line."""
    folders = [ROOT / part / kind for part in PARTS for kind in ("src", "include/polypath")]
    return [file for folder in folders if (file := folder / name).is_file()]


def problems_of_page(text: str) -> list[str]:
    problems = []
    figures = FIGURE.findall(text)
    if not figures:
        problems.append("no figure")
    for call, count, rows in figures:
        names = NAME.findall(rows)
        for name in names:
            if len(files := files_named(name)) != 1:
                problems.append(f"{call}: {name} means {len(files)} files")
        for name in sorted({name for name in names if names.count(name) > 1}):
            problems.append(f"{call}: {name} is there {names.count(name)} times")
        if len(names) != int(count):
            problems.append(f"{call}: says {count} files, and has {len(names)}")
    return problems


def problems_of_overview(text: str) -> list[str]:
    paths = [f"/{file.relative_to(ROOT)}" for file in sources(ROOT, "tests", "python")]
    return [
        f"no file {name}"
        for name in re.findall(rf"`({NAME.pattern})`", text)
        if not any(path.endswith(f"/{name}") for path in paths)
    ]


def main() -> int:
    problems = [
        *(f"{PAGE.name}: {problem}" for problem in problems_of_page(PAGE.read_text("utf-8"))),
        *(
            f"{OVERVIEW.name}: {problem}"
            for problem in problems_of_overview(OVERVIEW.read_text("utf-8"))
        ),
    ]
    print("\n".join(problems) or "ways of calls: all files are there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
