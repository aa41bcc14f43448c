"""`polypath tune backend` and `polypath plan backend` on a simulated node: what they print and
keep, what follows it, and what is refused. NCCL and NVSHMEM are what stands in for them."""

import json
import re

import pytest
from polypath._library import find_library
from polypath.backend_tuning import OPERATIONS
from polypath.sizes import figure
from test_bench_uniconn import STANDINS
from test_command_line import json_of, succeeded
from test_tune import lines_of

NODE = ("--node", "two_gpus.toml")
CLASS = "2 ranks, nvlink x2"
KEPT = ("--profile", "two.toml")


@pytest.fixture(autouse=True)
def node(request, tmp_path):
    text = request.path.with_name("two_gpus.toml").read_text()
    (tmp_path / "two_gpus.toml").write_text(text)


def standins():
    build = find_library().parent
    return {
        "LD_LIBRARY_PATH": ":".join(str(build / folder) for folder in STANDINS),
        "POLYPATH_SIM_MODE": "functional",
    }


def test_it_shows_what_it_found_and_keeps_it(polypath, tmp_path):
    tune = ("tune", "backend", *NODE, *KEPT, "--ops", "post,broadcast", "--sizes", "4K,64K")
    done = polypath(*tune, "--json", "found.json")
    text = succeeded(done)
    assert "tune: 1/4 post of 4096 bytes, 2 ranks, " in done.stderr
    assert "warning" not in done.stderr
    assert re.search(r"^4 entries, \d+ s, done$", text, re.MULTILINE)
    assert "profile: two.toml" in text or f"profile: {tmp_path / 'two.toml'}" in text
    assert f"post, {CLASS}\n" in text
    document = json.loads((tmp_path / "found.json").read_text())
    assert (document["stopped"], document["excluded"]) == (False, {})
    assert {(entry["op"], entry["bytes"]) for entry in document["comm"]} == {
        (op, bytes) for op in ("post", "broadcast") for bytes in (4096, 65536)
    }
    for entry in document["comm"]:
        assert (entry["ranks"], entry["backend"], entry["pairs"]) == (CLASS, "polypath", 1)
        assert entry["edited"] is False
        (time,) = entry["times"]
        assert time["backend"] == "polypath"
        assert 1 < time["us"] < 1000
        assert any(figure(time["us"]) in line for line in lines_of(text, "polypath"))

    # Nothing is left to measure, and it is shown without.
    again = polypath(*tune)
    assert again.stderr == ""
    assert re.search(r"^4 entries, \d+ s, done$", succeeded(again), re.MULTILINE)
    shown = succeeded(polypath("tune", "backend", "--show", *NODE, *KEPT, "--ops", "broadcast"))
    assert f"broadcast, {CLASS}" in shown
    assert "post" not in shown
    # What is tuned besides stays as it was.
    assert (
        json_of(polypath("tune", "backend", "--show", *NODE, *KEPT, "--json", "-"))["choices"] == []
    )


def test_without_a_table_a_plan_says_how_to_make_one(polypath):
    text = succeeded(polypath("plan", "backend", "post", "64M", *NODE))
    assert text.startswith(f"post of 64M, {CLASS}, on two-gpus (simulated)\n")
    assert f"by polypath: nothing was measured of post on {CLASS}\n" in text
    assert "`polypath tune backend` measures" in text
    planned = json_of(polypath("plan", "backend", "post", "64M", *NODE, "--json", "-"))
    assert planned["backend"] == "polypath"
    assert planned["entry"] is None
    assert [backend["us"] for backend in planned["backends"]] == [None] * 4
    assert succeeded(polypath("tune", "backend", "--show", *NODE)).startswith(
        "no backend was measured"
    )


def test_a_plan_follows_what_was_measured(polypath, tmp_path):
    """By what stands in for libraries, which takes real time; edits make the rest certain."""
    tune = ("tune", "backend", *NODE, *KEPT, "--ops", "post", "--sizes", "4K", "--pairs", "3")
    document = json_of(
        polypath(*tune, "--backends", "polypath,gpuccl,gpushmem", "--json", "-", **standins())
    )
    (entry,) = document["comm"]
    assert [time["backend"] for time in entry["times"]] == ["polypath", "gpuccl", "gpushmem"]
    assert all(time["us"] > 0 for time in entry["times"])
    assert entry["pairs"] == 3
    file = tmp_path / "two.toml"
    edited = re.sub(r'(?m)^backend = ".*"', 'backend = "gpuccl"', file.read_text())
    file.write_text(re.sub(r"(?m)^us = .*", "us = [20.00, 16.00, 12.50]", edited))

    def plan(*arguments, **settings):
        environment = {"POLYPATH_PROFILE": "two.toml", **settings}
        return polypath("plan", "backend", *arguments, *NODE, **environment)

    text = succeeded(plan("post", "6K", **standins()))
    assert "by gpuccl: edited in the profile\n" in text
    (row,) = lines_of(text, "gpuccl  ")
    assert re.search(r"gpuccl +16\.0 +0\.256 +yes", row)
    (row,) = lines_of(text, "gpushmem  ")
    assert "no: it sends to memory of its own alone" in row
    assert "measured with 4K, turns: 3; us a call" in text
    # Without that library, and for a size that nothing is known of.
    assert json_of(plan("post", "4K", "--json", "-"))["backend"] == "polypath"
    far = json_of(plan("post", "64K", "--json", "-", **standins()))
    assert (far["backend"], far["reason"]) == ("polypath", "no size near this one was measured")
    with_mpi = json_of(plan("post", "4K", "--mpi", "--json", "-"))
    assert with_mpi["backends"][3] == {"backend": "mpi", "us": None, "serves": True, "why": ""}
    # No search replaces an edit.
    kept = json_of(polypath(*tune, "--again", "--json", "-", **standins()))
    assert kept["comm"][0]["backend"] == "gpuccl"
    assert "edited" in succeeded(polypath("tune", "backend", "--show", *NODE, *KEPT))


def test_what_does_not_begin_is_left_out(polypath):
    tune = ("tune", "backend", *NODE, "--ops", "post", "--sizes", "4K")
    text = succeeded(
        polypath(*tune, "--backends", "gpuccl,polypath", POLYPATH_SIM_MODE="functional")
    )
    assert "what is found is kept in no profile" in text
    assert "without gpuccl: GpucclBackend: there is no libnccl.so.2" in text
    assert re.search(r"^1 entry, \d+ s, done$", text, re.MULTILINE)
    assert lines_of(text, "polypath")


@pytest.mark.parametrize("op", OPERATIONS)
def test_every_operation(polypath, op):
    """On three ranks, whose parts are no whole number of the size."""
    tune = ("tune", "backend", "--node", "narval", "--ranks", "3", "--ops", op, "--sizes", "1000")
    (entry,) = json_of(polypath(*tune, "--json", "-"))["comm"]
    assert entry["op"] == op
    parts = {"all_gather": 996, "all_to_all": 996}
    assert entry["bytes"] == parts.get(op, 1000)
    assert entry["times"][0]["us"] > 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("tune", "backend", "--backends", "gpuccl"), "gpuccl: only polypath has virtual time"),
        (("tune", "backend", "--backends", "nccl"), "'nccl' is not one of polypath"),
        (("tune", "backend", "--ops", "gossip"), "'gossip' is not one of post"),
        (("tune", "backend", "--ranks", "3"), "--ranks 3: there are 2 GPUs"),
        (("tune", "backend", "--ranks", "1"), "not a list of 2 to 64"),
        (("tune", "backend", "--budget", "soon"), "is no time"),
        (("plan", "backend", "gossip", "8"), "'gossip' is not one of post"),
        (("plan", "backend", "post", "8", "--ranks", "3"), "there is no GPU 2 on two-gpus"),
        (("plan", "backend", "post"), "SIZE"),
    ],
)
def test_what_is_refused(polypath, arguments, reason):
    done = polypath(*arguments, *NODE)
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
