#!/usr/bin/env python3
"""Copies all that the site shows into the folder given. Relative links hold there as in the
repository; a link to a folder becomes one to its README.md, which lists the files where there
is none."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from check_layers import PARTS

ROOT = Path(__file__).parents[1]
#: Folders that pages refer to.
FOLDERS = (
    "docs",
    "include",
    "examples",
    "nodes",
    "bench/results",
    *(f"{p}/include" for p in PARTS),
)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+?)/?\)")


def list_files(folder: Path) -> None:
    lines = [f"# {folder.name}", "", "Files of this run:", ""]
    lines += [f"- [{file.name}]({file.name})" for file in sorted(folder.iterdir())]
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def link_folders(page: Path) -> None:
    """Turns links to folders into links to their README.md."""

    def to_readme(match: re.Match[str]) -> str:
        target = (page.parent / match[1]).resolve()
        if not target.is_dir():
            return match[0]
        if not (target / "README.md").exists():
            list_files(target)
        return f"]({match[1]}/README.md)"

    text = page.read_text(encoding="utf-8")
    changed = _LINK.sub(to_readme, text)
    if changed != text:
        page.write_text(changed, encoding="utf-8")


def main() -> None:
    pages = Path(sys.argv[1])
    for folder in FOLDERS:
        if not (ROOT / folder).is_dir():
            continue  # of a part without public headers
        shutil.copytree(ROOT / folder, pages / folder)
    for file in (*ROOT.glob("*.md"), ROOT / "LICENSE"):
        shutil.copy(file, pages)
    for page in pages.rglob("*.md"):
        link_folders(page)


if __name__ == "__main__":
    main()
