"""`polypath bench messaging` on a simulated node: every line runs, is right, and is printed."""

import json
import os
import subprocess

import pytest
from polypath._library import find_library
from polypath.messaging_bench import GROUPS
from polypath.mpi.runs import find_program


@pytest.fixture
def bench(polypath):
    def run(*arguments):
        driver = find_library().parent / "libpolypath_sim_of_messaging_bench.so"
        return polypath(
            *("bench", "messaging", *arguments),
            POLYPATH_NODE="hgx-h200-x4",
            POLYPATH_SIM_MODE="functional",
            POLYPATH_DRIVER_LIBRARY=str(driver),
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
    figures = {"what", "line", "value", "unit", "paper", "adds_up", "items", "limits", "skipped"}
    for row in rows:
        assert set(row) <= figures | {"gpus", "verified"}, row
        assert ("skipped" in row) != (row.get("value", 0) > 0), row
    assert drawn.stat().st_size > 1000


def test_a_table_names_limits(polypath):
    """By the option, without a variable."""
    done = polypath("bench", "messaging", "--what", "queue", "--node", "hgx-h200-x4")
    assert done.returncode == 0, done.stderr
    assert "many to many, 16 B, 32 a turn" in done.stdout
    assert "fetch_adds" in done.stdout


def test_copies_are_split_beside_a_kernel_that_waits(polypath, tmp_path):
    """As a user's program: by `polypath run`, and a driver of the usual name."""
    driver = find_library().parent / "libpolypath_sim_of_messaging_bench.so"
    (tmp_path / "libcuda.so.1").symlink_to(driver)
    line = "copies of 64 MiB from GPU to GPU, beside a kernel that waits"
    done = polypath(
        *("run", "--no-measure", "--stats", str(tmp_path / "%p.json"), "--"),
        *(str(find_program("messaging_bench")), "--what", "remote", "--gpus", "0,1"),
        *("--quick", "1", "--repetitions", "1", "--line", line),
        LD_LIBRARY_PATH=str(tmp_path),
        POLYPATH_DRIVER_LIBRARY=str(driver),
        POLYPATH_NODE="narval",
        POLYPATH_SIM_MODE="functional",
        POLYPATH_PREPARE="wait",
        CUDA_MODULE_LOADING="EAGER",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["line"] == line
    (written,) = tmp_path.glob("*.json")
    calls = json.loads(written.read_text())["calls"]["cuMemcpyDtoDAsync_v2"]
    assert calls["calls"] == calls["issued"] > 0, calls


def test_a_line_that_there_is_not_is_an_error():
    driver = find_library().parent / "libpolypath_sim_of_messaging_bench.so"
    done = subprocess.run(
        [str(find_program("messaging_bench")), "--what", "pool", "--line", "allocate"],
        env={**os.environ, "POLYPATH_NODE": "narval", "POLYPATH_DRIVER_LIBRARY": str(driver)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "--line 'allocate' is no line of pool" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(("--what", "queues"), ", ".join(GROUPS)), (("--gpus", "3"), "1 to 2")],
)
def test_bad_arguments_are_named(bench, arguments, reason):
    done = bench(*arguments)
    assert done.returncode == 2
    assert reason in " ".join(done.stderr.split())
