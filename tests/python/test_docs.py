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
    methods = {name: method for name, method in vars(Context).items() if inspect.isfunction(method)}
    for name in methods:
        assert name.startswith("_") or f"{name}(" in text, name
    for name, parameters in re.findall(r"^\| `(\w+)\((.*?)\)`", text, re.MULTILINE):
        described = re.findall(r"\w+", parameters)
        assert described == [*inspect.signature(methods[name]).parameters][1:], name


@pytest.mark.parametrize("program", doc_examples.programs(doc_examples.PROGRAMS.read_text()))
def test_programs(start_python, program):
    done = doc_examples.run(["-c", program], start_python)
    assert done.returncode == 0, done.stderr


README = doc_examples.ROOT / "README.md"
PAGES = sorted([*doc_examples.ROOT.glob("*.md"), *doc_examples.DOCS.rglob("*.md")])
#: What `make docs` writes from other sources.
GENERATED = {"settings.md", "commands.md", "python-api.md", "api.md", "adr/index.md"}


def test_readme_is_short_and_begins_with_both_commands():
    """scripts/check_setup.sh runs the two commands of the first block."""
    text = README.read_text()
    assert len(text.splitlines()) <= 90
    commands = re.search(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert commands
    lines = [line.split("#")[0].strip() for line in commands[1].splitlines()]
    assert lines == ["make demo", ".venv/bin/polypath run -- ./your-app"]
    assert "make test" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(doc_examples.ROOT)))
def test_links_resolve(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", without_fences(page.read_text())):
        file = page.parent / target
        generated = file.resolve().is_relative_to(doc_examples.DOCS) and (
            str(file.resolve().relative_to(doc_examples.DOCS)) in GENERATED
        )
        assert file.exists() or generated, target


def without_fences(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_navigation_names_every_page_once():
    """Readers find only pages of the navigation; single decisions are on a page of their own."""
    named = re.findall(
        r": (\S+\.md)$", (doc_examples.ROOT / "mkdocs.yml").read_text(), re.MULTILINE
    )
    pages = {str(page.relative_to(doc_examples.ROOT)) for page in PAGES}
    decisions = {name for name in pages if name.startswith("docs/adr/")}
    generated = {f"docs/{name}" for name in GENERATED}
    assert sorted(named) == sorted((pages - decisions) | generated)
