"""A communicator of MPI's ranks (polypath/comm_mpi.h)."""

from __future__ import annotations

from conftest import BUILD, ROOT, _run, environment


def test_ranks_of_mpi():
    program = BUILD / "bin" / "comm_ranks"
    command = [ROOT / "scripts" / "mpi_env.sh", "mpirun", "-n", "3", program]
    returncode, output = _run([str(part) for part in command], environment({}))
    assert returncode == 0, output
    for rank in range(3):
        assert f"rank {rank} of 3: OK" in output
