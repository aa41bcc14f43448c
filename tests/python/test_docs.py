"""The documentation tells the truth: its commands print what it says, its programs run."""

import doc_examples
import pytest


@pytest.mark.parametrize(
    ("command", "expected"), doc_examples.commands(doc_examples.COMMANDS.read_text())
)
def test_commands(command, expected):
    assert doc_examples.output(command) == expected, (
        "run `python tests/python/doc_examples.py` to write the examples anew"
    )


def test_every_command_has_an_example():
    examples = [command for command, _ in doc_examples.commands(doc_examples.COMMANDS.read_text())]
    for name in ("topo", "nodes", "plan", "bench", "info -c", "info -d", "demo"):
        assert any(example.startswith(f"polypath {name}") for example in examples), name


@pytest.mark.parametrize("program", doc_examples.programs(doc_examples.PROGRAMS.read_text()))
def test_programs(program):
    done = doc_examples.run(["-c", program])
    assert done.returncode == 0, done.stderr
