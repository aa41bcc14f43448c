"""The programs of lab/bench/mpi and examples/jacobi on the real MPI stack: what they send, that
they see every wrong byte, and that the solver is right to the last bit."""

import json
import re
from itertools import pairwise
from pathlib import Path

import jacobi_by_numpy
import mpi_stack
import pytest
from mpi_stack import needs_mpi

pytestmark = needs_mpi

TWO_GPUS = str(Path(__file__).parent / "two_gpus.toml")
SIZES = ("--sizes", "1,1000,256K", "--iterations", "2", "--warmup", "1")


def results(tmp_path, name, ranks, *arguments, **settings):
    file = tmp_path / "results.json"
    done = mpi_stack.run(name, ranks, *arguments, "--json", str(file), **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


@pytest.mark.parametrize(
    ("name", "pattern", "ranks", "flows"),
    [
        ("mpi_bandwidth", "pair", 4, 2),
        ("mpi_bandwidth", "ring", 3, 3),
        ("mpi_bibandwidth", "pair", 2, 2),
        ("mpi_bibandwidth", "ring", 3, 6),
        ("mpi_bibandwidth", "ring", 2, 4),
        ("ucx_put_bandwidth", "pair", 2, 1),
        ("ucx_put_bandwidth", "ring", 3, 3),
    ],
)
def test_every_message_of_a_window_is_verified(tmp_path, name, pattern, ranks, flows):
    arguments = ("--pattern", pattern, "--window", "1,5", *SIZES)
    document, table = results(tmp_path, name, ranks, *arguments)
    assert (document["program"], document["ranks"], document["pattern"]) == (name, ranks, pattern)
    assert document["memory"] == "gpu"
    assert [(row["window"], row["bytes"], row["messages"]) for row in document["rows"]] == [
        (window, size, flows * window) for window in (1, 5) for size in (1, 1000, 256 << 10)
    ]
    assert all(row["verified"] and row["gbps"] > 0 for row in document["rows"])
    rows = [line.split() for line in table.splitlines() if not line.startswith("#")]
    for cells, row in zip(rows, document["rows"], strict=True):
        window, size, mb_per_second, messages = cells
        assert [int(window), int(size), int(messages)] == [
            row[key] for key in ("window", "bytes", "messages")
        ]
        assert float(mb_per_second) == pytest.approx(row["gbps"] * 1000, abs=0.01)


@pytest.mark.parametrize(("pattern", "ranks"), [("pair", 2), ("ring", 3)])
def test_latency(tmp_path, pattern, ranks):
    document, _ = results(tmp_path, "mpi_latency", ranks, "--pattern", pattern, *SIZES)
    assert [row["messages"] for row in document["rows"]] == [ranks] * 3
    assert all(row["verified"] and row["latency_us"] > 0 for row in document["rows"])


def test_host_memory_needs_no_driver(tmp_path):
    arguments = ("--memory", "host", "--window", "3", *SIZES)
    document, _ = results(tmp_path, "mpi_bandwidth", 2, *arguments, POLYPATH_NODE="")
    assert document["memory"] == "host"
    assert all(row["verified"] for row in document["rows"])


@pytest.mark.parametrize(
    ("name", "ranks", "arguments"),
    [
        ("mpi_bandwidth", 2, ("--window", "2")),
        ("mpi_bibandwidth", 2, ("--window", "2")),
        ("mpi_latency", 2, ()),
        ("ucx_put_bandwidth", 2, ("--window", "2")),
    ],
)
def test_one_wrong_byte_is_found(tmp_path, name, ranks, arguments):
    file = tmp_path / "results.json"
    library = mpi_stack.wrong_byte_library(tmp_path)
    options = ("--sizes", "8,300K", "--iterations", "1", "--json", str(file))
    done = mpi_stack.run(name, ranks, *arguments, *options, LD_PRELOAD=str(library))
    assert done.returncode == 1
    assert [row["verified"] for row in json.loads(file.read_text())["rows"]] == [True, False]
    described = re.findall(
        r"rank (\d): .* (\d+) of 307200 bytes are wrong, .* at (\d+)", done.stderr
    )
    assert described
    assert {(count, first) for _, count, first in described} == {("1", str(307200 - 79))}
    assert "WRONG" in done.stdout


@pytest.mark.parametrize(
    ("name", "ranks", "arguments", "says"),
    [
        ("mpi_bandwidth", 2, ("--sizes", "2G"), "2147483648 bytes: MPI counts up to 2147483647"),
        ("mpi_latency", 3, (), "pairs need an even number of ranks, not 3"),
        ("jacobi", 1, ("--iterations", "5", "--warmup", "5"), "none of 5 iterations to time"),
    ],
)
def test_what_cannot_be_run_is_said_once(name, ranks, arguments, says):
    done = mpi_stack.run(name, ranks, *arguments)
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if line.startswith(f"{name}: "))
    assert says in line


def test_more_ranks_than_gpus():
    done = mpi_stack.run("mpi_latency", 4, POLYPATH_NODE=TWO_GPUS)
    assert done.returncode == 1
    assert "one GPU a rank, but this node has 2 GPUs" in done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_solver_is_bitwise_equal_on_any_rank_count(tmp_path, ranks):
    shape = {"rows": 9, "columns": 3001}
    options = [word for name, count in shape.items() for word in (f"--{name}", str(count))]
    document, printed = results(
        tmp_path, "jacobi", ranks, *options, "--iterations", "30", "--warmup", "3"
    )
    residuals, digest = jacobi_by_numpy.solve(**shape, iterations=30)
    assert document["residuals"] == residuals
    assert document["digest"] == f"{digest:016x}"
    assert (document["halo_bytes"], document["compute"]) == (4 * 3001, "host")
    assert f"{residuals[-1]:.9g}" in printed
    assert all(before >= after for before, after in pairwise(residuals))


@pytest.mark.parametrize("mode", ["functional", "virtual"])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_solver_is_the_same_to_the_bit_with_threads(tmp_path, threads, mode):
    file = tmp_path / "results.json"
    done = mpi_stack.run_alone(
        *("jacobi", "--threads", str(threads), "--rows", "9", "--columns", "3001"),
        *("--iterations", "30", "--warmup", "3", "--json", str(file)),
        POLYPATH_SIM_MODE=mode,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    residuals, digest = jacobi_by_numpy.solve(rows=9, columns=3001, iterations=30)
    assert document["residuals"] == residuals
    assert document["digest"] == f"{digest:016x}"
    assert (document["ranks"], document["mpi"]) == (threads, "threads of one process")


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("--threads", "6"), 1, "one GPU a rank, but this node has 4 GPUs"),
        (("--threads", "2", "--rows", "1"), 2, "1 rows are not enough for 2 ranks"),
        (("--threads", "2", "--memory", "host"), 2, "--threads needs --memory gpu"),
    ],
)
def test_threads_that_cannot_be_ranks(arguments, status, says):
    done = mpi_stack.run_alone("jacobi", *arguments)
    assert done.returncode == status
    assert says in done.stderr


def test_solver_notices_a_wrong_byte(tmp_path):
    arguments = ("--size", "16", "--iterations", "5", "--warmup", "1")
    right, _ = results(tmp_path, "jacobi", 2, *arguments)
    library = str(mpi_stack.wrong_byte_library(tmp_path))
    wrong, _ = results(tmp_path, "jacobi", 2, *arguments, LD_PRELOAD=library)
    assert right["digest"] != wrong["digest"]
