"""UNICONN's suite on ranks of MPI: by MPI, in each of its ways, and by polypath."""

from __future__ import annotations

import re

import pytest
from conftest import BUILD, NODE, ROOT, _run, environment

WAYS = {
    "staged": {},
    "messages": {"POLYPATH_UNICONN_MPI": "messages"},
    "gpu": {"POLYPATH_UNICONN_MPI": "gpu"},
    # Longer messages than a count holds.
    "pieces": {"PIECE": "20011"},
    "polypath": {"BACKEND": "polypath"},
    # One program, with both.
    "mpi by name": {"BACKEND": "any", "POLYPATH_BACKEND": "MPI"},
    "whatever is best": {"BACKEND": "any"},
}
CHOSEN = {
    "mpi by name": "mpi: POLYPATH_BACKEND says so",
    "whatever is best": "polypath: ranks are of one node, and reach each other's memory",
}


#: Left out with four ranks, whose kernels share two cores here: two ranks run these, and so do the
#: collectives' own tests.
LONG = ("-LongReductions", "-AlltoAlls")


def run(ranks: int, *cases: str, **settings: str) -> tuple[int, str]:
    """Kernels run with as few threads as they can do with: what ranks say to each other is the
    subject, and comm/tests/collectives runs whole blocks."""
    command = [ROOT / "scripts" / "mpi_env.sh", "mpirun", "-n", ranks]
    command += [BUILD / "bin" / "uniconn_ranks", *cases]
    if NODE != "real":
        settings.setdefault("POLYPATH_SIM_SEED", "1")
        settings.setdefault("POLYPATH_NODE", "narval")
        settings.setdefault("POLYPATH_SIM_BLOCKS", "folded")
    return _run([str(part) for part in command], environment(settings))


# Four ranks over polypath, and by MPI as it comes; the other ways differ in how one message goes.
SUITES = [
    *((way, 2) for way in WAYS),
    *((way, 4) for way in ("staged", "polypath")),
    *(
        pytest.param(way, 4, marks=pytest.mark.soak)
        for way in WAYS
        if way not in ("staged", "polypath")
    ),
]


@pytest.mark.parametrize("way, ranks", SUITES)
def test_the_suite(way, ranks):
    cases = LONG if (way, ranks) == ("polypath", 4) else ()
    returncode, output = run(ranks, *cases, **WAYS[way])
    assert returncode == 0, output
    assert "FAILED" not in output
    for rank in range(ranks):
        assert f"rank {rank}: ASecondEnvironment: OK" in output
        if way in CHOSEN:
            assert f"rank {rank}: backend: {CHOSEN[way]}\n" in output
    taken = [int(count) for count in re.findall(r"(\d+) buffers of GPUs", output)]
    assert len(taken) == ranks
    # MPI's collectives are given memory of GPUs when they say that they take it, and else never.
    assert all(count > 100 for count in taken) if way == "gpu" else not any(taken), output


def test_what_is_wrong_with_the_setting_is_said():
    returncode, output = run(2, POLYPATH_UNICONN_MPI="some")
    assert returncode != 0
    assert "host, messages or gpu is wanted" in output
