#!/usr/bin/env python3
"""Writes two pages, as Markdown into the folder given, that have their source elsewhere: the
settings (from the library's table) and the C API (from its header)."""

import sys
from pathlib import Path

import polypath

ROOT = Path(__file__).parents[1]


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "A call's argument comes before the environment, that before the default. "
        "`polypath info -c` prints each with its value and where that came from.",
        "",
        "| setting | environment | default | allowed | meaning |",
        "|---|---|---|---|---|",
    ]
    for row in polypath.settings():
        default = f"`{row['default']}`" if row["default"] else ""
        lines.append(
            f"| `{row['name']}` | `{row['environment']}` | {default} "
            f"| {row['allowed']} | {row['meaning']} |"
        )
    return "\n".join(lines) + "\n"


def c_api_page() -> str:
    header = (ROOT / "include" / "polypath" / "polypath.h").read_text(encoding="utf-8")
    return f"# C API\n\n```c\n{header}```\n"


def main() -> None:
    folder = Path(sys.argv[1])
    pages = {
        "settings.md": settings_page(),
        "c-api.md": c_api_page(),
    }
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
