"""scripts/check_words.py: what each rule finds, and what it leaves alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from check_words import hits_in


def rules(path: str, source: str) -> list[str]:
    return [name for _, name, _ in hits_in(path, source)]


@pytest.mark.parametrize(
    ("path", "source", "rule"),
    [
        ("src/a.cpp", "int found = 0;\n", "pronoun"),
        ("a.py", "wanted = 1\n", "pronoun"),
        ("src/a.cpp", "constexpr int kMostRanks = 8;\n", "limit"),
        ("src/a.cpp", "class Carrier;\n", "house word"),
        ("src/a.cpp", "/// Of nothing, nothing is sent.\n", "fronted genitive"),
        ("a.py", '"""Events behind the copy."""\n', "behind, beside"),
        ("src/a.cpp", "/* Whoever reads it. */\n", "fronted genitive"),
        ("src/a.cpp", "// the rank who reads it\n", "free relative"),
        ("docs/a.md", "It takes so many bytes.\n", "so many"),
        ("docs/a.md", "The route is to carry it.\n", "is to"),
        ("docs/a.md", "Nobody waits.\n", "person"),
        ("docs/a.md", "Likewise for graphs.\n", "reference"),
        ("docs/a.md", "A wait gives up.\n", "idiom"),
        ("docs/a.md", "a communicator of NCCL's\n", "double genitive"),
        ("docs/a.md", "one two three four five " * 7 + "end.\n", "long sentence"),
        ("docs/a.md", "x" * 101 + "\n", "wide line"),
        ("tests/a.cpp", "TEST(Queue, WhatIsPushedComes) {\n", "test name"),
        ("tests/a.cpp", f"TEST_F(Queue, {'Long' * 11}) {{\n", "test name"),
        ("tests/a.py", f"def test_{'long' * 13}():\n", "test name"),
    ],
)
def test_a_hit(path, source, rule):
    assert rule in rules(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("src/a.cpp", 'log("found"); // count\n'),
        ("src/a.cpp", "entry.found = it->found;\n"),
        ("src/a.cpp", "int found = 0;  // words: ok\n"),
        ("src/a.cpp", "/// for users who read it\n"),
        ("docs/a.md", "```\nNobody waits.\n```\n"),
        ("docs/a.md", "| " + "word " * 40 + "|\n"),
        ("docs/a.md", "- " + "word " * 19 + "\n- " + "word " * 13 + "\n"),
        ("tests/a.cpp", "TEST(Queue, Full_PushWaits) {\n"),
        ("a.py", "with open(name) as file:\n    pass\n"),
    ],
)
def test_no_hit(path, source):
    assert rules(path, source) == []
