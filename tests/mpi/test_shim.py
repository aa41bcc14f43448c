"""The same messages under the shim: the same bytes, over every route, each large message one call
that the shim saw, and nothing else than without it where nothing can be gained."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from conftest import BUILD, LARGE, ROOT, SCALE, Rank, Run, Traffic, mebibytes

# From this size on a message is split on the node of these tests, unless the routes are in use.
SPLIT = (2 << 20) * SCALE

SIZES = "1,1000,64K,1M,3000001"

# Why a large message may go by the driver's own copy here.
REASONS = {"pageable memory", "routes busy", "links used by concurrent transfers"}


def check_counts(run: Run, copies_by: str = "receiver") -> Counter:
    """All bytes went over links to the receiver, in calls that the shim saw; what it says of them
    is what the simulated driver saw. Returns how many messages were split, and how many were not.
    """
    total: Counter = Counter()
    for rank in run.ranks:
        engine = rank.statistics["engine"]
        calls = rank.statistics["calls"].get("cuMemcpyDtoDAsync_v2", Counter())
        assert engine["failed"] == 0
        assert engine["native_by_reason"].keys() <= REASONS
        assert calls["issued"] == engine["split"]
        total["split"] += engine["split"]
        total["native"] += calls["calls"] - engine["split"]
        total["calls"] += calls["calls"]
    if run.simulated:
        for rank in run.ranks:
            check_links(rank, copies_by)
    everything, large = Counter(), Counter()
    for rank in run.ranks:
        everything.update(rank.received())
        large.update(rank.received(least=LARGE))
    assert large["messages"] <= total["calls"] <= everything["messages"]
    return total


def check_links(rank: Rank, copies_by: str) -> None:
    if copies_by == "receiver":
        assert rank.moved("*", rank.gpu)["bytes"] == rank.received()["bytes"]
    assert rank.report["bounced_copies"] == 0
    for link in rank.statistics["engine"]["links"]:
        moved = rank.moved(link["from"], link["to"])
        # The driver's own copies are on the direct links, and on those to the host.
        if rank.gpu in (link["from"], link["to"]):
            assert link["bytes"] <= moved["bytes"]
        else:
            assert link["bytes"] == moved["bytes"]
            assert link["copies"] == moved["copies"]


def large_messages(run: Run) -> int:
    return sum(rank.received(least=SPLIT)["messages"] for rank in run.ranks)


def staged_bytes(run: Run) -> int:
    """Bytes of the receivers' copies that went to other memory first."""
    return sum(
        rank.moved("*", "*")["bytes"] - rank.moved("*", rank.gpu)["bytes"] for rank in run.ranks
    )


@pytest.mark.parametrize("ranks", [2, 4])
def test_messages_arrive_and_large_ones_are_split(traffic: Traffic, ranks):
    """Every pattern, one after another."""
    options = ("--sizes", f"{SIZES},{mebibytes(4 if ranks == 4 else 16)}", "--window", 4)
    patterns = ("pairs", "window", "both", "ring", "all")
    words = [word for pattern in patterns for word in ("then", pattern, *options)]
    run = traffic(words[1], ranks, *words[2:], shim=True)
    assert check_counts(run)["split"] > 0
    assert len(run.patterns) == len(patterns)
    for pattern in run.patterns:
        assert not run.simulated or staged_bytes(pattern) > 0


def test_one_message_at_a_time_is_split_each_time(traffic):
    """With ranks that `polypath run` starts."""
    sizes = ",".join(["1,64K", mebibytes(4), mebibytes(8), mebibytes(32)])
    run = traffic(
        "pairs",
        2,
        *("--sizes", sizes),
        run_by=[sys.executable, "-m", "polypath", "run", "--"],
        shim=True,
        LD_PRELOAD="",
        PYTHONPATH=str(ROOT / "python"),
        POLYPATH_LIBRARY=str(BUILD / "libpolypath.so"),
    )
    assert check_counts(run)["split"] == large_messages(run) == 6
    for rank in run.ranks:
        routes = {route["route"]: route["bytes"] for route in rank.statistics["engine"]["routes"]}
        assert sum(routes.values()) == rank.received(least=SPLIT)["bytes"]
        assert "direct" in routes
        assert len(routes) > 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_delays_change_nothing(traffic, seed):
    run = traffic(
        "random",
        4,
        *("--messages", 2000, "--sizes", f"1,{mebibytes(4)}", "--seed", seed),
        shim=True,
        POLYPATH_SIM_SEED=str(seed),
    )
    assert sum(rank.received()["messages"] for rank in run.ranks) == 2000
    assert check_counts(run)["split"] > (20 if run.simulated else 0)


def test_window_of_16(traffic):
    run = traffic("both", 4, "--sizes", f"1M,{mebibytes(2)}", "--window", 16, shim=True)
    assert check_counts(run)["split"] > 0
    # UCX's streams are known to hold nothing but copies and event records.
    assert sum(rank.statistics["engine"]["followed"] for rank in run.ranks) > 0


def test_routes_that_are_not_ready_are_left_out(traffic):
    """As users run it: routes are prepared while messages go without them."""
    run = traffic(
        "pairs",
        2,
        "--sizes",
        ",".join([mebibytes(8)] * 20),
        shim=True,
        POLYPATH_PREPARE="background",
    )
    for rank in run.ranks:
        assert rank.statistics["engine"]["failed"] == 0
        if run.simulated:
            assert rank.moved("*", rank.gpu)["bytes"] == rank.received()["bytes"]


def test_sender_splits_where_ucx_puts(traffic):
    run = traffic(
        "window",
        2,
        "--sizes",
        f"{mebibytes(4)},{mebibytes(16)}",
        shim=True,
        UCX_RNDV_SCHEME="put_zcopy",
    )
    assert check_counts(run, copies_by="sender")["split"] == large_messages(run) == 2
    assert run.ranks[0].statistics["engine"]["split"] == 2


def test_as_graphs(traffic):
    run = traffic(
        "both", 4, "--sizes", mebibytes(4), "--window", 8, shim=True, POLYPATH_EXECUTOR="graph"
    )
    assert check_counts(run)["split"] > 0
    graphs = [rank.statistics["engine"]["graphs"]["launches"] for rank in run.ranks]
    assert sum(graphs) > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"OMPI_MCA_opal_common_ucx_opal_mem_hooks": "0"},
        {"OMPI_MCA_opal_common_ucx_opal_mem_hooks": "1"},
        {"UCX_CUDA_IPC_CACHE": "n"},
    ],
    ids=["hooks of UCX", "no hooks", "no cache"],
)
def test_memory_that_takes_the_place_of_other_memory(traffic, settings):
    """UCX keeps imports of memory that is gone, or closes them at once; what comes next has their
    addresses, in each process."""
    run = traffic(
        "all",
        4,
        *("--sizes", ",".join(["64K", mebibytes(4)] * 6), "--reallocate-every", 1),
        shim=True,
        POLYPATH_SIM_ADDRESSES="reused",
        **settings,
    )
    assert check_counts(run)["split"] > 0


def test_small_messages_are_left_to_the_driver(traffic):
    run = traffic("all", 4, "--sizes", "1,1000,64K,200000", "--window", 8, shim=True)
    for rank in run.ranks:
        calls = rank.statistics["calls"]["cuMemcpyDtoDAsync_v2"]
        assert calls["offloaded"] == 0
        assert calls["calls"] >= rank.received(least=LARGE)["messages"]
        if run.simulated:
            assert rank.moved("*", rank.gpu)["bytes"] == rank.received()["bytes"]


def test_direct_routes_alone_are_the_drivers_own_copies(traffic):
    run = traffic("both", 2, "--sizes", mebibytes(16), shim=True, POLYPATH_ROUTES="direct")
    for rank in run.ranks:
        assert rank.statistics["calls"]["cuMemcpyDtoDAsync_v2"]["issued"] == 0
        if not run.simulated:
            continue
        direct = rank.moved("*", rank.gpu)
        assert direct["bytes"] == rank.received()["bytes"]
        assert direct["copies"] == rank.received()["messages"]


def test_memory_of_rank_without_shim_goes_to_driver(traffic):
    run = traffic("pairs", 2, "--sizes", mebibytes(16), shim="last")
    without, under_shim = run.ranks
    assert not without.statistics
    assert under_shim.statistics["imports"]["imported"] == 1
    assert under_shim.statistics["engine"]["split"] == 0
    if run.simulated:
        assert under_shim.moved(without.gpu, under_shim.gpu) == Counter(bytes=16 << 20, copies=1)


def test_killed_rank_ends_others_and_leaves_no_files(traffic, tmp_path):
    killed = traffic(
        "all",
        4,
        *("--sizes", ",".join(map(mebibytes, [4, 8, 4])), "--window", 4, "--kill", 2),
        shim=True,
        fails=True,
        OMPI_MCA_btl="self",  # its shared memory would stay
    )
    assert "signal 9" in killed.output
    assert killed.ranks == []
    assert list((tmp_path / "registry").glob("*"))
    check_counts(traffic("all", 4, "--sizes", mebibytes(4), shim=True))
    assert list((tmp_path / "registry").glob("*")) == []


@pytest.mark.soak
def test_random_messages(traffic):
    run = traffic(
        "random",
        4,
        *("--messages", 100_000, "--sizes", "1,4M", "--seed", 7),
        shim=True,
        POLYPATH_SIM_SEED="7",
    )
    assert sum(rank.received()["messages"] for rank in run.ranks) == 100_000
    assert check_counts(run)["split"] > (1000 if run.simulated else 0)
