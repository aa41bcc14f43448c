"""`polypath tune` on simulated nodes: what it prints and keeps, what it refuses, and that Ctrl-C
loses nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from polypath import Context
from polypath.cli.tune import choice_text
from polypath.sizes import figure
from test_command_line import PNG, json_of, succeeded
from test_command_line_errors import the_one_line

PAIR = ("--node", "narval", "--src", "gpu0", "--dst", "gpu1")
CLASS = "gpu to gpu, nvlink x4, via 2 gpu, 1 host"
PATTERNS = {"one way", "both ways", "window"}


def lines_of(text, word):
    return [line for line in text.splitlines() if word in line]


def test_tune_shows_what_it_found_and_keeps_it(polypath, tmp_path):
    tune = ("tune", *PAIR, "--sizes", "2M", "--profile", "narval.toml")
    done = polypath(*tune, "--json", "tuned.json", "--plot", "tuned.png", "--budget", "10m")
    text = succeeded(done)
    assert "tune: 1/3 gpu0 to gpu1, one way, 2 MiB, " in done.stderr
    assert "tune: 3/3 gpu0 to gpu1, window, 2 MiB, " in done.stderr
    assert "warning" not in done.stderr
    assert re.search(r"^6 choices, \d+ s, done$", text, re.MULTILINE)
    assert "profile: narval.toml" in text
    assert (tmp_path / "tuned.png").read_bytes().startswith(PNG)

    document = json.loads((tmp_path / "tuned.json").read_text())
    assert document["stopped"] is False
    assert document["profile"] == "narval.toml"
    assert {(choice["pattern"], choice["executor"]) for choice in document["choices"]} == {
        (pattern, executor) for pattern in PATTERNS for executor in ("stream", "graph")
    }
    for choice in document["choices"]:
        assert choice["pair"] == CLASS
        assert choice["bytes"] == 2 << 20
        assert choice["edited"] is False
        assert choice["measured_gbps"] >= choice["native_gbps"] > 0
        assert choice["tried"] >= 1
        assert sum(route["share"] for route in choice["routes"]) == pytest.approx(1)
        rows = [line for line in lines_of(text, choice["executor"]) if choice_text(choice) in line]
        assert any(figure(choice["measured_gbps"]) in row for row in rows)

    shown = polypath("tune", "--show", "--node", "narval", "--profile", "narval.toml")
    table = text[: text.index("6 choices")]
    assert table.startswith(CLASS + "\n")
    # The file has fewer decimals.
    number = re.compile(r" +\d+(\.\d+)?")
    assert number.sub(" #", succeeded(shown)) == number.sub(" #", table) + "profile: narval.toml\n"
    assert shown.stderr == ""

    # Nothing is left to search; a plan follows what was found.
    again = polypath(*tune)
    assert again.stderr == ""
    assert re.search(r"^6 choices, \d+ s, done$", succeeded(again), re.MULTILINE)
    arguments = ("plan", "gpu2", "gpu0", "2M", "--node", "narval", "--json", "-")
    plan = json_of(polypath(*arguments, POLYPATH_PROFILE="narval.toml"))
    best = max(
        (choice for choice in document["choices"] if choice["pattern"] == "one way"),
        key=lambda choice: choice["measured_gbps"],
    )
    routes = plan["transfers"][0]["routes"]
    assert [route["chunks"] for route in routes] == [route["chunks"] for route in best["routes"]]
    assert [route["share"] for route in routes] == pytest.approx(
        [route["share"] for route in best["routes"]], abs=0.01
    )


def test_without_a_profile_nothing_is_kept(polypath, tmp_path):
    text = succeeded(polypath("tune", *PAIR, "--sizes", "1M"))
    assert (
        text.splitlines()[0] == "what is found is kept in no profile: name one with --profile FILE"
    )
    assert not list(tmp_path.rglob("*.toml"))
    shown = succeeded(polypath("tune", "--show", "--node", "narval"))
    assert "nothing is tuned for narval" in shown


def test_json_on_stdout_is_alone_there(polypath):
    document = json_of(polypath("tune", *PAIR, "--sizes", "1M", "--json", "-"))
    assert len(document["choices"]) == 6


def test_an_edited_entry_is_marked_and_kept(polypath, tmp_path):
    file = tmp_path / "narval.toml"
    tune = ("tune", *PAIR, "--sizes", "1M", "--profile", file.name)
    succeeded(polypath(*tune))
    assert "edited" not in succeeded(polypath("tune", "--show", *PAIR[:2], "--profile", file.name))
    text = file.read_text()
    start = text.index("[[tuned]]")
    file.write_text(text[:start] + text[start:].replace("slots = ", "slots = 1", 1))
    (line,) = lines_of(succeeded(polypath(*tune, "--again")), "edited")
    assert "1M" in line
    assert re.search(r"^slots = 1\d$", file.read_text(), re.MULTILINE)


def test_a_profile_that_is_not_usable_is_told_in_a_line(polypath, tmp_path):
    (tmp_path / "broken.toml").write_text("schema = ")
    done = polypath("tune", *PAIR, "--sizes", "1M", "--profile", "broken.toml")
    assert "6 choices" in succeeded(done)
    warnings = lines_of(done.stderr, "warning")
    assert "defaults serve: broken.toml:1: " in warnings[0]
    assert "Traceback" not in done.stderr
    assert (tmp_path / "broken.toml.refused").read_text() == "schema = "
    assert "[[tuned]]" in (tmp_path / "broken.toml").read_text()


@pytest.mark.parametrize("command", ["tune", "tune backend", "tune allreduce"])
def test_unwritable_profile_is_refused_before_the_run(polypath, tmp_path, command):
    arguments = (*command.split(), "--node", "narval")
    for place in ("/proc/x.toml", "/dev/null/x.toml"):
        line = the_one_line(polypath(*arguments, "--profile", place), 2)
        assert f"--profile: '{place}' cannot be written: " in line
        line = the_one_line(polypath(*arguments, POLYPATH_PROFILE=place), 2)
        assert f"POLYPATH_PROFILE: '{place}' cannot be written: " in line
    assert not list(tmp_path.iterdir())
    shown = succeeded(polypath("tune", "--show", "--node", "narval", "--profile", "no/x.toml"))
    assert "nothing is tuned" in shown


def test_the_folder_of_a_profile_is_made(polypath, tmp_path):
    succeeded(polypath("tune", *PAIR, "--sizes", "1M", "--profile", "not/yet/x.toml"))
    assert "[[tuned]]" in (tmp_path / "not" / "yet" / "x.toml").read_text()


def identity_of(status: os.stat_result) -> tuple[int, ...]:
    """What stays although other programs use the thing: all have /dev/null open."""
    return status.st_dev, status.st_ino, status.st_mode, status.st_nlink, status.st_size


@pytest.mark.parametrize("thing", ["folder", "pipe", "device"])
@pytest.mark.parametrize("command", [("tune", *PAIR), ("tune", "backend", *PAIR[:2])])
def test_what_is_no_regular_file_stays_as_it_is(polypath, tmp_path, thing, command):
    place = tmp_path / "victim"
    if thing == "folder":
        place.mkdir()
    elif thing == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/null")
    before = (identity_of(place.lstat()), identity_of(place.stat()))
    done = polypath(*command, "--sizes", "1M", "--profile", "victim")
    assert "victim: is no regular file" in the_one_line(done, 2)
    if thing == "pipe":
        done = polypath("plan", "gpu0", "gpu1", "1M", *PAIR[:2], POLYPATH_PROFILE="victim")
        assert "victim: is no regular file" in the_one_line(done, 2)
    assert (identity_of(place.lstat()), identity_of(place.stat())) == before
    assert [path.name for path in tmp_path.iterdir() if "victim" in path.name] == ["victim"]


def test_two_searches_at_once_keep_what_both_find(polypath, tmp_path):
    pairs = (("gpu0", "gpu1"), ("host0", "gpu0"))
    kept = ("--profile", "two.toml")
    arguments = [
        ("tune", "--node", "narval", *("--src", src, "--dst", dst, "--sizes", "1M,2M"), *kept)
        for src, dst in pairs
    ]
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda command: polypath(*command), arguments):
            assert succeeded(done)
            assert "warning" not in done.stderr
    shown = polypath("tune", "--show", *PAIR[:2], "--profile", "two.toml", "--json", "-")
    choices = json_of(shown)["choices"]
    assert {choice["pair"].split(",")[0] for choice in choices} == {"gpu to gpu", "host to gpu"}
    assert len(choices) == 12 + 8
    assert not list(tmp_path.glob("two.toml?*"))


def test_the_budget_stops_it(polypath):
    done = polypath("tune", "--node", "narval", "--sizes", "4M", "--budget", "0.01s")
    assert re.search(
        r"^\d+ choices, \d+ s, stopped; the same command goes on from here$",
        succeeded(done),
        re.MULTILINE,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--src", "gpu0"], ["--src and --dst go together"]),
        (["--dst", "gpu0"], ["--src and --dst go together"]),
        (["--src", "gpu0", "--dst", "moon"], ["moon"]),
        (["--src", "gpu0", "--dst", "gpu9"], ["gpu9", "4 GPUs"]),
        (["--src", "gpu0", "--dst", "gpu0"], ["source and destination are both gpu0"]),
        (["--sizes", "1M,128K"], ["131072", "below 256 KiB are never split"]),
        (["--sizes", "x"], ["--sizes", "'x'"]),
        (["--budget", "soon"], ["--budget", "'soon' is no time", "60s, or 5m"]),
        (["--budget", "0"], ["--budget", "'0' is no time"]),
        (["--plot", "x.txt"], ["--plot", "'x.txt'"]),
    ],
)
def test_arguments(polypath, arguments, words):
    line = the_one_line(polypath("tune", "--node", "narval", *arguments), 2)
    for word in words:
        assert word in line


def test_ctrl_c_stops_it_and_the_next_run_goes_on(polypath, tmp_path):
    """Interrupted after the first choices were kept: those stay as they are, the rest follows."""
    file = tmp_path / "narval.toml"
    tune = ("tune", "--node", "narval", "--sizes", "1M,2M", "--profile", str(file))
    search = subprocess.Popen(
        [sys.executable, "-m", "polypath", *tune, "--budget", "10m", "--json", "first.json"],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name != "POLYPATH_NODE"},
            "COLUMNS": "160",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 600
    while not file.exists() or file.read_text().count("[[tuned]]") < 3:
        assert search.poll() is None, search.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    search.send_signal(signal.SIGINT)
    out, errors = search.communicate(timeout=600)
    assert search.returncode == 0, errors
    assert "Traceback" not in errors
    assert "stopped; the same command goes on from here" in out
    first = json.loads((tmp_path / "first.json").read_text())
    assert first["stopped"] is True
    kept = first["choices"]
    assert 3 <= len(kept) < 32
    begun = {line.split(", ", 1)[0].split("/")[1] for line in lines_of(errors, "tune: ")}
    assert "16 gpu0 to gpu1" in begun

    done = polypath(*tune, "--budget", "10m", "--json", "second.json")
    succeeded(done)
    second = json.loads((tmp_path / "second.json").read_text())
    assert second["stopped"] is False
    assert len(second["choices"]) == 32
    for before, after in zip(kept, second["choices"], strict=False):
        assert after["tried"] == before["tried"]
        assert after["measured_gbps"] == pytest.approx(before["measured_gbps"], abs=0.01)
    # Tasks of which both executors were known do not come again.
    tasks = len({(choice["pair"], choice["pattern"], choice["bytes"]) for choice in kept})
    both = 2 * tasks == len(kept)
    left = 16 - (tasks if both else tasks - 1)
    assert f"/{left} " in lines_of(done.stderr, "tune: ")[0]


def test_progress_function_stops_search_and_may_raise():
    program = "import polypath; from test_tune import search; search()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([p for p in sys.path if p])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def search():
    """In a process of its own: the simulated driver is one node for a whole process."""
    calls = []

    def stop(done, total, left, what):
        calls.append((done, total, what))
        assert 0 < left <= 60
        return len(calls) < 4

    with Context(node="narval", profile="off") as context:
        document = context.tune([("gpu0", "gpu1")], ["1M", 2 << 20], progress=stop)
        assert document["stopped"] is True
        assert document["choices"] == [] == context.tuned()["choices"]
        assert len(calls) == 4
        assert calls[0] == (0, 6, "gpu0 to gpu1, one way, 2 MiB")
        with pytest.raises(ZeroDivisionError):
            context.tune([("gpu0", "gpu1")], ["1M"], progress=lambda *_: 1 // 0)
        with pytest.raises(ValueError, match="never split"):
            context.tune([("gpu0", "gpu1")], ["4K"])
        document = context.tune([("gpu0", "gpu1")], ["1M"])
        assert document["stopped"] is False
        assert len(document["choices"]) == 6
        assert context.tuned()["choices"] == document["choices"]
