"""Plots: files come out, and the drawing of a node holds all of it."""

from xml.etree import ElementTree

import pytest
import values
from polypath.bench_plot import plot_bench
from polypath.node_layout import layout
from polypath.node_plot import plot_node
from polypath.tune_plot import plot_tuned

PNG = b"\x89PNG\r\n"


@pytest.mark.parametrize("documents", [1, 2])
def test_bench_plot(tmp_path, documents):
    file = tmp_path / "bench.png"
    plot_bench([values.document(1 << 20, 1 << 21, 1 << 26)] * documents, file)
    assert file.read_bytes().startswith(PNG)
    assert file.stat().st_size > 10_000


def test_the_suffix_chooses_the_format(tmp_path):
    file = tmp_path / "bench.svg"
    plot_bench([values.document(1 << 20)], file)
    assert ElementTree.parse(file).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    "topology",
    [
        values.topology(),
        values.topology(8, 2, "nvswitch", 396),
        values.topology(4, 1, "bounce", 18),
        values.topology(1),
    ],
    ids=["mesh", "switch", "no-peers", "one-gpu"],
)
def test_node_plot(tmp_path, topology):
    file = tmp_path / "node.png"
    plot_node(topology, file)
    assert file.read_bytes().startswith(PNG)
    assert file.stat().st_size > 10_000


def test_the_layout_holds_every_memory_and_every_pair_once():
    boxes, lines = layout(values.topology(4, 2))
    assert [box.text.split("\n")[0] for box in boxes] == [
        *("gpu0", "gpu1", "gpu2", "gpu3"),
        *("host0", "host1"),
    ]
    pairs = [frozenset(line.ends) for line in lines]
    assert len(pairs) == len(set(pairs)) == 6 + 4


def test_links_that_are_alike_share_a_label():
    _, lines = layout(values.topology())
    assert {line.label for line in lines} == {
        "NVLink x4: 93 GB/s a direction",
        "PCIe x16: 25 GB/s to a host, 24.5 from it",
    }


def test_a_switch_is_drawn_as_one():
    boxes, _ = layout(values.topology(8, 2, "nvswitch", 396))
    assert [box.text for box in boxes][-1] == "NVSwitch"


def test_tuned_plot(tmp_path):
    """Classes and patterns are in the legend once, as streams; an empty profile is a plot, too."""
    choices = [
        {
            "pair": pair,
            "pattern": pattern,
            "executor": executor,
            "predicted_gbps": 100.0,
            "measured_gbps": 90.0,
        }
        for pair, pattern in (("gpu to gpu", "one way"), ("gpu to gpu", "window"), ("x", "window"))
        for executor in ("stream", "graph")
    ]
    labels = {"gpu to gpu; one way", "gpu to gpu; window", "x; window", "as predicted"}
    for shown, expected in ((choices, labels), ([], {"as predicted"})):
        file = tmp_path / "tuned.svg"
        plot_tuned(shown, "narval", file)
        text = file.read_text()
        assert ElementTree.fromstring(text).tag.endswith("svg")
        for label in labels:
            assert text.count(f"<!-- {label} -->") == (label in expected), label
