#!/usr/bin/env python3
"""Doxygen's INPUT_FILTER: prints a public header with its comments as Doxygen knows them.

The headers have plain comments: `/* ... */` before a declaration or after a member in C, `//` at
the top of C++ headers. Warnings name the line after the right one, because `@file` takes a line.
"""

import re
import sys
from pathlib import Path

#: A comment that begins a line or follows code, and is no title (/* ---- ...).
_COMMENT = re.compile(r"^(?P<code>[^\n]*?)/\*(?= (?!----))", re.MULTILINE)
#: The comment at the top of a C++ header.
_HEAD = re.compile(r"(//.*\n)+")


def c_comments(text: str) -> str:
    def doxygen(match: re.Match[str]) -> str:
        return f"{match['code']}/**{'<' if match['code'].strip() else ''}"

    return _COMMENT.sub(doxygen, text)


def head_of_file(text: str) -> str:
    if text.startswith("/**"):
        return text.replace("/**", "/** @file\n *", 1)
    if head := _HEAD.match(text):
        lines = "".join(f"/{line}\n" for line in head[0].splitlines())
        return f"/// @file\n{lines}{text[head.end() :]}"
    return text


def main() -> None:
    file = Path(sys.argv[1])
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".h":
        text = c_comments(text)
    sys.stdout.write(head_of_file(text))


if __name__ == "__main__":
    main()
