"""Every reason that the library can give has its advice; findings put the evidence together."""

import re
from pathlib import Path

import pytest
from polypath._library import find_library
from polypath.cli.nodes import known_nodes
from polypath.doctor import advice, statistics
from polypath.doctor.checks import Leg
from polypath.doctor.driver import ways_in
from polypath.doctor.program import Outcome, program_findings
from polypath.doctor.trials import report

COUNTERS = Path(__file__).parents[2] / "engine/src/core/counters.cpp"
LEG = Leg("gpu0", "gpu1")
SPLIT = {"native": False, "reason": ""}


@pytest.mark.parametrize(
    ("kind", "known"), [("NativeReason", advice.NATIVE), ("ExclusionReason", advice.LEFT_OUT)]
)
def test_each_reason_of_the_counters(kind, known):
    reasons = re.findall(rf'case {kind}::\w+:\s*return "([^"]+)"', COUNTERS.read_text())
    assert len(reasons) >= 4
    assert set(known) == set(reasons)


def test_each_reason_of_plans(polypath_program):
    """All known nodes, at sizes and with settings that leave routes out."""
    program = """
import sys
from polypath import Context
for settings in ({}, {"routes": "direct"}, {"min_size": "1G"}, {"max_routes": "2"}):
    with Context(node=sys.argv[1], **settings) as context:
        for pair in (("gpu0", "gpu1"), ("host0", "gpu0"), ("gpu1", "host0")):
            for size in ("1M", "64M", "512M"):
                (transfer,) = context.plan(*pair, size)["transfers"]
                for one in transfer["excluded"]:
                    print(one["reason"])
"""
    reasons = set()
    for node in known_nodes():
        done = polypath_program(program, node["file"])
        assert done.returncode == 0, done.stderr
        reasons |= set(done.stdout.splitlines())
    assert len(reasons) >= 4
    for reason in reasons:
        assert advice.on_plan(reason) in advice.PLANNED.values(), reason


def test_a_reason_that_is_new_is_not_passed_over():
    for explain in (advice.on_native, advice.on_left_out, advice.on_plan):
        assert explain("by the moon").wrong
        assert "older than the library" in explain("by the moon").text


def process(calls=1, issued=1, routes=(), native=None):
    return {
        "pid": 7,
        "command": "app",
        "calls": {
            "cuMemcpyAsync": {"calls": calls, "bytes": 8, "offloaded": calls, "issued": issued},
            "cuGetProcAddress": {"calls": 3, "bytes": 0, "offloaded": 0, "issued": 0},
        },
        "engine": {
            "routes": [
                {"src": src, "dst": dst, "route": route, "bytes": size}
                for src, dst, route, size in routes
            ],
            "native_by_reason": native or {},
            "left_out_by_reason": {},
            "failed": 0,
        },
    }


def copy_finding(answer, counters, plan=SPLIT):
    return report("dlsym", LEG, "cuMemcpyAsync", 8, answer, counters, plan).finding


def test_findings_of_a_copy():
    routes = [("gpu0", "gpu1", "direct", 5), ("gpu0", "gpu1", "via gpu2", 3)]
    good = {"verified": True}
    assert copy_finding(good, process(routes=routes)).state == "well"
    assert copy_finding({"verified": False}, process(routes=routes)).text == "the bytes differ"
    assert copy_finding({"error": "no memory"}, process(routes=routes)).text == "no memory"
    assert copy_finding({}, process(routes=routes)).state == "wrong"
    assert copy_finding(good, None).text == "not caught"
    assert copy_finding(good, process(calls=0)).text == "not caught"
    native = copy_finding(good, process(issued=0, native={"pageable memory": 1, "small": 2}))
    assert (native.state, native.text) == ("wrong", "native: pageable memory, small")
    assert "pin" in native.advice
    assert copy_finding(good, process(issued=0)).text == "native: the engine was not asked"
    # Another copy went over these routes, this one did not.
    assert copy_finding(good, process(issued=0, routes=routes)).state == "wrong"
    planned = copy_finding(good, process(issued=0), {"native": True, "reason": "no gain here"})
    assert (planned.state, planned.text) == ("note", "native: no gain here")


def test_routes_are_those_of_the_copy():
    routes = [
        ("gpu0", "gpu1", "direct", 5),
        ("host1", "gpu1", "direct", 2),
        ("host0", "gpu1", "via gpu0", 1),
    ]
    counters = process(routes=routes)
    assert report("dlsym", LEG, "cuMemcpyAsync", 8, {"verified": True}, counters, SPLIT).routes == {
        "direct": 5
    }
    assert statistics.bytes_by_route(counters, "host", "gpu1") == {"direct": 2, "via gpu0": 1}
    assert statistics.bytes_by_route(counters) == {"direct": 7, "via gpu0": 1}


def test_ways_of_an_older_driver():
    names = {"cuGetProcAddress", "cuGetProcAddress_v2"}
    assert names < set(ways_in(str(find_library().with_name("libpolypath_sim.so"))))
    assert ways_in("libc.so.6") == ["reference", "dlsym"]


def test_copies_are_what_counts():
    first, other = process(calls=2, issued=1), process(calls=0, issued=0)
    findings = {finding.what: finding for finding in program_findings(Outcome(0, [first, other]))}
    assert findings["caught"].text == "2 copies of 1 processes"
    assert findings["split"].text == "1 of 2 copies that were large enough"
    (caught,) = program_findings(Outcome(0, [other]))
    assert (caught.state, caught.what) == ("wrong", "caught")


def test_failed_transfers_are_wrong():
    counters = process()
    counters["engine"]["failed"] = 2
    findings = {finding.what: finding for finding in program_findings(Outcome(0, [counters]))}
    assert findings["failed"].state == "wrong"
    assert findings["failed"].text == "2 transfers, midway"


def test_statistics_that_are_not_complete_are_left_out(tmp_path):
    (tmp_path / "2.json").write_text('{"pid": 2}')
    (tmp_path / "1.json").write_text('{"pid": 1}')
    (tmp_path / "3.json").write_text('{"pid": 3, "calls')
    assert statistics.read(tmp_path) == [{"pid": 1}, {"pid": 2}]
