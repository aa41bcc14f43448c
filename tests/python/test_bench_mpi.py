"""`polypath bench mpi` and `polypath bench jacobi`: the real programs on a simulated node, with and
without the shim."""

import json
import shutil

import mpi_stack
import pytest
from mpi_stack import needs_mpi
from polypath._library import find_library
from test_command_line_errors import the_one_line

SMALL = ("--node", "narval", "--iterations", "2")


def document(polypath, tmp_path, *arguments, code=0, **settings):
    done = polypath("bench", *arguments, "--json", "result.json", **settings)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads((tmp_path / "result.json").read_text()), done


def routes(result):
    """Shares by route, of all pairs of GPUs."""
    shares = {}
    for route in result["statistics"]["routes"]:
        shares[route["route"]] = shares.get(route["route"], 0) + route["share"]
    return shares


@needs_mpi
@pytest.mark.parametrize(("test", "messages"), [("bw", 1), ("bibw", 2), ("latency", 2), ("put", 1)])
def test_messages_take_every_path(polypath, tmp_path, test, messages):
    windows = () if test == "latency" else ("--windows", "1,2")
    result, done = document(
        polypath,
        tmp_path,
        *("mpi", "--test", test, *windows, "--sizes", "4K,8M", *SMALL, "--warmup", "0"),
    )
    assert (result["op"], result["baseline"], result["ranks"]) == (f"mpi {test}", "stock", 2)
    assert (result["node"]["name"], result["pairs"]) == ("narval", 1)
    counts = [1, 1, 2, 2] if windows else [1, 1]
    assert [(row["window"], row["bytes"], row["messages"]) for row in result["rows"]] == [
        (window, size, window * messages)
        for window, size in zip(counts, (4 << 10, 8 << 20) * 2, strict=False)
    ]
    assert all(row["verified"] and row["speedup"] is None for row in result["rows"])

    statistics = result["statistics"]
    # At 8M: two timed windows and one that is verified, for each window of `messages` messages.
    assert statistics["split"] == 3 * messages * (3 if windows else 1)
    assert statistics["processes"] == 2
    shares = routes(result)
    assert {"direct", "via gpu2", "via gpu3"} <= set(shares)
    assert sum(shares.values()) == pytest.approx(1)
    lines = done.stdout.splitlines()
    assert lines[0].endswith("2 ranks, pair, on narval (simulated, functional mode)")
    assert "times mean nothing" in lines[1]
    assert any(line.startswith("bytes of those: direct ") for line in lines)


@needs_mpi
def test_solver_takes_every_path_to_the_same_bits(polypath, tmp_path):
    result, done = document(polypath, tmp_path, "jacobi", "--powers", "22", "--ranks", "4", *SMALL)
    (row,) = result["rows"]
    assert row["verified"] is True
    assert (row["elements"], row["halo_bytes"], row["compute"]) == (1 << 25, 4 << 20, "host")
    assert (row["iterations"], len(row["residuals"]), row["speedup"]) == (2, 2, None)
    assert result["statistics"]["processes"] == 4
    assert result["statistics"]["split"] == 4 * 2 * 2  # ranks, directions, iterations
    assert len(routes(result)) >= 3
    assert "yes" in done.stdout


@needs_mpi
def test_routes_are_those_that_are_asked_for(polypath, tmp_path):
    result, _ = document(
        polypath,
        tmp_path,
        *("mpi", "--windows", "1", "--sizes", "8M", "--routes", "direct,gpu", *SMALL),
        *("--setting", "max_routes=2"),
    )
    assert set(routes(result)) == {"direct", "via gpu2"}
    settings = {"routes": "direct,gpu", "max_routes": "2"}
    assert settings.items() <= result["settings"].items()


@needs_mpi
@pytest.mark.parametrize(
    "arguments",
    [("mpi", "--windows", "1", "--sizes", "1M"), ("jacobi", "--powers", "16", "--ranks", "2")],
)
def test_a_wrong_byte_is_an_error(polypath, tmp_path, arguments):
    library = mpi_stack.wrong_byte_library(tmp_path)
    result, done = document(polypath, tmp_path, *arguments, *SMALL, code=1, LD_PRELOAD=str(library))
    assert [row["verified"] for row in result["rows"]] == [False]
    assert "NO" in done.stdout
    if arguments[0] == "mpi":
        assert "1 of 1048576 bytes are wrong, the first at 1048497" in done.stdout


@needs_mpi
def test_a_program_that_fails_is_one_line(polypath):
    done = polypath("bench", "mpi", "--ranks", "3", *SMALL)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "ended with 2: mpi_bandwidth: pairs need an even number of ranks, not 3"
    )


@needs_mpi
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mpi", "--test", "latency", "--windows", "4"), "--windows is not for latency"),
        (("mpi", "--emulate-mesh", "46"), "--emulate-mesh needs GPUs"),
        (("mpi", "--plot", "a.png"), "--plot: times on a simulated node mean nothing"),
        (("mpi", "--windows", "0"), "'0' is not a list of 1 to 64"),
        (("mpi", "--routes", "x"), "routes"),
        (("mpi", "--setting", "a=b"), "there is no setting 'a'"),
        (("mpi", "--mpirun", "/nowhere/mpirun"), "--mpirun /nowhere/mpirun: there is no such"),
        (("jacobi", "--powers", "4"), "'4' is not a list of 5 to 32"),
        (("jacobi", "--powers", "24:23"), "'24:23' is not a list of 5 to 32"),
    ],
)
def test_options_that_are_not_usable(polypath, arguments, says):
    assert says in the_one_line(polypath("bench", *arguments, "--node", "narval"), 2)


def test_programs_that_are_not_built(polypath, tmp_path):
    """A library that lies alone, as in a wheel."""
    library = tmp_path / "libpolypath.so"
    shutil.copy(find_library(), library)
    done = polypath("bench", "jacobi", POLYPATH_LIBRARY=str(library))
    assert the_one_line(done, 2).endswith("jacobi is not built: run `make mpi`")
