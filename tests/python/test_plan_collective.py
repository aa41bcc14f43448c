"""Plans of collectives, from Python and on the command line, on simulated nodes."""

import json

import pytest


def succeeded(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


def planned(polypath, *arguments):
    return json.loads(succeeded(polypath("plan", *arguments, "--json", "-")))


def test_allreduce_in_three_stages(polypath):
    text = succeeded(polypath("plan", "allreduce", "64M", "--node", "mist", "--compare"))
    for words in (
        "allreduce, 64M of float32, 4 ranks on mist (simulated)",
        "hierarchical: predicted to end first",
        "islands: r0 r1 | r2 r3; 2 lanes",
        "order of the sum: r0, r1, r2, r3",
        "reduce inside",
        "exchange between",
        "broadcast inside",
        "times the ring over direct links",
        "sums in another order than that of ranks: only on request",
    ):
        assert words in text


def test_the_values_of_a_plan(polypath):
    plan = planned(polypath, "allreduce", "256M", "--node", "cedar", "--compare")
    assert plan["algorithm"] == "mixed"
    assert 0 < plan["host_bytes"] < plan["bytes"] / 5
    assert plan["rank_order"]
    assert plan["bytes"] == 256 << 20
    assert plan["link_limit_bus_gbps"] < plan["bus_gbps"] <= plan["limit_bus_gbps"]
    candidates = {candidate["algorithm"]: candidate for candidate in plan["candidates"]}
    assert candidates["mixed"]["reason"] == ""
    assert candidates["cells"]["us"] is None
    assert plan["times_ring"]["flat"] == pytest.approx(
        candidates["ring"]["us"] / candidates["flat"]["us"]
    )


def test_a_part_through_host_memory_is_shown(polypath):
    text = succeeded(polypath("plan", "allreduce", "256M", "--node", "cedar"))
    assert "through host memory:" in text
    assert "all-gather of the rest" in text


def test_without_comparing_nothing_is_compared(polypath):
    plan = planned(polypath, "allreduce", "64M", "--node", "cedar")
    assert plan["times_ring"] is None
    assert plan["published_us"] is None


@pytest.mark.parametrize(
    "op", ["reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"]
)
def test_the_whole_family(polypath, op):
    plan = planned(polypath, op, "16M", "--node", "narval", "--ranks", "3", "--type", "bfloat16")
    assert plan["op"] == op
    assert plan["gpus"] == [0, 1, 2]
    assert plan["predicted_us"] > 0
    assert (plan["order"] is None) == (op in ("all_gather", "broadcast", "all_to_all"))


def test_several_nodes_are_a_prediction(polypath):
    arguments = ("allreduce", "1G", "--node", "hgx-h200-x4", "--nodes", "4", "--network", "25")
    plan = planned(polypath, *arguments)
    assert plan["unproven"]
    assert not plan["rank_order"]
    assert [stage["stage"] for stage in plan["stages"]][1] == "allreduce between nodes"
    assert "A prediction for machines that nobody measured." in succeeded(
        polypath("plan", *arguments)
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["allreduce", "1M", "--nodes", "2"], ["--nodes needs --network"]),
        (["allreduce", "1M", "--network", "25"], ["--network is for --nodes"]),
        (["broadcast", "1M", "--op", "max"], ["--op is for allreduce", "broadcast combines noth"]),
        (["broadcast", "1M", "--nodes", "2", "--network", "25"], ["one node only"]),
        (["allreduce", "1M", "--network", "fast"], ["--network", "'fast'"]),
        (["allreduce", "1M", "--ranks", "5"], ["5 ranks", "narval has 4"]),
        (["allreduce", "1M", "--type", "float8"], ["'float8'", "bfloat16"]),
        (["allreduce", "1M", "--op", "mean"], ["'mean'", "avg"]),
        (["allreduce", "1M", "--algorithm", "tree"], ["'tree'", "hierarchical"]),
        (["allreduce", "1M", "--algorithm", "hierarchical"], ["one island"]),
    ],
)
def test_what_is_refused_says_why(polypath, arguments, words):
    done = polypath("plan", *arguments, "--node", "narval")
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


def test_the_ranks_of_a_plan_in_python(polypath_program):
    program = """
from polypath import Context
with Context(node="mist") as context:
    plan = context.plan_collective("allreduce", "64M", ranks=[0, 2, 1, 3], operation="avg")
print(plan["order"], plan["rank_order"], plan["islands"])
"""
    assert succeeded(polypath_program(program)) == "r0, r2, r1, r3 False [[0, 2], [1, 3]]\n"


def test_idle_gpus_of_mesh_are_named(polypath):
    plan = planned(polypath, "allreduce", "256M", "--node", "narval", "--gpus", "0,2")
    assert plan["algorithm"] == "relayed"
    assert plan["gpus"] == [0, 2]
    assert [relay["gpu"] for relay in plan["relays"]] == [1, 3]
    assert all(relay["gbps"] == 93 for relay in plan["relays"])
    text = succeeded(polypath("plan", "allreduce", "256M", "--node", "narval", "--gpus", "0,2"))
    assert "over idle GPUs as well: gpu1 (" in text
    alone = planned(polypath, "allreduce", "256M", "--node", "hgx-h200-x4", "--gpus", "0,2")
    assert alone["relays"] is None
    both = polypath("plan", "allreduce", "1M", "--node", "narval", "--gpus", "0,2", "--ranks", "2")
    assert "--ranks and --gpus are both given" in both.stderr
