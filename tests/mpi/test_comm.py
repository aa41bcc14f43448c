"""A communicator of the ranks of MPI (polypath/comm_mpi.h)."""

from __future__ import annotations

import json

import pytest
from conftest import BUILD, ROOT, _run, environment


def test_ranks_of_mpi():
    program = BUILD / "bin" / "comm_ranks"
    command = [ROOT / "scripts" / "mpi_env.sh", "mpirun", "-n", "3", program]
    returncode, output = _run([str(part) for part in command], environment({}))
    assert returncode == 0, output
    for rank in range(3):
        assert f"rank {rank} of 3: OK" in output


@pytest.mark.parametrize("nodes", ["aabb", "abab", "ab"])
@pytest.mark.parametrize("level", ["single", "multiple"])
def test_ranks_on_several_nodes(nodes, level):
    """Every bit of the sums, on any calling thread of MPI. A small slice goes at once."""
    command = [ROOT / "scripts" / "mpi_env.sh", "mpirun"]
    for name in nodes:
        program = [BUILD / "bin" / "node_ranks", "mpi", level, 60_004, 2]
        command += ["-n", 1, "env", f"POLYPATH_COMM_NODE={name}", *program, ":"]
    settings = environment({"UCX_TLS": "tcp,self", "POLYPATH_COMM_TIMEOUT_MS": "200000"})
    returncode, output = _run([str(part) for part in command[:-1]], settings)
    assert returncode == 0, output
    [line] = [line for line in output.splitlines() if line.startswith("{")]
    report = json.loads(line)
    assert report["verified"]
    assert report["report"]["nodes"]["network"] == "messages"
    assert report["report"]["nodes"]["calls"] == 5
    assert report["report"]["nodes"]["chunks"] == 5
