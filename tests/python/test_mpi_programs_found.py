"""Where the programs of MPI, and the MPI to start them, are looked for."""

import os
import sys
from pathlib import Path

import pytest
from polypath.mpi import runs as programs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder; `scripts/mpi_env.sh` and the PATH of the machine are out of sight."""
    monkeypatch.setattr(programs, "_SCRIPT", tmp_path / "scripts" / "mpi_env.sh")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


def make(file, text=""):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(
    ("library", "program"),
    [
        ("build/release/libpolypath.so", "build/release/bin/jacobi"),
        ("usr/lib/libpolypath.so", "usr/libexec/polypath/jacobi"),
        ("usr/lib/x86_64-linux-gnu/libpolypath.so", "usr/libexec/polypath/jacobi"),
    ],
)
def test_programs_lie_with_the_library(folder, monkeypatch, library, program):
    monkeypatch.setenv("POLYPATH_LIBRARY", str(make(folder / library)))
    with pytest.raises(programs.ProgramNotFound, match="jacobi is not built: run `make mpi`"):
        programs.find_program("jacobi")
    path = make(folder / program)
    assert programs.find_program("jacobi") == path


def test_an_mpirun_that_is_named(folder):
    mpirun = make(folder / "path" / "mpirun.other")
    for name in ("mpirun.other", str(mpirun)):
        launcher = programs.find_launcher(name)
        assert launcher.settings == {}
        assert launcher.command(3, Path("/a/b"), ["--c", "d"]) == [
            *(str(mpirun), "-n", "3", "/a/b", "--c", "d")
        ]
    with pytest.raises(programs.ProgramNotFound, match="--mpirun nowhere: there is no such"):
        programs.find_launcher("nowhere")


def test_mpirun_of_make_mpi_comes_before_that_of_the_path(folder, monkeypatch):
    build = folder / "build"
    monkeypatch.setenv("POLYPATH_LIBRARY", str(make(build / "libpolypath.so")))
    with pytest.raises(programs.ProgramNotFound, match="there is no mpirun: run `make mpi`"):
        programs.find_launcher(None)
    of_path = make(folder / "path" / "mpirun")
    assert programs.find_launcher(None).prefix == (str(of_path),)
    python = f"#!{sys.executable}\nimport os, sys\n"
    script = make(folder / "scripts" / "mpi_env.sh", f"{python}sys.exit(2)\n")
    assert programs.find_launcher(None).prefix == (str(of_path),)  # it says that it has none
    make(script, f"{python}assert os.environ['POLYPATH_BUILD'] == {str(build)!r}\n")
    launcher = programs.find_launcher(None)
    assert launcher.prefix == (str(script), "mpirun")
    assert launcher.settings == {"POLYPATH_BUILD": str(build)}
    assert "POLYPATH_BUILD" not in os.environ
