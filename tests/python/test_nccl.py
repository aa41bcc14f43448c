"""Programs that only know NCCL under `polypath run` and `polypath doctor`: what stands in for NCCL
is built by the C++ tests."""

import json
import sys
from pathlib import Path

import pytest
from polypath._library import find_library
from polypath.launch.environment import find_nccl

PROGRAM = Path(__file__).with_name("nccl_program.py")
STANDIN = find_library().with_name("nccl-standin") / "libnccl.so.2"
OLDER = find_library().with_name("nccl-standin-old") / "libnccl.so.2"
NODE = ("--node", "narval")

pytestmark = pytest.mark.skipif(
    not STANDIN.is_file() or find_nccl() is None, reason="needs the C++ tests' libraries"
)


@pytest.fixture
def run(polypath):
    """Runs the program under `polypath run` with these options."""

    def run(*options, library=STANDIN, **settings):
        return polypath(
            *("run", *NODE, *options, "--", sys.executable, str(PROGRAM), str(library)), **settings
        )

    return run


def test_sums_are_taken_and_counted(run, tmp_path):
    done = run("--reproducible", "--stats", str(tmp_path / "stats.json"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")
    (file,) = tmp_path.glob("stats.*.nccl.json")
    nccl = json.loads(file.read_text())["nccl"]
    assert (nccl["library"], nccl["version"]) == (str(STANDIN), 22809)
    assert (nccl["communicators"], nccl["taken"], nccl["refusals"]) == (2, 2, {})
    assert nccl["calls"] == {
        "ncclAllReduce": {"calls": 2, "bytes": 8000, "taken": 2, "to_nccl": {}}
    }


@pytest.mark.parametrize("order", ["rank", "tree"])
def test_the_order_of_sums_can_be_asked_for(polypath, order):
    options = ("--reproducible", "--strict", "--order", order)
    done = polypath(
        *("run", *NODE, *options, "--", sys.executable, str(PROGRAM), str(STANDIN), "4")
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{order}\n", "")


#: A copy that the shim splits, on another GPU than nccl_program's.
COPY = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, memory, host = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 2)
cuda.cuCtxSetCurrent(context)
cuda.cuMemAlloc_v2(ctypes.byref(memory), 64 << 20)
cuda.cuMemHostAlloc(ctypes.byref(host), 64 << 20, 0)
cuda.cuMemcpyHtoDAsync_v2(memory, host, 64 << 20, None)
cuda.cuCtxSynchronize()
"""
SUM = f"import runpy, sys\nsys.argv = ['p', {str(STANDIN)!r}]\nrunpy.run_path({str(PROGRAM)!r})\n"


@pytest.mark.parametrize("program", [COPY + SUM, SUM + COPY], ids=["copy first", "sum first"])
def test_copies_and_sums_are_counted_once_each(polypath, tmp_path, program):
    stats = ("--reproducible", "--stats", str(tmp_path / "stats.json"))
    done = polypath(
        *("run", *NODE, *stats, "--setting", "prepare=wait", "--", sys.executable, "-c", program)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")
    (nccl_file,) = tmp_path.glob("stats.*.nccl.json")
    (copies_file,) = set(tmp_path.glob("stats.*.json")) - {nccl_file}
    copies = json.loads(copies_file.read_text())
    assert copies["calls"]["cuMemcpyHtoDAsync_v2"]["issued"] == 1
    assert copies["engine"]["split"] == 1
    nccl = json.loads(nccl_file.read_text())["nccl"]
    assert nccl["calls"]["ncclAllReduce"] == {"calls": 2, "bytes": 8000, "taken": 2, "to_nccl": {}}


def test_without_a_measurement_they_are_nccls(run):
    done = run("--stats", "text")
    assert (done.returncode, done.stdout) == (0, "right\n")
    assert "ncclAllReduce: 2 calls, 0.0 MiB, 0 taken; to NCCL: 2 x not measured" in done.stderr
    # Nothing is kept for communicators whose calls would never be taken.
    assert "communicators: 2, of which polypath's as well: 0" in done.stderr
    assert "2 x nothing was measured to be faster here" in done.stderr


def test_children_of_a_program_do_not_report_again(polypath, tmp_path):
    program = (
        f"import os, runpy, sys; sys.argv = ['p', {str(STANDIN)!r}]\n"
        f"runpy.run_path({str(PROGRAM)!r})\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(0)\n"
        "os.waitpid(child, 0)"
    )
    stats = ("--stats", str(tmp_path / "stats.json"))
    done = polypath("run", *NODE, *stats, "--", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("stats.*.nccl.json"))) == 1


def test_named_as_the_library(run):
    library = find_nccl()
    done = run(
        *("--reproducible", "--stats", "text"), library=library, POLYPATH_NCCL_LIBRARY=str(STANDIN)
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    assert "ncclAllReduce: 2 calls, 0.0 MiB, 2 taken" in done.stderr


def test_what_cannot_be_promised_is_one_line(run):
    done = run("--reproducible", "--setting", "nccl_collectives=off")
    why = "switched off (nccl_collectives)"
    assert (done.returncode, done.stdout) == (0, "right\n")
    assert done.stderr == (
        f"polypath: error: sums of an NCCL communicator are not in rank order: {why}\n"
    )


def test_a_strict_run_is_stopped(run):
    done = run("--reproducible", "--strict", "--setting", "nccl_collectives=off")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.endswith("; stopped (--strict)\n")


def test_names_past_this_library_stop_a_strict_run(polypath):
    program = (
        f"import ctypes; library = ctypes.CDLL({str(STANDIN)!r})\n"
        "library.ncclGetVersion(ctypes.byref(ctypes.c_int()))\n"
        "library.pncclAllReduce(None, None, 0, 7, 0, None, None)\n"
        "print('went on')"
    )
    options = ("--reproducible", "--strict")
    done = polypath("run", *NODE, *options, "--", sys.executable, "-c", program)
    assert (done.returncode, done.stdout) == (125, "")
    assert "sums of pncclAllReduce are not in rank order" in done.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("POLYPATH_REPRODUCIBLE", "true"), ("POLYPATH_STRICT", "yes")]
)
def test_a_promise_that_is_not_understood_is_said(polypath, name, value):
    # Past `polypath run`, which refuses it.
    program = ("env", f"{name}={value}", sys.executable, str(PROGRAM), str(STANDIN))
    done = polypath("run", *NODE, "--stats", "text", "--", *program)
    assert (done.returncode, done.stdout) == (0, "right\n")
    message = f"polypath: error: {name} is '{value}': 0 or 1 is wanted; nothing is promised\n"
    assert done.stderr.count(message) == 1, done.stderr
    assert "ncclAllReduce: 2 calls, 0.0 MiB, 0 taken" in done.stderr


@pytest.mark.parametrize(("value", "taken"), [("0", 0), ("1", 2)])
def test_a_promise_that_is_understood_is_not(run, value, taken):
    done = run("--stats", "text", POLYPATH_REPRODUCIBLE=value)
    assert (done.returncode, done.stdout) == (0, "right\n")
    assert "error" not in done.stderr
    assert f"ncclAllReduce: 2 calls, 0.0 MiB, {taken} taken" in done.stderr


def test_strict_alone_is_refused(run):
    done = run("--strict")
    assert done.returncode == 2
    assert "--strict is for --reproducible" in done.stderr


def test_the_doctor_says_it(polypath):
    done = polypath("doctor", *NODE, "--", sys.executable, str(PROGRAM), str(STANDIN))
    assert "0 of 2 collectives taken; to NCCL: 2 x not measured" in " ".join(done.stdout.split())


def test_a_second_nccl_is_left_alone(polypath, tmp_path):
    program = (
        "import ctypes; value = ctypes.c_int()\n"
        f"for name in 2 * ({str(STANDIN)!r}, {str(OLDER)!r}):\n"
        "    library = ctypes.CDLL(name); library.ncclGetVersion(ctypes.byref(value))\n"
        "    has = hasattr(library, 'ncclAlltoAll')\n"
        "    print(value.value, has, bool(library.ncclReduce))"
    )
    stats = ("--stats", str(tmp_path / "stats.json"))
    done = polypath("run", *NODE, *stats, "--", sys.executable, "-c", program)
    assert (done.returncode, done.stdout) == (0, 2 * "22809 True True\n21903 False True\n")
    assert done.stderr.count("this process has two NCCLs") == 1
    # No communicator was created: there is nothing to report.
    assert not list(tmp_path.iterdir())


def test_without_nccl_nothing_is_there(polypath):
    program = "import ctypes; print(hasattr(ctypes.CDLL(None), 'ncclAllReduce'))"
    done = polypath("run", *NODE, "--stats", "text", "--", sys.executable, "-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
