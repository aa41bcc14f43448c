"""`polypath bench load` and `polypath load` on simulated nodes."""

from __future__ import annotations

import json

import pytest
from safetensors_files import make_file

NODE = "hgx-h200-x4"


def rows_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


def test_bench_compares_and_verifies(polypath):
    bench = ("bench", "load", "--node", NODE)
    rows = rows_of(polypath(*bench, "--sizes", "64K,64M", "--json", "-"))
    small, large = rows
    assert (small["native_share"], small["routes"]) == (1.0, [])
    assert large["native_share"] == 0
    assert len(large["routes"]) > 1, "links of several GPUs carry a part"
    assert large["speedup"] > 4, "simulated"
    assert all(row["verified"] and row["dst"] == "gpu0" for row in rows)


def test_bench_of_a_file(polypath, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "data"
    file.write_bytes(bytes(range(256)) * 20_000)
    plot = tmp_path / "p.png"
    done = polypath(
        *("bench", "load", str(file), "--gpu", "gpu2", "--node", NODE, "--plot", str(plot))
    )
    assert done.returncode == 0, done.stderr
    assert "gpu2" in done.stdout and "5000K" in done.stdout
    assert plot.stat().st_size > 0
    part = polypath("bench", "load", str(file), "--sizes", "64M", "--node", NODE)
    assert part.returncode == 2
    assert "the file has 5120000 bytes, fewer than 67108864" in part.stderr


def test_bench_beside_traffic(polypath):
    beside = ("--beside", "d2h:gpu0", "--iterations", "3", "--beside-rounds", "1")
    done = polypath(
        *("bench", "load", "--sizes", "16M", "--node", NODE, *beside, "--json", "-"),
    )
    (row,) = rows_of(done)
    assert row["verified"]
    assert row["idle"]["polypath_gbps"] > row["idle"]["native_gbps"]
    assert len(row["rounds"][0]["loaded"]["polypath_us"]) == 3
    refused = polypath("bench", "load", "--node", NODE, *beside, "--plot", "x.png")
    assert refused.returncode == 2


def test_load_lists_and_times(polypath, tmp_path):
    file = tmp_path / "m.safetensors"
    make_file(file, {"a": ("BF16", (3, 5)), "b": ("F32", ())})
    done = polypath("load", str(file), "--node", NODE)
    assert done.returncode == 0, done.stderr
    assert "3 x 5" in done.stdout and "bfloat16" in done.stdout and "scalar" in done.stdout
    timed = polypath("load", "--time", str(file), "--iterations", "2", "--node", NODE)
    assert timed.returncode == 0, timed.stderr
    assert "2 tensors, 34 B" in timed.stdout and "median of 2" in timed.stdout
    assert "the first to gpu0" in timed.stdout
    ranks = polypath("load", "--time", str(file), "--ranks", "4", "--node", NODE)
    assert ranks.returncode == 0, ranks.stderr
    assert "GB/s a GPU" in ranks.stdout
    for more in (["--ranks", "4"], ["--framework", "dlpack"], ["--time", "--ranks", "9"]):
        assert polypath("load", str(file), "--node", NODE, *more).returncode == 2
    result = json.loads(polypath("load", str(file), "--node", NODE, "--json", "-").stdout)
    assert result["tensors"][0] == {"name": "a", "dtype": "bfloat16", "shape": [3, 5]}


def test_load_says_what_is_wrong(polypath, tmp_path):
    file = tmp_path / "m.safetensors"
    file.write_bytes(b"{}")
    for what, message in (
        (file, "no valid safetensors file"),
        (tmp_path / "none", "No such file"),
    ):
        done = polypath("load", str(what), "--node", NODE)
        assert done.returncode == 2
        assert message in done.stderr and "Traceback" not in done.stderr
