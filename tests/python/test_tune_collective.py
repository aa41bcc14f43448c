"""`polypath tune allreduce` and its family on a simulated node: what it prints and keeps, what
follows it, and what is refused."""

import json
import re

import pytest
from polypath.cli.tune_collective import way_text
from polypath.collective_tuning import CollectiveTuning, tune_in_processes
from polypath.errors import PolypathError
from polypath.sizes import figure
from test_command_line import json_of, succeeded
from test_tune import lines_of

NODE = ("--node", "two_gpus.toml")
CLASS = "2 ranks, nvlink x2"


@pytest.fixture(autouse=True)
def node(tmp_path, two_gpus):
    (tmp_path / "two_gpus.toml").write_text(two_gpus)


@pytest.fixture(scope="module")
def two_gpus(request):
    return request.path.with_name("two_gpus.toml").read_text()


@pytest.fixture(scope="module")
def tuned_profile():
    """A profile that a test left for others."""
    return {}


def tuned(polypath, tmp_path, profiles):
    """The profile of an allreduce of 4K, searched once."""
    file = tmp_path / "two.toml"
    if "text" not in profiles:
        tune = ("tune", "allreduce", *NODE, "--sizes", "4K", "--profile", file.name)
        done = polypath(*tune, "--json", "found.json", "--budget", "10m")
        profiles["done"] = succeeded(done), done.stderr
        profiles["found"] = json.loads((tmp_path / "found.json").read_text())
        profiles["text"] = file.read_text()
    file.write_text(profiles["text"])
    return file


def test_it_shows_what_it_found_and_keeps_it(polypath, tmp_path, tuned_profile):
    file = tuned(polypath, tmp_path, tuned_profile)
    text, errors = tuned_profile["done"]
    assert "tune: 1/1 allreduce, 4 KiB, " in errors
    assert "warning" not in errors
    assert re.search(r"^1 entry, \d+ s, done$", text, re.MULTILINE)
    assert f"profile: {file.name}" in text
    assert text.startswith(f"allreduce, {CLASS}\n")
    (entry,) = tuned_profile["found"]["collectives"]
    assert tuned_profile["found"]["stopped"] is False
    assert (entry["op"], entry["ranks"], entry["bytes"]) == ("allreduce", CLASS, 4096)
    assert entry["planned_us"] >= entry["us"] > 0
    assert entry["tried"] > 3
    assert entry["edited"] is False
    (row,) = lines_of(text, way_text(entry))
    assert figure(entry["us"]) in row

    # Nothing is left to search, and it is shown without a search.
    again = polypath("tune", "allreduce", *NODE, "--sizes", "4K", "--profile", file.name)
    assert again.stderr == ""
    assert re.search(r"^1 entry, \d+ s, done$", succeeded(again), re.MULTILINE)
    shown = succeeded(polypath("tune", "collectives", "--show", *NODE, "--profile", file.name))
    assert way_text(entry) in shown
    other = succeeded(polypath("tune", "reduce", "--show", *NODE, "--profile", file.name))
    assert "no collective is tuned for two-gpus" in other


def test_a_plan_follows_it_and_says_so(polypath, tmp_path, tuned_profile):
    file = tuned(polypath, tmp_path, tuned_profile)
    without = json_of(polypath("plan", "allreduce", "4K", *NODE, "--json", "-"))
    assert without["tuned"] is None
    planned = json_of(
        polypath("plan", "allreduce", "4K", *NODE, "--json", "-", POLYPATH_PROFILE=file.name)
    )
    (entry,) = tuned_profile["found"]["collectives"]
    assert planned["tuned"]["us"] == pytest.approx(entry["us"], abs=0.01)  # the file's decimals
    assert planned["kernel"]["blocks"] == entry["blocks"]
    assert planned["reason"].startswith("tuned: ")
    # An entry that a user wrote: another way, and its figures.
    file.write_text(
        tuned_profile["text"].replace(
            "[[collective]]",
            '[[collective]]\nop = "allreduce"\nranks = "2 ranks, nvlink x2"\nbytes = 1048576\n'
            'algorithm = "flat"\nstages = 1\nblocks = 3\nplanned_us = 50\nus = 40\n\n'
            "[[collective]]",
            1,
        )
    )
    text = succeeded(polypath("plan", "allreduce", "1M", *NODE, POLYPATH_PROFILE=file.name))
    assert "flat: tuned: 40.0 us measured at 1048576 bytes, against 50.0 us by lines" in text
    assert "one kernel a rank, one stage, 3 blocks" in text
    assert "edited" in succeeded(
        polypath("tune", "collectives", "--show", *NODE, "--profile", file.name)
    )
    # With a chosen algorithm, or number of blocks, the plan follows the cost model.
    for asked in (("--algorithm", "flat"), ("--blocks", "8")):
        arguments = ("plan", "allreduce", "1M", *NODE, *asked, "--json", "-")
        assert json_of(polypath(*arguments, POLYPATH_PROFILE=file.name))["tuned"] is None


def test_an_edited_entry_is_kept(polypath, tmp_path, tuned_profile):
    file = tuned(polypath, tmp_path, tuned_profile)
    file.write_text(re.sub(r"(?m)^blocks = \d+", "blocks = 3", tuned_profile["text"]))
    tune = ("tune", "allreduce", *NODE, "--sizes", "4K", "--profile", file.name, "--again")
    text = succeeded(polypath(*tune))
    (row,) = lines_of(text, "edited")
    assert "3 blocks" in row
    assert re.search(r"\d+ s, done", text)


def test_a_bench_follows_it(polypath, tmp_path, tuned_profile):
    file = tuned(polypath, tmp_path, tuned_profile)
    file.write_text(
        tuned_profile["text"]
        .replace('algorithm = "cells"', 'algorithm = "flat"')
        .replace("digest", "# digest")
    )
    arguments = (
        "bench",
        "allreduce",
        *NODE,
        "--sizes",
        "4K",
        "--against",
        "none",
        "--json",
        "b.json",
    )
    succeeded(polypath(*arguments, POLYPATH_PROFILE=file.name))
    (row,) = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert row["algorithm"] == "flat"
    assert row["verified"]


@pytest.mark.parametrize(
    "change, reason",
    [
        ((r"(?m)^blocks = \d+", "blocks = 0"), "blocks: must be a whole number from 1 to 1024"),
        ((r"(?m)^fingerprint = .*", "fingerprint = 'ab12'"), "measured on another node or driver"),
        ((r"(?s)\[end\].*", ""), "is cut short: [end] is missing"),
    ],
)
def test_a_damaged_or_foreign_table_is_refused(polypath, tmp_path, tuned_profile, change, reason):
    file = tuned(polypath, tmp_path, tuned_profile)
    file.write_text(re.sub(*change, tuned_profile["text"]))
    done = polypath("plan", "allreduce", "4K", *NODE, "--json", "-", POLYPATH_PROFILE=file.name)
    assert json_of(done)["tuned"] is None
    (warning,) = lines_of(done.stderr, "warning")
    assert reason in warning
    assert file.name in warning


def test_what_is_refused(polypath):
    for arguments, reason in (
        (("--ranks", "3"), "--ranks 3: there are 2 GPUs"),
        (("--sizes", "0"), "size"),
        (("--budget", "soon"), "'soon' is no time"),
    ):
        done = polypath("tune", "allreduce", *NODE, *arguments)
        assert done.returncode == 2
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def in_processes(monkeypatch, tmp_path):
    """Ranks that are processes, as on GPUs: searches an operation of 4K with this progress."""
    monkeypatch.setenv("POLYPATH_NODE", str(tmp_path / "two_gpus.toml"))
    monkeypatch.setenv("POLYPATH_SIM_MODE", "functional")
    monkeypatch.setenv("POLYPATH_PROFILE", str(tmp_path / "processes.toml"))
    return lambda op, progress: tune_in_processes(CollectiveTuning(op, 2, [4096], 600.0), progress)


def test_ranks_that_are_processes(in_processes, tmp_path):
    progress = []
    document = in_processes("allreduce", lambda *what: progress.append(what))
    assert document["stopped"] is False
    (entry,) = document["collectives"]
    assert (entry["op"], entry["ranks"], entry["bytes"]) == ("allreduce", CLASS, 4096)
    assert progress[0][:2] == (0, 1)
    assert progress[-1][:2] == (1, 1)
    assert (tmp_path / "processes.toml").read_text().count("[[collective]]") == 1
    # Stopped, it keeps what was found before.
    stopped = in_processes("reduce", lambda *_what: False)
    assert stopped["stopped"] is True
    assert [entry["op"] for entry in stopped["collectives"]] == ["allreduce"]


def test_errors_of_ranks_that_are_processes(in_processes):
    with pytest.raises(PolypathError, match="there is no collective 'gossip'"):
        in_processes("gossip", None)

    def fail(*_what):
        raise ValueError("of the progress")

    with pytest.raises(ValueError, match="of the progress"):
        in_processes("allreduce", fail)
