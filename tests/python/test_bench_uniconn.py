"""`polypath bench uniconn` on simulated nodes: figures that must be reached, results that must be
right over every backend, and what calls cost where the library that they call does nothing."""

import json
import subprocess
import sys

import pytest
from polypath._library import find_library
from polypath.cli import bench_uniconn
from polypath.errors import PolypathError
from polypath.mpi.runs import find_program
from polypath.uniconn_loc import lines_of, source_lines

STANDINS = ("nccl-standin", "nvshmem-standin")


@pytest.fixture
def rows_of(polypath):
    def run(*arguments, **settings):
        done = polypath("bench", "uniconn", *arguments, "--json", "-", **settings)
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
        assert all(row["verified"] for row in rows)
        return rows

    return run


@pytest.mark.parametrize(("node", "gbps"), [("narval", 270), ("marenostrum5", 360)])
def test_a_post_takes_all_routes(rows_of, node, gbps):
    arguments = (
        "--test",
        "bandwidth",
        "--window",
        "1",
        "--sizes",
        "256M",
        "--backends",
        "polypath",
    )
    (row,) = rows_of(*arguments, "--node", node)
    assert row["gbps"] > gbps


def test_latency_is_that_of_the_library(rows_of):
    arguments = ("--sizes", "0,64K,1M,16M", "--backends", "polypath", "--pairs", "5")
    rows = rows_of(*arguments, "--node", "narval")
    assert [row["bytes"] for row in rows] == [0, 65536, 1 << 20, 16 << 20]
    for row in rows:
        assert row["speedup"] == pytest.approx(1, abs=0.01), row


def test_figures_are_the_same_on_a_busy_machine(rows_of):
    """Ranks are threads: what each plans next to is what others have posted in virtual time."""
    arguments = ("--sizes", "0,64K,4M", "--backends", "polypath", "--node", "narval")
    arguments += ("--pairs", "1")
    jacobi = ("--test", "jacobi", "--sizes", "2M", *arguments[2:], "--iterations", "2")

    def figures():
        rows = rows_of(*arguments) + rows_of(*jacobi, POLYPATH_ROUTES="direct,gpu")
        return [(row["us"], row["native_us"]) for row in rows]

    quiet = figures()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        assert figures() == quiet
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()


def test_a_window_for_each(rows_of):
    arguments = ("--test", "bandwidth", "--sizes", "1M", "--window", "1,4", "--node", "narval")
    rows = rows_of(*arguments, "--backends", "polypath")
    assert [row["window"] for row in rows] == [1, 4]
    assert rows[1]["gbps"] > rows[0]["gbps"]


@pytest.mark.parametrize("exchange", ["turns", "both"])
def test_jacobi_with_large_halos(rows_of, exchange):
    """Rows of 8 MiB on a mesh of four. In turns, a single path leaves two thirds of the links
    idle. Both at once, a ring of four keeps those between neighbours busy, and any way around takes
    one of them."""
    arguments = ("--test", "jacobi", "--sizes", "8M", "--rows", "4", "--exchange", exchange)
    arguments += ("--backends", "polypath", "--node", "narval", "--pairs", "1")
    (every,) = rows_of(*arguments, POLYPATH_ROUTES="direct,gpu")
    (single,) = rows_of(*arguments, POLYPATH_ROUTES="direct")
    speedup = single["us"] / every["us"]
    assert speedup > (1.2 if exchange == "turns" else 0.95), (single, every)


@pytest.mark.parametrize("backend", ["polypath", "gpuccl", "gpushmem", "any"])
@pytest.mark.parametrize("test", ["latency", "jacobi", "cg"])
def test_every_backend(rows_of, backend, test):
    """NCCL and NVSHMEM by what stands in for them, whose messages take real time."""
    build = find_library().parent
    (row,) = rows_of(
        *("--test", test, "--backends", backend, "--node", "narval"),
        *(() if test == "cg" else ("--sizes", "4099" if test == "latency" else "4K")),
        LD_LIBRARY_PATH=":".join(str(build / folder) for folder in STANDINS),
        POLYPATH_SIM_MODE="functional",
        POLYPATH_BACKEND="gpuccl" if backend == "any" else "",
    )
    assert row["backend"] == ("gpuccl" if backend == "any" else backend)
    assert (row["native_us"] is None) == (backend == "any")


def test_calls_of_the_library_and_nothing_else():
    """As many as without UNICONN, and no allocation. What they cost is for a quiet machine."""
    done = subprocess.run(
        [find_program("uniconn_call_costs"), "3"],
        env={"POLYPATH_NODE": "narval", "POLYPATH_REGISTRY": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["backend"] for row in rows] == ["gpuccl", "gpushmem"]
    for row in rows:
        assert row["library_calls"] == row["native_library_calls"] > 0
        assert row["allocations"] == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--test", "speed"), "'speed' is not one of latency, bandwidth, jacobi, cg"),
        (("--backends", "polypath,nccl"), "'nccl' is not one of polypath, mpi"),
        (("--backends", "mpi"), "no virtual time"),
        (("--test", "jacobi", "--exchange", "none"), "both or turns"),
        (("--rows", "8"), "--rows is for --test jacobi, not for latency"),
        (("--test", "cg", "--sizes", "8"), "latency, bandwidth, jacobi, not for cg"),
        (("--test", "lines", "--backends", "polypath"), "not for lines"),
        (("--test", "cg", "--ranks", "9"), "there are 4 GPUs"),
        (
            ("--test", "cg", "--matrix", "serena", "--backends", "polypath"),
            "serena-like, queen-like",
        ),
    ],
)
def test_what_is_refused(polypath, arguments, reason):
    done = polypath("bench", "uniconn", *arguments, "--node", "narval")
    assert done.returncode != 0
    assert reason in done.stderr


def test_sizes_with_zero():
    assert bench_uniconn._sizes("0,8,1K:4K") == [0, 8, 1024, 2048, 4096]
    assert bench_uniconn._sizes("0") == [0]


def test_lines_are_of_code(polypath, tmp_path):
    text = "#pragma once\n#include <x>\n\n// a\n/* b\n c */\nint a; // d\n\nint b;  /* e */\n"
    assert lines_of(text) == 2
    done = polypath("bench", "uniconn", "--test", "lines", "--json", "-", "--node", "narval")
    assert done.returncode == 0, done.stderr
    lines = {row["what"]: row["lines"] for row in json.loads(done.stdout)["rows"]}
    assert lines["calls by UNICONN"] < min(
        count for what, count in lines.items() if what.startswith("calls by ") and "UNI" not in what
    )
    with pytest.raises(PolypathError, match="run it from a checkout"):
        source_lines(tmp_path)
