"""`polypath run` measures a machine that was never measured, once, before the program starts. The
machine is a simulated node, of which the engine is not told that it is one."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from polypath.launch.environment import find_shim
from simulated import machine_settings
from test_bench_beside import GONE, children_of

HERE = Path(__file__).parent
SAYS = "polypath: measuring this node, once (`--no-measure` skips it)\n"
ONE_GPU = "count = 1"
#: Prints what the engine knows of the capacities when the program starts.
PROGRAM = """
from polypath import Context
with Context() as context: print(context.topology()["capacities"])
"""


@pytest.fixture
def machine(polypath, tmp_path):
    """Runs `polypath run OPTIONS -- PROGRAM` on a machine: `(result, profiles)`."""

    def run(*options, node=HERE / "two_gpus.toml", program=PROGRAM, **settings):
        here = machine_settings(tmp_path, node)
        done = polypath(
            *("run", *options, "--", sys.executable, "-c", program), **{**here, **settings}
        )
        return done, sorted((tmp_path / "cache" / "polypath").glob("*.toml"))

    return run


def outputs(done):
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_run_measures_once_then_starts_with_profile(machine):
    done, (profile,) = machine()
    assert outputs(done) == ("measured\n", SAYS)
    written = profile.stat().st_mtime_ns
    done, profiles = machine()
    assert outputs(done) == ("measured\n", "")
    assert (profiles, profile.stat().st_mtime_ns) == ([profile], written)


def test_it_measures_what_the_node_file_says(machine):
    done, (profile,) = machine()
    text = profile.read_text()
    assert outputs(done)[1] == SAYS
    rates = [float(line.split("=")[1]) for line in text.splitlines() if line.startswith("gbps")]
    # For two links between GPUs, and for four with the host.
    for expected, count in ((50, 2), (20, 4)):
        assert sum(rate == pytest.approx(expected, rel=0.03) for rate in rates) >= count


def test_nothing_is_measured_when_it_is_not_wanted(machine):
    assert outputs(machine("--no-measure")[0]) == ("defaults\n", "")
    assert outputs(machine(POLYPATH_PROFILE="off")[0]) == ("defaults\n", "")
    # As in what another `polypath run` started.
    assert outputs(machine(LD_PRELOAD=str(find_shim()))[0]) == ("defaults\n", "")
    done, profiles = machine("--print")
    assert "LD_PRELOAD" in outputs(done)[0]
    assert (done.stderr, profiles) == ("", [])


def test_one_gpu_has_nothing_to_measure(machine, tmp_path):
    blocks = (HERE / "two_gpus.toml").read_text().replace("count = 2", ONE_GPU).split("[[link]]")
    file = tmp_path / "one.toml"
    file.write_text("[[link]]".join(block for block in blocks if 'to = "gpu*"' not in block))
    done, profiles = machine(node=file)
    assert (outputs(done), profiles) == (("defaults\n", ""), [])


def test_no_gpu_and_simulated_nodes_have_nothing_to_measure(polypath, tmp_path):
    program = ("--", sys.executable, "-c", "print('started')")
    for options in (["--node", "narval"], []):
        done = polypath("run", *options, *program, CUDA_VISIBLE_DEVICES="")
        assert outputs(done) == ("started\n", "")
    assert not list(tmp_path.rglob("*.toml"))


def test_a_profile_that_cannot_be_written_is_a_line(machine, tmp_path):
    (tmp_path / "file").touch()
    done, profiles = machine(XDG_CACHE_HOME=str(tmp_path / "file"))
    out, errors = outputs(done)
    assert (out, profiles) == ("defaults\n", [])
    assert len(errors.splitlines()) == 1
    assert errors.startswith("polypath: this node is not measured, defaults serve: ")
    assert str(tmp_path / "file") in errors


def test_on_an_emulated_mesh_the_node_itself_is_measured(machine):
    program = "print('started')"
    done, (_,) = machine("--emulate-mesh", "20", program=program)
    assert outputs(done) == ("started\n", SAYS)


def test_of_many_that_start_at_once_one_measures(tmp_path):
    environment = {**os.environ, **machine_settings(tmp_path, HERE / "two_gpus.toml")}
    command = [sys.executable, "-m", "polypath", "run", "--", sys.executable, "-c", PROGRAM]
    started = [
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=1200) for process in started]
    assert [out for out, _ in outputs] == ["measured\n"] * 3
    assert sorted(errors for _, errors in outputs) == ["", "", SAYS]


def lock_of(profile):
    return profile.with_suffix(".lock")


def waits_for(file, process):
    """Until a child of the process has the file open."""
    while process.poll() is None:
        for child in children_of(process.pid):
            with contextlib.suppress(*GONE):  # also of one that ends meanwhile
                for descriptor in Path(f"/proc/{child}/fd").iterdir():
                    if os.path.realpath(descriptor) == str(file.resolve()):
                        return
        time.sleep(0.01)
    raise AssertionError(process.communicate())


def test_a_program_starts_only_when_the_other_has_measured(machine, tmp_path):
    profile = machine()[1][0]
    kept = shutil.move(profile, tmp_path / "kept")
    environment = {**os.environ, **machine_settings(tmp_path, HERE / "two_gpus.toml")}
    with lock_of(profile).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [sys.executable, "-m", "polypath", "run", "--", sys.executable, "-c", PROGRAM],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        waits_for(lock_of(profile), process)
        shutil.move(kept, profile)
    assert process.communicate(timeout=1200) == ("measured\n", "")


def test_waiting_ends(machine, tmp_path):
    profile = machine()[1][0]
    profile.unlink()
    environment = {**os.environ, **machine_settings(tmp_path, HERE / "two_gpus.toml")}
    with lock_of(profile).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = "from polypath.launch.measure import measure_once; measure_once(wait_s=0)"
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stderr == (
        "polypath: this node is not measured, defaults serve: another process has been measuring "
        "it for 0 s\n"
    )
    assert not profile.exists()
