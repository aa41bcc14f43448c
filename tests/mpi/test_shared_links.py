"""Ranks that send at the same time leave each other's links alone: what a process has under way,
others learn from the registry and plan next to it.

On the simulated node copies take longer than they are predicted to, so the ranks' own flights would
be over too early. A process of its own holds those of the ring for the whole test."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from conftest import BUILD, NODE, ROOT, Run, Traffic, environment

pytestmark = pytest.mark.skipif(NODE == "real", reason="needs a mesh: the simulated node narval")

MESH = "narval"
SIZE = 32 << 20
RING = ["0>1", "1>2", "2>3", "3>0"]
BACK = ["1>0", "2>1", "3>2", "0>3"]
OTHERS = "links used by concurrent transfers"


@contextmanager
def in_progress(registry, pairs: Sequence[str]) -> Iterator[None]:
    """Another process has bytes under way between these GPUs."""
    command = [ROOT / "scripts" / "mpi_env.sh", BUILD / "bin" / "held_flights", registry, *pairs]
    with subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment({"POLYPATH_NODE": MESH}),
    ) as process:
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.stdin.close()
            assert process.wait(timeout=1200) == 0


def send(traffic: Traffic, pattern: str, ranks: int, **settings: str) -> Run:
    run = traffic(pattern, ranks, "--sizes", SIZE, shim=True, POLYPATH_NODE=MESH, **settings)
    assert all(rank.statistics["engine"]["failed"] == 0 for rank in run.ranks)
    return run


def bytes_by_route(run: Run) -> dict[tuple[str, str], Counter]:
    """What went over each route, for each pair of GPUs."""
    pairs: dict[tuple[str, str], Counter] = {}
    for rank in run.ranks:
        for route in rank.statistics["engine"]["routes"]:
            pair = pairs.setdefault((route["src"], route["dst"]), Counter())
            pair[route["route"]] += route["bytes"]
    return pairs


def nvlinks(pair: tuple[str, str], routes: Iterable[str]) -> list[tuple[str, str]]:
    """The links between GPUs of these routes of a pair."""
    source, destination = pair
    links = []
    for route in routes:
        if route == "direct":
            links.append(pair)
        elif route.startswith("via gpu"):
            via = route.removeprefix("via ")
            links += [(source, via), (via, destination)]
    return links


def test_a_pair_leaves_links_to_others(traffic, tmp_path):
    """One rank copies, the other does nothing meanwhile: only what is held makes a difference."""
    lonely = bytes_by_route(send(traffic, "window", 2))["gpu0", "gpu1"]
    with in_progress(tmp_path / "registry", RING[1:]):
        beside = bytes_by_route(send(traffic, "window", 2))["gpu0", "gpu1"]
    after = bytes_by_route(send(traffic, "window", 2))["gpu0", "gpu1"]
    assert lonely.total() == beside.total() == SIZE
    assert {"direct", "via gpu2", "via gpu3"} <= lonely.keys()
    assert beside.keys() < lonely.keys()
    assert after == lonely


def test_no_two_ranks_of_a_ring_use_one_link(traffic, tmp_path):
    with in_progress(tmp_path / "registry", RING):
        run = send(traffic, "ring", 4)
    routes = bytes_by_route(run)
    links: Counter = Counter()
    for arrow in RING:
        pair = tuple(f"gpu{number}" for number in arrow.split(">"))
        assert routes[pair].total() == SIZE
        assert len(routes[pair]) > 1
        links.update(nvlinks(pair, routes[pair]))
    assert set(links.values()) == {1}, links
    assert links.keys() > {tuple(f"gpu{n}" for n in arrow.split(">")) for arrow in RING}


def test_where_nothing_is_left_the_driver_copies(traffic, tmp_path):
    with in_progress(tmp_path / "registry", [*RING, *BACK]):
        run = send(traffic, "ring", 4)
    for rank in run.ranks:
        assert rank.statistics["engine"]["split"] == 0
        assert rank.statistics["engine"]["native_by_reason"][OTHERS] == 2


def test_without_the_registry_nobody_is_seen(traffic, tmp_path):
    """Nor is it known where the memory of others lies, so that no copy of it is split."""
    with in_progress(tmp_path / "registry", [*RING, *BACK]):
        run = send(traffic, "ring", 4, POLYPATH_REGISTRY="off")
    for rank in run.ranks:
        reasons = rank.statistics["engine"]["native_by_reason"]
        assert OTHERS not in reasons
        assert reasons["memory of a process without polypath"] == 2
