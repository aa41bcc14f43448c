"""`polypath bench --beside`: what it measures next to other traffic, and that the traffic ends."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from polypath.beside import Copies, read_copies
from test_command_line_errors import the_one_line

TWO_GPUS = str(Path(__file__).parent / "two_gpus.toml")
FUNCTIONAL = {"POLYPATH_SIM_MODE": "functional"}


def measured(polypath, *arguments, **settings):
    done = polypath("bench", *arguments, "--json", "-", **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_row(row, iterations, rounds):
    assert row["verified"] is True
    assert len(row["rounds"]) == rounds
    for samples in row["rounds"]:
        for phase in ("idle", "loaded"):
            for way in ("native_us", "polypath_us"):
                assert len(samples[phase][way]) == iterations
                assert all(us > 0 for us in samples[phase][way])
    for phase in ("idle", "loaded"):
        for way in ("native", "polypath"):
            assert row[phase][f"{way}_mean_gbps"] > 0


def test_virtual_time_has_traffic_of_the_node(polypath):
    arguments = (
        *("d2h", "--node", "hgx-h200-x4", "--sizes", "64M", "--iterations", "3"),
        *("--beside", "d2h:gpu0,d2d:gpu1:gpu2"),
    )
    document = measured(polypath, *arguments)
    assert document["beside"]["copies"] == ["d2h:gpu0", "d2d:gpu1:gpu2"]
    assert document["beside"]["block"] == 64 << 20
    (row,) = document["rows"]
    check_row(row, iterations=3, rounds=1)
    # A copy of 64 MiB takes 1.2 ms, more than one turn of 1.07 ms at the copy engine. Events do not
    # show the wait for the first turn.
    assert row["idle"]["native_gbps"] == pytest.approx(55, rel=0.05)
    assert row["loaded"]["native_gbps"] < 30
    assert row["recovery_ms"] is not None
    assert measured(polypath, *arguments)["rows"] == document["rows"]


def test_period_has_pauses(polypath):
    # A copy of 24 MiB takes 1.26 ms, more than one turn.
    common = ("d2h", "--node", TWO_GPUS, "--sizes", "24M", "--iterations", "10")
    beside = ("--beside", "d2h:gpu0", "--beside-block", "8M")
    always = measured(polypath, *common, *beside)["rows"][0]["loaded"]
    periods = measured(polypath, *common, *beside, "--beside-period", "2ms")["rows"][0]["loaded"]
    assert always["native_mean_gbps"] < periods["native_mean_gbps"] < 20


@pytest.mark.parametrize("settings", [{}, FUNCTIONAL], ids=["virtual", "functional"])
def test_same_process_makes_traffic(polypath, settings):
    document = measured(
        polypath,
        *("p2p", "--node", TWO_GPUS, "--sizes", "1M", "--iterations", "4"),
        *("--beside", "d2h:gpu0,h2d:gpu1", "--beside-block", "1M", "--beside-same-process"),
        **settings,
    )
    check_row(document["rows"][0], iterations=4, rounds=1 if not settings else 3)
    assert document["beside"]["same_process"] is True


def test_starved_transfer_ends_the_traffic(polypath):
    # A copy from GPU 0 waits as long as this process's traffic there has copies: enough are queued
    # to let the thread that queues them rest for long.
    done = polypath(
        *("bench", "d2h", "--node", TWO_GPUS, "--sizes", "1M", "--iterations", "40"),
        *("--beside", "d2h:gpu0", "--beside-block", "4M", "--beside-queue", "400"),
        "--beside-same-process",
        **FUNCTIONAL,
        POLYPATH_SIM_ENGINES="greedy",
    )
    assert done.returncode == 1
    assert "of 1M has not ended, though 1312 copies of 4M of this process's traffic" in done.stderr
    assert "waited for more than 1312 copies of 4M that this process makes" in done.stderr


@pytest.mark.parametrize("more", [(), ("--beside-polypath",)], ids=["plain", "polypath"])
def test_another_process_makes_traffic(polypath, more):
    document = measured(
        polypath,
        *("h2d", "--node", TWO_GPUS, "--sizes", "256K", "--iterations", "4"),
        *("--beside", "h2d:gpu0", "--beside-block", "256K", "--beside-rounds", "2", *more),
        **FUNCTIONAL,
    )
    check_row(document["rows"][0], iterations=4, rounds=2)


#: What reading in /proc raises of a process that ends before it, or meanwhile.
GONE = (FileNotFoundError, ProcessLookupError)


def children_of(pid):
    with contextlib.suppress(*GONE):
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def traffic_of(pid):
    """The children that make traffic: others may come and go."""
    traffic = []
    for child in children_of(pid):
        with contextlib.suppress(*GONE):
            if "polypath.traffic_process" in Path(f"/proc/{child}/cmdline").read_text():
                traffic.append(child)
    return traffic


def is_running(pid):
    with contextlib.suppress(*GONE):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def wait_for(holds, seconds=120):
    limit = time.monotonic() + seconds
    while not (result := holds()):
        assert time.monotonic() < limit
        time.sleep(0.02)
    return result


@pytest.mark.parametrize("reason", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_is_left(tmp_path, reason):
    bench = subprocess.Popen(
        [
            *(sys.executable, "-m", "polypath", "bench", "p2p", "--node", TWO_GPUS),
            *("--sizes", "1M", "--iterations", "1000000", "--beside", "d2h:gpu0"),
        ],
        env={**os.environ, **FUNCTIONAL, "XDG_CACHE_HOME": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        (child,) = wait_for(lambda: traffic_of(bench.pid))
        bench.send_signal(reason)
        bench.wait(timeout=120)
        wait_for(lambda: not is_running(child))
    finally:
        bench.kill()
        bench.wait()


def test_copies_are_read():
    assert read_copies("d2h:gpu0, d2d:gpu1:gpu2") == [
        Copies("d2h", ("gpu0",)),
        Copies("d2d", ("gpu1", "gpu2")),
    ]


@pytest.mark.parametrize(
    "text", ["", "d2h", "h2h:gpu0", "d2h:gpu", "d2d:gpu0", "d2d:gpu0:gpu0", "h2d:gpu0:gpu1"]
)
def test_other_copies_are_refused(text):
    with pytest.raises(ValueError, match="is no copy"):
        read_copies(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--beside", "d2h:gpu9"), "gpu9 is not one of gpu0, gpu1"),
        (("--beside", "d2x:gpu0"), "is no copy"),
        (("--beside-block", "1M"), "--beside-block needs --beside"),
        (("--beside", "d2h:gpu0", "--window", "2"), "--window is not for --beside"),
        (("--beside", "d2h:gpu0", "--beside-period", "20"), "is no time"),
        (("--beside", "d2h:gpu0", "--beside-polypath"), "needs a second process"),
        (
            ("--beside", "d2h:gpu0", "--beside-polypath", "--beside-same-process"),
            "exclude each other",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(polypath, arguments, message):
    done = polypath("bench", "p2p", "--node", TWO_GPUS, "--sizes", "1M", *arguments)
    assert message in the_one_line(done, 2)
