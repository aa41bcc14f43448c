"""What a benchmark runs, and the document that it writes."""

import pytest
import values
from polypath.benchmark import Operation, Pair, document, run, transfers_of
from polypath.errors import InvalidArgument


class FakeContext:
    """Answers as a Context does, and keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def topology(self):
        return values.topology()

    def devices(self):
        return {"version": "0.1.0", "driver": {"library": "libpolypath_sim.so"}}

    def settings(self):
        return [
            {"name": "routes", "value": "direct,gpu", "origin": "argument"},
            {"name": "chunks", "value": "auto", "origin": "default"},
        ]

    def bench(self, requests, iterations, warmup, window, compare_executors):
        self.asked.append((list(requests), iterations, warmup, window, compare_executors))
        return values.report(requests[0].bytes, window=window)


@pytest.mark.parametrize(
    ("operation", "arguments", "expected"),
    [
        ("p2p", {}, [("gpu0", "gpu1")]),
        ("p2p", {"src": "gpu1"}, [("gpu1", "gpu0")]),
        ("p2p", {"src": "gpu3", "dst": "gpu2"}, [("gpu3", "gpu2")]),
        ("h2d", {}, [("host0", "gpu0")]),
        ("h2d", {"dst": "gpu3"}, [("host1", "gpu3")]),
        ("h2d", {"src": "host", "dst": "gpu3"}, [("host0", "gpu3")]),
        ("d2h", {"src": "gpu2"}, [("gpu2", "host1")]),
        ("bidir", {}, [("gpu0", "gpu1"), ("gpu1", "gpu0")]),
        ("bidir", {"dst": "host0"}, [("gpu0", "host0"), ("host0", "gpu0")]),
        ("pageable", {}, [("host0:pageable", "gpu0"), ("gpu0", "host0:pageable")]),
        (
            "pageable",
            {"src": "host0", "dst": "gpu3"},
            [("host0:pageable", "gpu3"), ("gpu3", "host0:pageable")],
        ),
        ("ring", {}, [("gpu0", "gpu1"), ("gpu1", "gpu2"), ("gpu2", "gpu3"), ("gpu3", "gpu0")]),
    ],
)
def test_transfers(operation, arguments, expected):
    pairs = transfers_of(Operation(operation), values.topology(4, 2), **arguments)
    assert pairs == [Pair(*pair) for pair in expected]


def test_a_ring_in_both_directions():
    pairs = transfers_of(Operation.ring, values.topology(3), both_directions=True)
    assert len(pairs) == 6
    assert {Pair(b, a) for a, b in pairs} == set(pairs)


@pytest.mark.parametrize(
    ("operation", "arguments", "message"),
    [
        ("p2p", {"src": "host0"}, "--src 'host0' is not allowed: gpu0, gpu1, gpu2, gpu3"),
        ("p2p", {"dst": "gpu0"}, "--dst 'gpu0' is not allowed: gpu1, gpu2, gpu3"),
        ("h2d", {"src": "gpu1"}, "--src 'gpu1' is not allowed: host0"),
        ("d2h", {"dst": "gpu1"}, "--dst 'gpu1' is not allowed: host0"),
        ("bidir", {"dst": "gpu9"}, "--dst 'gpu9' is not allowed: gpu1, gpu2, gpu3, host0"),
        ("ring", {"src": "gpu0"}, "--src and --dst are not for ring"),
        ("p2p", {"both_directions": True}, "--both-directions is for ring"),
    ],
)
def test_refuses_end_points_and_names_the_allowed_ones(operation, arguments, message):
    with pytest.raises(InvalidArgument) as error:
        transfers_of(Operation(operation), values.topology(), **arguments)
    assert message in str(error.value)


@pytest.mark.parametrize("operation", ["p2p", "ring"])
def test_one_gpu_is_not_enough(operation):
    with pytest.raises(InvalidArgument, match="at least 2 GPUs; this node has 1"):
        transfers_of(Operation(operation), values.topology(1))


def test_a_row_for_every_size_and_window():
    context = FakeContext()
    runs = [(1024, 1), (2048, 16)]
    rows = list(run(context, [Pair("gpu0", "gpu1")], runs, 7, 2, compare_executors=True))
    assert [(row["bytes"], row["window"]) for row in rows] == runs
    assert context.asked == [
        ([("gpu0", "gpu1", 1024)], 7, 2, 1, True),
        ([("gpu0", "gpu1", 2048)], 7, 2, 16, True),
    ]
    assert "transfers" not in rows[0]


def test_a_row_of_several_transfers_names_them():
    pairs = [Pair("gpu0", "gpu1"), Pair("gpu1", "gpu0")]
    (row,) = run(FakeContext(), pairs, [(1024, 1)], 1, 1)
    assert row["transfers"] == [{"src": "gpu0", "dst": "gpu1"}, {"src": "gpu1", "dst": "gpu0"}]


def test_document():
    context = FakeContext()
    rows = list(run(context, [Pair("gpu0", "gpu1")], [(1024, 1)], 1, 1))
    result = document(context, Operation.p2p, rows, "polypath bench p2p")
    assert result["schema"] == 1
    assert result["op"] == "p2p"
    assert result["node"] == {
        "name": "made-up",
        "simulated": True,
        "virtual_time": True,
        "fingerprint": "0123456789abcdef",
        "emulated_mesh_gbps": None,
    }
    assert result["settings"] == {"routes": "direct,gpu"}
    assert result["command"] == "polypath bench p2p"
    assert result["rows"] == rows


def test_a_document_of_an_emulated_mesh_says_so():
    context = FakeContext()
    context.topology = values.emulated_mesh
    node = document(context, Operation.p2p, [values.row()], "polypath bench p2p")["node"]
    assert node["emulated_mesh_gbps"] == 46
    assert "emulated mesh, 46 GB/s a link" in node["name"]
