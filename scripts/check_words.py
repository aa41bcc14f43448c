#!/usr/bin/env python3
"""Checks names and prose against the rules of CONTRIBUTING.md: check_words.py [--write | --show].

Rules see code (without comments and strings), text (comments, docstrings, Markdown outside code),
pages (README.md and docs) or tests. A line with `words: ok` is exempt. scripts/words.toml holds how
many hits a file had when the rules came; a file may have fewer, and never more.

--write: lowers the numbers of words.toml to what the files have now. --show: prints all hits.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ALLOWED = ROOT / "scripts/words.toml"
C_SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".def"}
#: Results of measurements, and records of past decisions, stay as they were written.
EXCLUDED = ("bench/results/", "docs/adr/", "CHANGELOG.md", "scripts/check_words.py")
MAX_WORDS = 30
MAX_COLUMNS = 100

Lines = list[tuple[int, str]]


class Rule(NamedTuple):
    name: str
    where: str  # "code", "text" or "tests"
    pattern: re.Pattern[str]


PRONOUNS = (
    r"its|of|with|came|told|one|mine|theirs|them|that|so|whose|nobody|everybody|said|made|found"
    r"|given|wanted"
)
PEOPLE = "(?<!people )(?<!users )(?<!developers )"
ARTICLES = "A|An|The|What|Who|Of|One|That|Those|Where|Is|Are|Has|May"
RULES = [
    Rule("pronoun", "code", re.compile(rf"(?<![\w.>])({PRONOUNS})\b")),
    Rule("limit", "code", re.compile(r"\bk(Most|Least)\w*|\b(most|least)_\w+")),
    Rule(
        "house word",
        "code",
        re.compile(
            r"\w*([Tt]win|[Pp]atience|[Pp]lanted|[Rr]ung|[Ll]adder|[Cc]arrier|gave_up|let_go|give_back"
            r"|hand_over|at_hand)\w*"
        ),
    ),
    Rule("fronted genitive", "text", re.compile(r"^\W*(Of|Those|Whoever|Who)\b")),
    # Not options, keys and file names: --beside, `beside`, 0031-begin-beside-kernels.md.
    Rule("behind, beside", "text", re.compile(r"(?<![-`])\b([Bb]ehind|[Bb]eside)\b(?![-`])")),
    Rule("free relative", "text", re.compile(PEOPLE + r"\b([Ww]ho(ever|m)?|[Ww]h(at|ich)ever)\b")),
    Rule("so many", "text", re.compile(r"\bso (many|much|long|few)\b(?! as)")),
    Rule(
        "is to",
        "text",
        re.compile(r"\b(is|are|was|were) to (?!the\b|a\b|an\b|rank\b|memory\b)\w+"),
    ),
    Rule("person", "text", re.compile(r"\b([Nn]o|[Ee]very|[Ss]ome|[Aa]ny)body\b")),
    Rule("reference", "text", re.compile(r"\b[Ll]ikewise\b|\bThe same( of|,)")),
    Rule(
        "idiom",
        "text",
        re.compile(
            r"\bg(ives?|ave|iven?) up\b|\bhand(s|ed)? over\b|\blet(s|ting)? go\b"
            r"|\bat the (most|least|latest)\b|\bfor (ever|good)\b"
        ),
    ),
    Rule(
        "double genitive",
        "text",
        re.compile(
            r"\b(of|by|from) (NCCL|MPI|UCX|UNICONN|polypath|CUDA|torch|the program|the caller)'s\b"
        ),
    ),
    Rule(
        "test name",
        "tests",
        re.compile(rf"^TEST\w*\(\w+,\s*(\w{{41,}}|({ARTICLES})[A-Z]\w*)|def test_\w{{51,}}"),
    ),
]

COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])\'', re.DOTALL
)


def split_c(source: str) -> tuple[Lines, Lines]:
    """Code and comments, by line; strings are in neither."""
    comments: Lines = []

    def take(match: re.Match[str]) -> str:
        first = source.count("\n", 0, match.start()) + 1
        if match[0].startswith("/"):
            comments.extend(enumerate(match[0].splitlines(), first))
        return "\n" * match[0].count("\n")

    code = COMMENT_OR_STRING.sub(take, source)
    return list(enumerate(code.splitlines(), 1)), comments


def split_python(source: str) -> tuple[Lines, Lines]:
    """Names, one an entry; comments and strings that are statements. Names that the file imports
    from a foreign package (hypothesis.given) are not checked."""
    imports = re.findall(
        r"^from (?!polypath\b)[a-z]\w*(?:\.\w+)* import ([\w, ]+)$", source, re.MULTILINE
    )
    foreign = {name.strip() for names in imports for name in names.split(",")}
    code: Lines = []
    text: Lines = []
    is_start = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.string not in {"with", *foreign}:
            code.append((token.start[0], token.string))
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and is_start):
            text.extend(enumerate(token.string.splitlines(), token.start[0]))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            is_start = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return code, text


def split_markdown(source: str) -> Lines:
    """The lines outside code."""
    text: Lines = []
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            text.append((number, line))
    return text


def long_sentences(text: Lines) -> Iterator[tuple[int, str]]:
    """Sentences outside tables that are longer than MAX_WORDS, and lines that are too wide."""
    words = 0
    for number, line in text:
        if line.lstrip().startswith(("|", "#")) or not line.strip():
            words = 0
            continue
        if len(line) > MAX_COLUMNS:
            yield number, "wide line"
        if re.match(r"\s*(?:[-*]|\d+\.) ", line):
            words = 0
        for part in re.split(r"(?<=[.:?!])(?:\s|$)", re.sub(r"\]\([^)]*\)", "]", line)):
            words += len(part.split())
            if words > MAX_WORDS:
                yield number, "long sentence"
                words = -MAX_COLUMNS  # once
            if re.search(r"[.:?!]$", part):
                words = 0


def hits_in(path: str, source: str) -> Iterator[tuple[int, str, str]]:
    """(line, rule, what) of each hit."""
    suffix = Path(path).suffix
    code, text = [], []
    if suffix in C_SUFFIXES:
        code, text = split_c(source)
    elif suffix == ".py":
        code, text = split_python(source)
    elif suffix == ".md":
        text = split_markdown(source)
        if path == "README.md" or path.startswith("docs/"):
            yield from ((number, name, "") for number, name in long_sentences(text))
    exempt = {n for n, line in enumerate(source.splitlines(), 1) if "words: ok" in line}
    tests = list(enumerate(source.splitlines(), 1)) if "tests" in Path(path).parts else []
    lines = {"code": code, "text": text, "tests": tests}
    for rule in RULES:
        for number, line in lines[rule.where]:
            for match in rule.pattern.finditer(line):
                if number not in exempt and not (match[0] == "found" and "not found" in line):
                    yield number, rule.name, match[0]


def main() -> int:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    allowed = tomllib.loads(ALLOWED.read_text(encoding="utf-8")) if ALLOWED.exists() else {}
    now: dict[str, int] = {}
    status = 0
    for path in listed.stdout.splitlines():
        if path.startswith(EXCLUDED) or Path(path).suffix not in C_SUFFIXES | {".py", ".md"}:
            continue
        if not (ROOT / path).is_file():
            continue
        hits = sorted(hits_in(path, (ROOT / path).read_text(encoding="utf-8")))
        if hits:
            now[path] = len(hits)
        is_worse = len(hits) > allowed.get(path, 0)
        if "--show" in sys.argv or (is_worse and "--write" not in sys.argv):
            for number, name, what in hits:
                print(f"{path}:{number}: {name}: {what}" if what else f"{path}:{number}: {name}")
        if is_worse and "--write" not in sys.argv:
            print(f"{path}: {len(hits)} hits, {allowed.get(path, 0)} allowed (scripts/words.toml)")
            status = 1
    if "--write" in sys.argv:
        known = ALLOWED.exists()
        kept = {p: min(n, allowed.get(p, 0 if known else n)) for p, n in sorted(now.items())}
        rows = [f'"{path}" = {count}' for path, count in kept.items() if count]
        head = (
            "# Hits of scripts/check_words.py that each file still has; they may only become fewer."
        )
        ALLOWED.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    print(f"words: {sum(now.values())} hits in {len(now)} files, {sum(allowed.values())} allowed")
    return status


if __name__ == "__main__":
    sys.exit(main())
