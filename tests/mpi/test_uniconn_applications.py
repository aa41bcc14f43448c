"""The applications over UNICONN on ranks of MPI: the bits that one host computes."""

from __future__ import annotations

import json

import pytest
from conftest import BUILD, NODE, ROOT, _run, environment


def run(program: str, ranks: int, *arguments: str, **settings: str) -> dict:
    command = [ROOT / "scripts" / "mpi_env.sh", "mpirun", "-n", ranks]
    command += [BUILD / "bin" / f"uniconn_{program}_mpi", *arguments]
    if NODE != "real":
        settings.setdefault("POLYPATH_SIM_SEED", "1")
        settings.setdefault("POLYPATH_NODE", "narval")
    returncode, output = _run([str(part) for part in command], environment(settings))
    assert returncode == 0, output
    (line,) = [line for line in output.splitlines() if line.startswith("{")]
    return json.loads(line)


@pytest.mark.parametrize("backend", ["mpi", "polypath"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_jacobi(backend, ranks):
    arguments = ("--rows", "37", "--columns", "53", "--iterations", "12", "--verify", "yes")
    # PolypathBackend over MPI's ranks is AnyBackend's choice.
    chosen = {"POLYPATH_BACKEND": backend} if backend == "polypath" else {}
    name = "any" if chosen else backend
    result = run("jacobi2d", ranks, "--backend", name, *arguments, **chosen)
    assert result["backend"] == backend
    assert result["verified"]


def test_the_residuals_of_conjugate_gradients_are_the_same():
    arguments = ("--matrix", "small", "--iterations", "20")
    by_mpi = run("cg", 3, "--backend", "mpi", *arguments)
    by_polypath = run("cg", 2, "--backend", "any", *arguments)
    assert (by_mpi["backend"], by_polypath["backend"]) == ("mpi", "polypath")
    assert by_mpi["verified"]
    assert by_mpi["residuals"] == by_polypath["residuals"]
    assert len(by_mpi["residuals"]) == 21


@pytest.mark.parametrize("test", ["latency", "bandwidth", "jacobi", "cg"])
def test_the_benchmark(test):
    command = [ROOT / "scripts" / "mpi_env.sh", "mpirun", "-n", 2]
    command += [BUILD / "bin" / "uniconn_bench_mpi", "--test", test, "--backend", "mpi"]
    command += ["--sizes", "4096", "--pairs", "1", "--calls", "2"]
    command += ["--iterations", "2", "--matrix", "small"]
    settings = {"POLYPATH_SIM_SEED": "1"}
    if NODE != "real":
        settings["POLYPATH_NODE"] = "narval"
    returncode, output = _run([str(part) for part in command], environment(settings))
    assert returncode == 0, output
    (row,) = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert row["verified"]
    assert row["backend"] == "mpi"
    # This MPI does not say that it takes memory of GPUs: its own calls are left out.
    assert row["native_us"] is None
