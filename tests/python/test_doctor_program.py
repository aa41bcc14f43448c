"""`polypath doctor -- PROGRAM`: what the processes of a program did, on a simulated node."""

import json
import os
import shlex
import sys

import pytest
from polypath.doctor.program import Outcome, program_findings
from test_command_line_errors import the_one_line
from test_doctor import TWO_GPUS, doctor, wrong

SIZE = 16 << 20
ROUND_TRIP = [sys.executable, "-m", "polypath.doctor.trial_programs"]
ROUND_TRIP += ["copies", "dlsym", str(SIZE)]

__all__ = ["doctor"]

#: Copies that stay native, each for a reason of its own: pageable memory, too small, within a GPU.
NATIVE = f"""
import ctypes
import os
os.environ["POLYPATH_COPY_THREADS"] = "1"  # as on one CPU
from polypath.doctor.driver import Driver, copy_function
driver = Driver()
size = {SIZE}
gpu = driver.device_memory(0, size)
other = driver.device_memory(0, size)
stream = driver.stream()
to_gpu = copy_function(driver, "dlsym", "cuMemcpyHtoDAsync_v2")
within = copy_function(driver, "dlsym", "cuMemcpyDtoDAsync_v2")
pageable = ctypes.create_string_buffer(size)
pinned = driver.pinned(size)
for _ in range(3):
    to_gpu(gpu, ctypes.addressof(pageable), size, stream)
to_gpu(gpu, ctypes.addressof(pinned), 4096, stream)
within(other, gpu, size, stream)
driver.synchronise(stream)
"""


def test_a_program_whose_copies_are_split(doctor):
    code, result = doctor("--node", "narval", "--", *ROUND_TRIP)
    assert (code, result["exit_code"], wrong(result)) == (0, 0, {})
    (process,) = result["processes"]
    assert process["command"] == " ".join(ROUND_TRIP)
    assert set(process["calls"]) == {
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
    }
    for call in process["calls"].values():
        assert call == {"calls": 1, "bytes": SIZE, "offloaded": 1, "issued": 1}
    assert sum(route["bytes"] for route in process["engine"]["routes"]) == 3 * SIZE
    texts = {finding["what"]: finding["text"] for finding in result["findings"]}
    assert texts["caught"] == "3 copies of 1 processes"
    assert texts["split"] == "3 of 3 copies that were large enough"


def test_a_program_in_this_folder_is_what_runs(polypath, tmp_path):
    for name in ("peer", "echo"):  # there is an echo in PATH
        file = tmp_path / name
        file.write_text('#!/bin/sh\nprintf "%s " mine "$0" "$@"\n')
        file.chmod(0o755)
        for command, path in ((f"./{name}", os.environ["PATH"]), (name, f".:{os.environ['PATH']}")):
            done = polypath("doctor", "--node", "narval", "--", command, "x", PATH=path)
            assert f"mine ./{name} x" in done.stdout, done.stderr
            done = polypath("run", "--node", "narval", "--", command, "x", PATH=path)
            assert done.stdout == f"mine ./{name} x ", done.stderr


def test_its_tables_and_output(polypath):
    done = polypath("doctor", "--node", "narval", "--", *ROUND_TRIP)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert '"verified": true' in text  # the program's own
    assert "3 48.0 MiB 3 3 direct " in text
    assert "cuMemcpyDtoDAsync_v2 1 16.0 MiB 1 1" in text
    assert "caught ok 3 copies of 1 processes" in text


def test_every_process_counts(doctor):
    two = " & ".join([shlex.join(ROUND_TRIP)] * 2) + " & wait"
    code, result = doctor("--node", str(TWO_GPUS), "--", "sh", "-c", two)
    assert code == 0, wrong(result)
    assert len({process["pid"] for process in result["processes"]}) == 2
    texts = {finding["what"]: finding["text"] for finding in result["findings"]}
    assert texts["caught"] == "6 copies of 2 processes"


def test_reasons_come_with_advice(doctor):
    code, result = doctor("--node", str(TWO_GPUS), "--", sys.executable, "-c", NATIVE)
    assert code == 1
    assert wrong(result) == {"native": "3 x pageable memory"}
    native = {
        finding["text"]: finding for finding in result["findings"] if finding["what"] == "native"
    }
    assert "pin_memory" in native["3 x pageable memory"]["advice"]
    assert native["1 x same memory"]["state"] == "note"
    (process,) = result["processes"]
    assert process["calls"]["cuMemcpyHtoDAsync_v2"]["calls"] == 4
    assert process["engine"]["split"] == 0
    findings = {finding["what"]: finding for finding in result["findings"]}
    assert findings["split"]["state"] == "note"


def test_a_program_that_makes_no_copies(doctor):
    code, result = doctor("--", "true")
    assert code == 1
    assert result["processes"] == []
    assert wrong(result) == {"caught": "no process made a copy that can be caught"}


@pytest.mark.parametrize(
    ("end", "exit_code", "text"),
    [("exit 3", 3, "ended with 3"), ("kill -9 $$", -9, "was killed by signal 9")],
)
def test_a_program_that_fails(doctor, end, exit_code, text):
    program = f"{shlex.join(ROUND_TRIP)}; {end}"
    code, result = doctor("--node", str(TWO_GPUS), "--", "sh", "-c", program)
    assert (code, result["exit_code"]) == (1, exit_code)
    assert wrong(result) == {"program": text}
    assert len(result["processes"]) == 1


def test_settings_of_the_environment_reach_the_program(doctor):
    code, result = doctor("--node", "narval", "--", *ROUND_TRIP, POLYPATH_ROUTES="direct,host")
    assert code == 0
    routes = {route["route"] for route in result["processes"][0]["engine"]["routes"]}
    assert "via host0" in routes
    assert not any(route.startswith("via gpu") for route in routes)


def test_the_programs_output_and_json_are_kept_apart(polypath):
    done = polypath("doctor", "--json", "-", "--", "sh", "-c", "echo mine; cat", POLYPATH_ROUTES="")
    assert json.loads(done.stdout)["command"] == ["sh", "-c", "echo mine; cat"]
    assert "mine" in done.stderr


def test_a_program_that_cannot_be_caught(polypath):
    assert "nowhere" in the_one_line(polypath("doctor", "--", "nowhere"), 127)
    assert "takes LD_PRELOAD out" in the_one_line(
        polypath("doctor", "--", "env", "-i", "true"), 125
    )


def test_collectives_of_mpi():
    def process(taken, reasons, refusal):
        calls = {"calls": taken + sum(reasons.values()), "taken": taken, "to_mpi": reasons}
        mpi = {"refusal": refusal, "calls": {"MPI_Allreduce": calls}}
        return {"calls": {}, "mpi": mpi, "engine": None}

    processes = [process(3, {"host memory": 2}, None), process(0, {"no communicator": 4}, "alone")]
    processes.append({"calls": {}, "mpi": None, "engine": None})
    mpi_findings = [
        finding for finding in program_findings(Outcome(0, processes)) if finding.what == "MPI"
    ]
    assert [finding.text for finding in mpi_findings] == [
        "3 of 9 collectives taken; to MPI: 2 x host memory, 4 x no communicator",
        "no communicator: alone",
    ]
    assert [finding.state for finding in mpi_findings] == ["well", "note"]
