"""Figures of simulated nodes that must not fall: virtual time is the same everywhere."""

import json
from pathlib import Path

import pytest

#: In virtual time every iteration takes the same time.
ONCE = ("--iterations", "1", "--warmup", "1")
NODES = Path(__file__).parents[2] / "nodes"


def rows_of(polypath, *arguments):
    done = polypath("bench", *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


def test_a_ring_gains_with_every_size(polypath):
    """The calling thread issues the copies of all four in turn, and is the limit in between."""
    rows = rows_of(polypath, "ring", "--node", "narval", "--sizes", "4M:128M", *ONCE)
    figures = [row["polypath_gbps"] for row in rows]
    assert len(figures) == 6
    assert figures == sorted(figures), figures
    assert all(row["speedup"] >= 1 for row in rows)
    assert rows[-1]["speedup"] > 1.92


@pytest.mark.parametrize(
    ("node", "size", "transfers"),
    [
        ("hgx-h200-x4", "1M", ["d2h"]),
        ("dgx-h200-x8", "1M", ["bidir", "--src", "host0", "--dst", "gpu0"]),
        ("gh200-quad", "8M", ["h2d"]),
    ],
)
def test_no_split_is_slower_than_the_native_copy(polypath, node, size, transfers):
    """Just below the sizes from which on a split pays: these reached 0.90 to 0.96."""
    (row,) = rows_of(polypath, *transfers, "--node", node, "--sizes", size)
    assert row["speedup"] >= 0.99


def expect_no_loss(polypath, node, transfers, sizes):
    rows = rows_of(polypath, transfers, "--node", node, "--sizes", sizes, *ONCE)
    assert len(rows) > 4
    slower = {row["bytes"]: row["speedup"] for row in rows if row["speedup"] < 0.99}
    assert not slower


@pytest.mark.parametrize(
    ("node", "transfers"), [("hgx-h200-x4", "h2d"), ("narval", "p2p"), ("mist", "bidir")]
)
def test_no_small_size_is_slower_than_native(polypath, node, transfers):
    expect_no_loss(polypath, node, transfers, "64K,512K,1M,2M,8M")


@pytest.mark.parametrize(
    ("node", "size"), [("dgx-a100-x8", "128M"), ("dgx2-v100-x16", "64M"), ("dgx-h200-x8", "32M")]
)
def test_chunks_on_full_ports_cost_no_transfer_time(polypath, node, size):
    """Chunks of both ways halt each other on ports that they fill: these reached 0.97 to 0.99,
    because plans did not count that."""
    (row,) = rows_of(polypath, "bidir", "--node", node, "--sizes", size, *ONCE)
    assert row["speedup"] >= 0.999


@pytest.mark.soak
@pytest.mark.parametrize("transfers", ["p2p", "h2d", "d2h", "bidir"])
@pytest.mark.parametrize("node", sorted(file.stem for file in NODES.glob("*.toml")))
def test_no_size_is_slower_than_native(polypath, node, transfers):
    """Each kind of transfer on each node file."""
    expect_no_loss(polypath, node, transfers, "64K:1G")


@pytest.mark.parametrize(("node", "speedup"), [("narval", 2.98), ("beluga", 3.05)])
def test_one_transfer_takes_all_routes(polypath, node, speedup):
    (row,) = rows_of(polypath, "p2p", "--node", node, "--sizes", "256M", *ONCE)
    assert row["speedup"] > speedup
