"""AnyBackend on ranks of MPI that follows a table: by polypath, and by MPI what rank 0's profile
gives it, with any profiles of the others; and MPI among the backends that are measured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import NODE, ROOT
from test_uniconn import LONG, run

pytestmark = pytest.mark.skipif(NODE == "real", reason="tables of the simulated narval")

_ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT / "python"),
    "POLYPATH_REGISTRY": "off",
    "POLYPATH_SIM_MODE": "functional",
}


def polypath(*arguments):
    command = [sys.executable, "-m", "polypath", *arguments, "--node", "narval", "--json", "-"]
    done = subprocess.run(
        command, env=_ENVIRONMENT, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def profile(tmp_path):
    """Writes a profile of the simulated narval with these rows by hand."""
    base = tmp_path / "base.toml"
    once = ("--ops", "post", "--sizes", "64K", "--ranks", "2")
    polypath("tune", "backend", "--profile", str(base), *once)
    text = base.read_text()

    def write(file, rows):
        added = "".join(
            f'[[comm]]\nop = "{op}"\nranks = "{ranks} ranks, nvlink x4"\nbytes = {bytes}\n'
            f'backend = "{backend}"\n'
            for op, bytes, backend in rows
            for ranks in (2, 3, 4)
        )
        file.write_text(text.replace("[end]", added + "[end]"))

    return write


def by(output: str, rank: int) -> dict[tuple[str, str], int]:
    matches = re.findall(rf"rank {rank}: (\w+) by (\w+): (\d+)", output)
    return {(operation, backend): int(calls) for operation, backend, calls in matches}


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.soak), 4])
def test_rank_0s_table_is_that_of_all(tmp_path, profile, ranks):
    """The suite. Were one rank to follow its own, it would wait for messages that no rank sends."""
    rows = [
        ("post", 4096, "mpi"),
        ("post", 65536, "polypath"),
        ("post", 300_000, "mpi"),
        *((op, bytes, "mpi") for op in ("allreduce", "reduce") for bytes in (32, 400)),
        ("broadcast", 32, "mpi"),  # which this MPI does not do with memory of GPUs
    ]
    profile(tmp_path / "table.0", rows)
    profile(tmp_path / "table.1", [("post", 1 << 20, "mpi"), ("post", 4096, "polypath")])
    profile(tmp_path / "table.2", [])
    # Rank 3 has none.
    returncode, output = run(ranks, *LONG, BACKEND="any", PROFILES=str(tmp_path / "table"))
    assert returncode == 0, output
    assert "FAILED" not in output
    reason = "polypath: ranks are of one node, and reach each other's memory; follows"
    for rank in range(ranks):
        assert f"rank {rank}: ASecondEnvironment: OK" in output
        assert f"rank {rank}: backend: {reason}" in output
        uses = by(output, rank)
        for operation in ("post", "acknowledge", "allreduce", "reduce"):
            assert uses[operation, "mpi"] > 0
            assert uses[operation, "polypath"] > 0
        assert uses["post", "mpi"] == uses["acknowledge", "mpi"]
        assert ("broadcast", "mpi") not in uses
        assert uses["broadcast", "polypath"] > 0


def test_a_name_wins_over_the_table(tmp_path, profile):
    profile(tmp_path / "table.0", [("post", 4096, "mpi")])
    settings = {"BACKEND": "any", "PROFILES": str(tmp_path / "table")}
    for name, expected in (("polypath", "polypath"), ("mpi", "mpi"), ("AUTO", "mpi")):
        returncode, output = run(2, "PostsToItself", POLYPATH_BACKEND=name, **settings)
        assert returncode == 0, output
        for rank in range(2):
            assert by(output, rank)["post", expected] == 1, output


def test_mpi_is_measured_with_the_others(tmp_path):
    document = polypath(
        *("tune", "backend", "--backends", "polypath,mpi", "--ranks", "2", "--sizes", "4K"),
        *("--pairs", "2", "--profile", str(tmp_path / "measured.toml")),
    )
    assert document["excluded"] == {}
    assert not document["stopped"]
    assert len(document["comm"]) == 6
    for entry in document["comm"]:
        assert [time["backend"] for time in entry["times"]] == ["polypath", "mpi"]
        assert all(time["us"] > 0 for time in entry["times"])
        assert entry["pairs"] == 2
    assert (tmp_path / "measured.toml").read_text().count("[[comm]]") == 6
