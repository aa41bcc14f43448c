"""`polypath bench messaging` on a simulated node: every line runs, is right, and is printed."""

import json

import pytest
from polypath._library import find_library
from polypath.messaging_bench import GROUPS


@pytest.fixture
def bench(polypath):
    def run(*arguments):
        twins = find_library().parent / "libpolypath_sim_of_messaging_bench.so"
        return polypath(
            *("bench", "messaging", *arguments),
            POLYPATH_NODE="hgx-h200-x4",
            POLYPATH_SIM_MODE="functional",
            POLYPATH_DRIVER_LIBRARY=str(twins),
        )

    return run


@pytest.mark.parametrize("what", GROUPS)
def test_every_line_is_right(bench, tmp_path, what):
    drawn = tmp_path / "lines.svg"
    done = bench("--what", what, "--json", "-", "--plot", str(drawn))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert rows and all(row["verified"] and row["what"] == what for row in rows)
    assert len({row["line"] for row in rows}) == len(rows)
    for row in rows:
        assert ("skipped" in row) != (row.get("value", 0) > 0), row
    assert drawn.stat().st_size > 1000


def test_a_table_names_limits(polypath):
    """By the option, without a variable."""
    done = polypath("bench", "messaging", "--what", "queue", "--node", "hgx-h200-x4")
    assert done.returncode == 0, done.stderr
    assert "many to many, 16 B, 32 a turn" in done.stdout
    assert "fetch_adds" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--what", "queues"), ", ".join(GROUPS)), (("--gpus", "3"), "1 to 2")],
)
def test_bad_arguments_are_named(bench, arguments, said):
    done = bench(*arguments)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
