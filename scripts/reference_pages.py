#!/usr/bin/env python3
"""Writes the pages that the program itself knows best, as Markdown into the folder given: its
settings and its command line; and the C API as it stands in the header."""

import subprocess
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


def command_line_page() -> str:
    command = [sys.executable, "-m", "typer", "polypath.cli", "utils", "docs", "--name", "polypath"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def c_api_page() -> str:
    header = (ROOT / "include" / "polypath" / "polypath.h").read_text(encoding="utf-8")
    return f"# C API\n\n```c\n{header}```\n"


def main() -> None:
    folder = Path(sys.argv[1])
    pages = {
        "settings.md": settings_page(),
        "command-line.md": command_line_page(),
        "c-api.md": c_api_page(),
    }
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
