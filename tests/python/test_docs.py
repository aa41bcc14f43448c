"""The documentation tells the truth: its commands print what it says, its programs run."""

import inspect
import re

import doc_examples
import pytest
from polypath import Context


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        example
        for document in (doc_examples.COMMANDS, doc_examples.OVERHEADS, doc_examples.TUNING)
        for example in doc_examples.commands(document.read_text())
    ],
)
def test_commands(start_python, command, expected):
    if why := doc_examples.cannot_run(command):
        pytest.skip(why)
    assert words(doc_examples.output(command, start_python)) == words(expected), (
        "run `python tests/python/doc_examples.py` to write the examples anew"
    )


def words(text):
    """The words of lines without figures: those may change with every improvement of the planner,
    and with them the widths of columns, and where the text below a table breaks its lines."""
    lines = (re.sub(r"─+", "─", line) for line in text.splitlines())
    return [word for line in lines if not re.search(r"\d", line) for word in line.split()]


def test_every_command_has_an_example():
    examples = [command for command, _ in doc_examples.commands(doc_examples.COMMANDS.read_text())]
    for name in (
        "topo",
        "nodes",
        "plan",
        "bench",
        "bench allreduce",
        "bench graph-phases",
        "bench mpi",
        "bench jacobi",
        "bench uniconn",
        "bench messaging",
        "tune",
        "tune backend",
        "info -c",
        "info -d",
        "demo",
        "run",
        "doctor",
    ):
        assert any(example.startswith(f"polypath {name}") for example in examples), name


def test_the_methods_of_a_context_are_described_as_they_are():
    text = doc_examples.PROGRAMS.read_text()
    methods = {name: one for name, one in vars(Context).items() if inspect.isfunction(one)}
    for name in methods:
        assert name.startswith("_") or f"{name}(" in text, name
    for name, parameters in re.findall(r"^\| `(\w+)\((.*?)\)`", text, re.MULTILINE):
        described = re.findall(r"\w+", parameters)
        assert described == [*inspect.signature(methods[name]).parameters][1:], name


@pytest.mark.parametrize("program", doc_examples.programs(doc_examples.PROGRAMS.read_text()))
def test_programs(start_python, program):
    done = doc_examples.run(["-c", program], start_python)
    assert done.returncode == 0, done.stderr
