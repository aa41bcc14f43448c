"""Unmodified Open MPI and UCX on the simulated driver: what the shim is put under.

All bytes arrive, and those of large messages through cuda_ipc of UCX: as one copy each, from GPU to
GPU, made by the receiver. Data that go another way (UCX falls back to host memory in silence) fail
the tests."""

from __future__ import annotations

import pytest
from conftest import LARGE

SIZES = "1,7,1000,4096,30001,64K,1M,3000001"

PATTERNS = ("pairs", "window", "both", "ring", "all")


def check_counts(run, copies_by: str = "receiver") -> None:
    """The links carried just the messages, the large ones directly and whole."""
    if not run.simulated:
        return
    for receiver in run.ranks:
        for sender in run.ranks:
            if sender is receiver:
                continue
            mover = {"receiver": receiver, "sender": sender}[copies_by]
            direct = mover.moved(sender.gpu, receiver.gpu)
            total = receiver.received(sender=sender.number)
            large = receiver.received(least=LARGE, sender=sender.number)
            assert large["bytes"] <= direct["bytes"] <= total["bytes"]
            assert large["messages"] <= direct["copies"] <= total["messages"]
    # What did not go directly are small messages by way of the host.
    moved = sum(rank.moved("*", rank.gpu)["bytes"] for rank in run.ranks)
    if copies_by == "receiver":
        assert moved == sum(rank.received()["bytes"] for rank in run.ranks)
    assert sum(rank.report["bounced_copies"] for rank in run.ranks) == 0


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_byte_arrives_and_large_messages_directly(traffic, ranks):
    """Every pattern, one after another."""
    options = ("--sizes", f"{SIZES},{16 if ranks == 2 else 4}M", "--window", 4)
    words = [word for pattern in PATTERNS for word in ("then", pattern, *options)]
    run = traffic(words[1], ranks, *words[2:])
    assert len(run.patterns) == len(PATTERNS)
    for pattern in run.patterns:
        check_counts(pattern)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_delays_change_nothing(traffic, seed):
    run = traffic(
        "random",
        4,
        *("--messages", 1000, "--sizes", "1,4M", "--seed", seed),
        POLYPATH_SIM_SEED=str(seed),
    )
    check_counts(run)


def test_window_of_16(traffic):
    check_counts(traffic("both", 4, "--sizes", "1M,2M", "--window", 16))


def test_sender_copies_where_ucx_puts(traffic):
    run = traffic("both", 2, "--sizes", "64K,1M,4M", UCX_RNDV_SCHEME="put_zcopy")
    check_counts(run, copies_by="sender")


def test_with_the_memory_hooks_of_ucx(traffic):
    """Open MPI leaves UCX without its own hooks, unless told not to."""
    run = traffic(
        "all",
        4,
        *("--sizes", "64K,1M,4M", "--reallocate-every", 1),
        OMPI_MCA_opal_common_ucx_opal_mem_hooks="0",
        UCX_MEM_LOG_LEVEL="info",
    )
    assert run.output.count("cuda memory hooks mode bistro: installed") == 4
    check_counts(run)


@pytest.mark.parametrize("hooks", ["0", "1"])
def test_memory_that_takes_the_place_of_freed_memory(traffic, hooks):
    run = traffic(
        "all",
        4,
        *("--sizes", ",".join(["64K", "1M"] * 6), "--reallocate-every", 1),
        POLYPATH_SIM_ADDRESSES="reused",
        OMPI_MCA_opal_common_ucx_opal_mem_hooks=hooks,
    )
    check_counts(run)


def test_a_killed_rank_ends_the_others(traffic):
    run = traffic(
        "all",
        4,
        *("--sizes", "1M,16M,1M", "--window", 4, "--kill", 2),
        fails=True,
        OMPI_MCA_btl="self",  # its shared memory would stay
    )
    assert "signal 9" in run.output
    assert run.ranks == []
