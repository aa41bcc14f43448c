"""`polypath run`: what the program gets, and that it takes the place of the command."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from polypath._library import find_library
from polypath.launch.environment import (
    find_shim,
    find_simulated_driver,
    preloaded_libraries,
    with_libraries,
)

#: The library before NCCL, where it was built, and the shim.
PRELOADED = ":".join(map(str, preloaded_libraries()))
SHOW = (
    "import json, os, pathlib; print(json.dumps([dict(os.environ), "
    "pathlib.Path('/proc/self/maps').read_text()]))"
)
COUNT_GPUS = (
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int(); "
    "print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)"
)


@pytest.fixture
def seen(polypath):
    """Runs a program that shows what it got: `(environment, libraries)`."""

    def run(*options, **settings):
        done = polypath("run", *options, "--", sys.executable, "-c", SHOW, **settings)
        assert (done.returncode, done.stderr) == (0, "")
        environment, maps = json.loads(done.stdout)
        return environment, {line.split()[-1] for line in maps.splitlines()}

    return run


def test_the_shim_is_loaded(seen):
    environment, libraries = seen()
    assert environment["LD_PRELOAD"] == PRELOADED
    assert str(find_shim()) in libraries


def test_what_was_preloaded_before_stays_behind_it(seen):
    other = str(find_library())
    environment, libraries = seen(LD_PRELOAD=other)
    assert environment["LD_PRELOAD"] == f"{PRELOADED}:{other}"
    assert {other, str(find_shim())} <= libraries


def test_run_sets_max_copy_connections_by_default(seen):
    names = ("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "CUDA_DEVICE_MAX_CONNECTIONS")
    assert [seen()[0].get(name) for name in names] == ["32", None]
    assert [seen(**{names[0]: "4"})[0].get(name) for name in names] == ["4", None]
    assert [seen(**{names[1]: "1"})[0].get(name) for name in names] == [None, "1"]


def test_the_shim_is_preloaded_once(tmp_path):
    shim = tmp_path / "shim.so"
    shim.touch()
    link = tmp_path / "link.so"
    link.symlink_to(shim)
    assert with_libraries("", [shim]) == str(shim)
    for before in (f"a.so {shim} b.so", f"a.so:b.so:{link}", f"{shim}:a.so::b.so:{shim}"):
        assert with_libraries(before, [shim]) == f"{shim}:a.so:b.so"


def test_options_become_the_environment(seen, tmp_path):
    environment, _ = seen(
        *("--routes", "direct,gpu", "--emulate-mesh", "46", "--stats", "here.json"),
        *("--setting", "executor=graph", "--setting", "staging_size=128M"),
    )
    assert environment["POLYPATH_ROUTES"] == "direct,gpu"
    assert environment["POLYPATH_EMULATE_MESH"] == "46"
    assert environment["POLYPATH_EXECUTOR"] == "graph"
    assert environment["POLYPATH_STAGING_SIZE"] == "128M"
    assert environment["POLYPATH_STATS"] == str(tmp_path / "here.json")
    assert seen("--stats", "text")[0]["POLYPATH_STATS"] == "text"


def test_a_profile_may_be_named_from_another_folder(seen, tmp_path):
    file = str(tmp_path / "rel.toml")
    assert seen("--setting", "profile=rel.toml")[0]["POLYPATH_PROFILE"] == file
    assert seen(POLYPATH_PROFILE="rel.toml")[0]["POLYPATH_PROFILE"] == file
    environment, _ = seen("--setting", "profile=off", POLYPATH_PROFILE="rel.toml")
    assert environment["POLYPATH_PROFILE"] == "off"


def test_nothing_else_changes(seen):
    environment, _ = seen(POLYPATH_MIN_SIZE="1M")
    added = ("LD_PRELOAD", "CUDA_DEVICE_MAX_COPY_CONNECTIONS")
    kept = {name: value for name, value in environment.items() if name not in added}
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**kept},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)[0] == kept
    assert environment["POLYPATH_MIN_SIZE"] == "1M"
    assert "POLYPATH_STATS" not in environment
    assert "LD_LIBRARY_PATH" not in environment or "LD_LIBRARY_PATH" in os.environ


def test_a_node_takes_the_place_of_the_driver(polypath):
    command = ("run", "--node", "narval", "--", sys.executable, "-c", COUNT_GPUS)
    done = polypath(*command)
    assert (done.stdout, done.stderr) == ("0 0 4\n", "")


def test_a_node_file_may_be_named_from_another_folder(seen, tmp_path):
    shutil.copy(Path(__file__).with_name("two_gpus.toml"), tmp_path)
    folder = str(find_simulated_driver())
    environment, _ = seen("--node", "two_gpus.toml", LD_LIBRARY_PATH=f"/nowhere:{folder}")
    assert environment["LD_LIBRARY_PATH"] == f"{folder}:/nowhere"
    assert environment["POLYPATH_NODE"] == str(tmp_path / "two_gpus.toml")
    assert environment["POLYPATH_SIM_MODE"] == "functional"


def test_arguments_and_options_of_the_program_are_its_own(polypath):
    program = "import sys; print(sys.argv[1:])"
    arguments = ["--routes", "a b", "--", "--help", "", "*"]
    for start in (["--"], []):
        done = polypath("run", *start, sys.executable, "-c", program, *arguments)
        assert done.stdout.strip() == str(arguments)


def test_exit_code_is_the_programs(polypath):
    assert polypath("run", "--", "sh", "-c", "exit 7").returncode == 7


def test_process_and_signals_are_the_programs(tmp_path):
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))\n"
        "print(os.getpid(), flush=True)\n"
        "while True: signal.pause()\n"
    )
    command = [sys.executable, "-m", "polypath", "run", "--", sys.executable, "-c", program]
    for number, code in ((signal.SIGUSR1, 5), (signal.SIGTERM, -signal.SIGTERM)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout.readline().strip() == str(running.pid)
            running.send_signal(number)
            assert running.wait(timeout=600) == code


def test_print_is_for_the_shell(polypath, seen):
    options = ("--node", "narval", "--routes", "direct,host", "--stats", "a b.json")
    printed = polypath("run", "--print", *options).stdout
    done = subprocess.run(
        ["sh", "-c", 'eval "$1"; exec "$2" -c "$3"', "sh", printed, sys.executable, SHOW],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    by_shell = json.loads(done.stdout)[0]
    by_run, _ = seen(*options)
    for line in printed.splitlines():
        name = line.removeprefix("export ").partition("=")[0]
        assert by_shell[name] == by_run[name]
    assert {name for name in by_shell if name.startswith(("POLYPATH", "LD_"))} == {
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "POLYPATH_NODE",
        "POLYPATH_SIM_MODE",
        "POLYPATH_ROUTES",
        "POLYPATH_STATS",
    }
