"""Every tutorial of docs/tutorials runs on a simulated node, and its page quotes it as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from polypath._library import find_library

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "examples" / "tutorials"
PAGES = sorted((ROOT / "docs" / "tutorials").glob("[0-9]*.md"))


@pytest.fixture
def run(tmp_path):
    """Runs a tutorial in the source tree. `polypath` and `python` are those of this test."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "python").symlink_to(sys.executable)
    (commands / "polypath").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m polypath "$@"\n')
    (commands / "polypath").chmod(0o755)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("POLYPATH_") or name == "POLYPATH_LIBRARY"
    }
    environment = {
        **inherited,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "POLYPATH_BUILD": str(find_library().parent),
        "CUDA_VISIBLE_DEVICES": "",
    }

    def run(*command: str | Path, **settings: str) -> str:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**environment, **settings},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_00_shows_node_plan_and_bench(run):
    output = run("sh", TUTORIALS / "00_node_and_plan.sh")
    assert "NVLink full mesh" in output
    assert output.count("predicted") == 2
    # The second plan may not use host memory.
    assert "via host0   not allowed" in output
    assert re.search(r"16M .* yes", output), "the bench compares every byte"


def test_01_splits_copies_of_unmodified_program(run):
    output = run("sh", TUTORIALS / "01_unmodified_program.sh")
    whole, split = output.split("polypath is loaded\n", 2)[1:]
    assert output.count("all bytes equal") == 2
    assert "cuMemcpyAsync: 2 calls" in split
    assert "2 issued over several routes" in split
    assert "pageable memory: 2 transfers by 4 CPU threads" in split
    assert "gpu0 to gpu1, via gpu2" in split
    assert "via gpu2" not in whole, "--routes direct splits nothing"


def test_02_copies_from_python(run):
    output = run(sys.executable, TUTORIALS / "02_copies.py", POLYPATH_NODE="narval")
    assert "via gpu2" in output
    assert "split copies: 1\n" in output
    assert output.endswith("bytes copied and compared\n")


def test_03_copies_from_cpp(run, tmp_path):
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    headers = find_cuda_headers()
    if headers is None:
        pytest.skip("there is no cuda.h")
    library = find_library()
    if not library.with_name("libpolypath_sim.so").exists():
        pytest.skip("there is no simulated driver beside the library")
    run(
        *(
            compiler,
            "-std=c++20",
            f"-I{library.parent / 'include'}",
            f"-I{headers}",
        ),
        *(TUTORIALS / "03_copies.cpp", f"-L{library.parent}", f"-Wl,-rpath,{library.parent}"),
        *("-lpolypath", "-lpolypath_sim", "-o", tmp_path / "copies"),
    )
    output = run(tmp_path / "copies", POLYPATH_NODE="narval")
    assert "bytes copied and compared" in output
    assert "via gpu2" in output, "the counters name the routes"


def find_cuda_headers() -> Path | None:
    """The folder of cuda.h: of the wheel that the library is built with, or of a toolkit."""
    wheels = sorted(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/include"))
    candidates = [*wheels, Path("/usr/local/cuda/include")]
    return next((folder for folder in candidates if (folder / "cuda.h").exists()), None)


def test_04_sums_have_same_bits(run):
    output = run(sys.executable, TUTORIALS / "04_collectives.py", POLYPATH_NODE="narval")
    assert output == "4 ranks have the bits of the sequential sum of 4096 elements\n"


def test_05_kernels_share_work_by_queue(run):
    program = find_library().parent / "bin" / "messaging_queens"
    if not program.exists():
        pytest.skip("the examples of messaging are not built")
    output = run("sh", TUTORIALS / "05_kernels.sh")
    assert '"solutions": 4' in output


def test_05_matches_in_order_of_mpi(run):
    output = run(sys.executable, TUTORIALS / "05_matching.py")
    assert "2 matches" in output


def test_pages_name_every_tutorial_file():
    pages = (ROOT / "docs" / "tutorials").glob("*.md")
    text = "".join(page.read_text() for page in pages)
    for file in TUTORIALS.iterdir():
        assert not file.is_file() or f"examples/tutorials/{file.name}" in text, file.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_quotes_its_source(page):
    """A fence after `<!-- from FILE -->` holds consecutive lines of FILE, with any indent."""
    text = page.read_text()
    quotes = re.findall(r"^<!-- from (\S+) -->\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert quotes, "no quotation"
    assert len(quotes) == text.count("<!-- from ")
    for name, quote in quotes:
        assert unindented(quote) in unindented((ROOT / name).read_text()), f"{name}:\n{quote}"


def unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
