"""`polypath bench graph-phases`: what it asks, what it makes of the answers, and the command on a
simulated node."""

import json

import pytest
import values
from polypath import Context, InvalidArgument
from polypath.benchmark import Pair, pair_of
from polypath.cli import graph_phases as command
from polypath.cli.graph_phases import parse_nodes, parts, run
from polypath.plots import plot_graph_phases
from test_tables import rendered

PNG = b"\x89PNG\r\n"


def row(**changes):
    report = values.graph_phases(**changes)
    return {"src": "gpu0", "dst": "gpu1", **report, "parts": parts(report)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2", [2]), ("34", [34]), ("2:64", [2, 4, 8, 16, 32, 64]), ("6,2:8", [6, 2, 4, 8])],
)
def test_numbers_of_nodes(text, expected):
    assert parse_nodes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "1", "3", "258", "-2", "x", "2:", "8:2", "2,5", "4K"])
def test_numbers_of_nodes_that_are_not_allowed(text):
    with pytest.raises(ValueError, match="even number from 2 to 256"):
        parse_nodes(text)


def test_pairs_of_any_two_memories():
    topology = values.topology(2, 2)
    assert pair_of(topology) == ("gpu0", "gpu1")
    assert pair_of(topology, src="gpu1") == ("gpu1", "gpu0")
    assert pair_of(topology, "host", "gpu1") == ("host0", "gpu1")
    with pytest.raises(InvalidArgument, match="--dst 'gpu0' is not allowed: gpu1, host0, host1"):
        pair_of(topology, dst="gpu0")


def test_a_row_for_every_size_and_number_of_nodes():
    asked = []

    class FakeContext:
        def graph_phases(self, src, dst, size, nodes, iterations):
            asked.append((src, dst, size, nodes, iterations))
            return values.graph_phases(size, nodes)

    rows = list(run(FakeContext(), Pair("gpu2", "gpu1"), [1024, 4096], [2, 8], 5))
    assert asked == [("gpu2", "gpu1", size, nodes, 5) for size in (1024, 4096) for nodes in (2, 8)]
    assert [(row["bytes"], row["nodes"]) for row in rows] == [call[2:4] for call in asked]
    assert rows[0]["src"] == "gpu2"


def test_parts_are_those_of_the_whole_latency():
    shares = parts(values.graph_phases())
    assert shares["first"] == pytest.approx(
        {"create": 0.025, "construct": 0.1, "instantiate": 0.25, "launch": 0.125, "wait": 0.5}
    )
    assert shares["later"] == pytest.approx({"launch": 0.1, "wait": 0.9})


def test_the_wait_is_never_negative():
    """Medians of the phases need not add up to the median of the whole."""
    assert parts(values.graph_phases(latency_us=4.9))["later"]["wait"] == 0


def test_tables():
    rows = [row(), row(nodes=16, verified=False)]
    first = rendered(command.first_table(rows))
    assert first[2] == [
        *("64M", "8", "2.00", "2%", "8.00", "10%", "20.0", "25%", "10.0", "12%", "80.0"),
    ]
    later = rendered(command.later_table(rows))
    assert later[2] == [
        *("64M", "8", "5.00", "10%", "50.0", "4.00", "7%", "54.0", "16.0", "25%", "64.0", "yes"),
    ]
    assert later[3][-1] == "NO"


def test_the_plot_holds_every_size_and_number_of_nodes(tmp_path):
    rows = [row(size=1 << shift, nodes=nodes) for shift in (21, 25) for nodes in (2, 8, 34)]
    document = {**values.document(), "op": "graph-phases", "rows": rows}
    plot_graph_phases(document, tmp_path / "phases.svg")
    drawing = (tmp_path / "phases.svg").read_text()
    for text in ("2M", "32M", "2", "8", "34", "parts of the latency, 34 nodes", "later iteration"):
        assert f"<!-- {text} -->" in drawing, text


def test_context_answers_in_virtual_time():
    with Context(node="narval") as context:
        costs = context.topology()["costs"]
        report = context.graph_phases("gpu0", "gpu1", "64K", nodes=6, iterations=1)
        with pytest.raises(InvalidArgument, match="nodes: 5 is not allowed"):
            context.graph_phases("gpu0", "gpu1", "64K", nodes=5)
        with pytest.raises(InvalidArgument, match="gpu7"):
            context.graph_phases("gpu0", "gpu7", "64K", nodes=2)
    assert set(report) == set(values.graph_phases())
    assert report["patch_us"] == pytest.approx(6 * costs["graph_set_node_us"], abs=1e-3)
    assert report["instantiate_us"] == pytest.approx(
        costs["graph_instantiate_us"] + 6 * costs["graph_instantiate_node_us"], abs=1e-3
    )


def test_command(polypath, tmp_path):
    done = polypath(
        *("bench", "graph-phases", "--node", "narval", "--sizes", "256K,1M", "--nodes", "2:8"),
        *("--plot", "phases.png", "--json", "phases.json"),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "graph-phases, gpu0 to gpu1 via gpu2, on narval (simulated, virtual time)"
    assert sum(line.split()[:2] == ["256K", "8"] for line in lines) == 2  # a row in each table
    assert "graph-phases: 6/6 1M, 8 nodes" in done.stderr
    assert (tmp_path / "phases.png").read_bytes().startswith(PNG)

    document = json.loads((tmp_path / "phases.json").read_text())
    assert document["schema"] == 1
    assert document["op"] == "graph-phases"
    assert document["node"]["name"] == "narval"
    assert document["command"].startswith("polypath bench graph-phases --node narval")
    keys = [(row["bytes"], row["nodes"]) for row in document["rows"]]
    assert keys == [(size << 10, nodes) for size in (256, 1024) for nodes in (2, 4, 8)]
    for row in document["rows"]:
        assert set(row) == {*values.graph_phases(), "src", "dst", "parts"}
        assert row["verified"] is True
        for shares in row["parts"].values():
            assert sum(shares.values()) == pytest.approx(1)


def test_command_with_host_end_and_json_on_stdout(polypath):
    arguments = ("--node", "narval", "--src", "host0", "--dst", "gpu1", "--sizes", "64K")
    done = polypath("bench", "graph-phases", *arguments, "--nodes", "2", "--json", "-")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["src"], row["via"], row["dst"]) == ("host0", "gpu0", "gpu1")


def test_a_size_with_too_few_bytes_for_its_nodes(polypath):
    arguments = ("--node", "narval", "--sizes", "1K", "--nodes", "2,64")
    done = polypath("bench", "graph-phases", *arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "polypath: bytes: 1024 is not allowed: 32 chunks need at least 8192"
    )
    assert "1K" in done.stdout  # the row before it
