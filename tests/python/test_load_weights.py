"""The PyTorch example: with PyTorch and a GPU as its own comment says; without them, all of it that
needs neither."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "load_weights.py"

spec = importlib.util.spec_from_file_location("load_weights", EXAMPLE)
load_weights = importlib.util.module_from_spec(spec)
spec.loader.exec_module(load_weights)


def run(*arguments):
    return subprocess.run(
        [sys.executable, EXAMPLE, *arguments], capture_output=True, text=True, timeout=1200
    )


def result(rates, verified=True):
    """What one process prints, one row each for these runs."""
    return {
        "bytes": 4 << 30,
        "tensors": 9,
        "torch": "2.0",
        "gpu": "NVIDIA H200",
        "rows": [
            {"what": what, "gbps": 0.0, "runs_gbps": list(runs), "verified": verified}
            for what, runs in rates.items()
        ],
    }


def test_weights_are_whole_layers_of_a_decoder():
    layer = load_weights.bytes_of(load_weights.LAYER)
    attention = 2 * (4096 * 4096 + 1024 * 4096)
    assert layer == 2 * (attention + 3 * 4096 * 14336 + 2 * 4096)
    for size, layers in ((1, 1), (layer, 1), (5 * layer - 1, 4), (5 * layer, 5)):
        shapes = load_weights.shapes_of(size, single=False)
        assert load_weights.bytes_of(shapes) == layers * layer
    assert load_weights.bytes_of(load_weights.shapes_of(1 << 30, single=True)) == 1 << 30


def test_sizes():
    assert load_weights.parse_size("4G") == 4 << 30
    assert load_weights.parse_size("512m") == 512 << 20
    assert load_weights.parse_size("10") == 10
    for wrong in ("", "G", "0", "-1M", "1.5G", "11", "1K"):
        with pytest.raises(load_weights.argparse.ArgumentTypeError, match="no size such as 4G"):
            load_weights.parse_size(wrong)


def test_a_comparison_takes_medians_over_all_runs():
    without = [result({"load": [10, 20], "store": [1]}), result({"load": [30], "store": [1]})]
    under = [result({"load": [50, 60], "store": [2]}), result({"load": [70], "store": [2]})]
    load, store = load_weights.put_together(without, under)["rows"]
    assert (load["without_gbps"], load["with_gbps"], load["times"]) == (20, 60, 3)
    assert (store["without_gbps"], store["with_gbps"], store["times"]) == (1, 2, 2)
    assert load["verified"] is True
    under[1]["rows"][0]["verified"] = False
    load, store = load_weights.put_together(without, under)["rows"]
    assert (load["verified"], store["verified"]) == (False, True)


def test_table():
    document = result({"pinned to GPU": [55.0]})
    document["rows"][0]["gbps"] = 55.04
    title, heads, row = load_weights.table(document)
    assert title == "4.29 GB in 9 tensors, NVIDIA H200, PyTorch 2.0"
    assert heads.split() == ["GB/s", "verified"]
    assert row.split() == ["pinned", "to", "GPU", "55.0", "yes"]

    both = load_weights.put_together([result({"load": [50]})], [result({"load": [150]}, False)])
    both["bytes_by_route"] = {"host0 to gpu0, via gpu1": 3_500_000_000}
    _, heads, row, routes = load_weights.table(both)
    assert heads.split() == ["without", "with", "polypath", "times", "verified"]
    assert row.split() == ["load", "50.0", "150.0", "3.00", "NO"]
    assert routes == "host0 to gpu0, via gpu1: 3.50 GB"


def test_routes_are_read_from_the_statistics(tmp_path):
    route = {"src": "host0", "dst": "gpu0", "route": "direct", "transfers": 2, "bytes": 10}
    other = {**route, "route": "via gpu1", "bytes": 7}
    for pid, engine in ((1, {"routes": [route, other]}), (2, None), (3, {"routes": [route]})):
        (tmp_path / f"{pid}.json").write_text(json.dumps({"pid": pid, "engine": engine}))
    assert load_weights.bytes_by_route(tmp_path) == {
        "host0 to gpu0, direct": 20,
        "host0 to gpu0, via gpu1": 7,
    }


def test_a_comparison_alternates(monkeypatch, tmp_path):
    started = []

    def result_of(command):
        under_polypath = "run" in command
        started.append(under_polypath)
        if under_polypath:
            file = Path(command[command.index("--stats") + 1].replace("%p", "1"))
            assert command[command.index("--") + 1] == sys.executable
            file.write_text(json.dumps({"engine": None}))
        assert command[-3:] == ["--size=8", "--json", "-"]
        return result({"load": [3.0 if under_polypath else 1.0]})

    monkeypatch.setattr(load_weights, "result_of", result_of)
    compared = load_weights.compare(["--size=8"], rounds=3)
    assert started == [False, True] * 3
    assert compared["rows"][0]["times"] == 3
    assert compared["bytes_by_route"] == {}


def test_a_failing_process_ends_the_comparison():
    with pytest.raises(SystemExit, match="ended with 3"):
        load_weights.result_of([sys.executable, "-c", "raise SystemExit(3)"])


def gpus():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    return torch.cuda.device_count()


def test_moves_weights_with_pytorch():
    count = gpus()
    done = run("--size", "64M", "--single", "--repeats", "2", "--json", "-")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    expected = ["pinned to GPU", "GPU to pinned", "GPU to GPU"][: 2 + (count > 1)]
    assert [row["what"] for row in rows] == expected
    assert all(row["verified"] and row["gbps"] > 0 for row in rows)


def test_a_comparison_shows_that_copies_were_split():
    if gpus() < 2:
        pytest.skip("one GPU has no other path")
    done = run("--size", "256M", "--single", "--compare", "--rounds", "1", "--json", "-")
    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)
    assert all(row["verified"] for row in compared["rows"])
    assert any("via" in route for route in compared["bytes_by_route"])
