"""Plots: files come out, and the drawing of a node holds all of it."""

from xml.etree import ElementTree

import pytest
import values
from polypath.node_plot import layout, plot_node
from polypath.plots import plot_bench, plot_tuned

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


def test_switch_gpus_have_lines_only_to_the_switch():
    topology = values.topology(8, 2, "nvswitch", 396)
    far = values.link("gpu0", "host1", "pcie", 0, 40), values.link("gpu7", "host0", "pcie", 0, 40)
    topology["links"] += far
    boxes, lines = layout(topology)
    assert [box.text for box in boxes][-1] == "NVSwitch"
    gpus = [f"gpu{number}" for number in range(8)]
    assert [line.ends for line in lines[:8]] == [(gpu, "NVSwitch") for gpu in gpus]
    # To other host memories, one line between the two; each GPU has one to the nearest.
    assert {frozenset(line.ends) for line in lines[8:]} == {
        *(frozenset((gpu, f"host{number // 4}")) for number, gpu in enumerate(gpus)),
        frozenset(("host0", "host1")),
    }
    assert len(lines) == 8 + 8 + 1
    assert {line.label for line in lines} == {
        "NVSwitch x4: 396 GB/s a direction",
        "PCIe x16: 25 GB/s to a host, 24.5 from it",
        "PCIe to another host memory: 40 GB/s to a host, 0 from it",
    }


def comments(file):
    """The texts of a drawing, each as often as it is there."""
    return [line.strip(" <>!-") for line in file.read_text().splitlines() if "<!-- " in line]


def test_tuned_plot(tmp_path, monkeypatch):
    """A line a class and pattern: the speedup of the faster executor, by size."""
    drawn = []
    monkeypatch.setattr(
        "matplotlib.axes.Axes.plot",
        lambda axes, *points, **style: drawn.append((style["label"], *points)),
    )
    choices = [
        {
            "pair": pair,
            "pattern": pattern,
            "executor": executor,
            "bytes": size,
            "native_gbps": 50.0,
            "measured_gbps": gbps,
        }
        for pair, pattern in (("gpu to gpu", "one way"), ("x", "window"))
        for executor, size, gbps in (
            ("stream", 4 << 20, 75.0),
            ("stream", 1 << 20, 50.0),
            ("graph", 1 << 20, 60.0),
        )
    ]
    file = tmp_path / "tuned.svg"
    plot_tuned([*choices, {**choices[0], "native_gbps": 0.0, "bytes": 1}], "narval", file)
    curve = [1 << 20, 4 << 20], [1.2, 1.5]
    assert [line for line in drawn if line[1]] == [("gpu to gpu", *curve), ("x", *curve)]
    texts = comments(file)
    for text in ("one way", "both ways", "window", "Tuned choices of narval, measured"):
        assert text in texts, text


def test_a_plot_of_nothing_tuned(tmp_path):
    plot_tuned([], "narval", tmp_path / "tuned.png")
    assert (tmp_path / "tuned.png").read_bytes().startswith(PNG)


def test_a_large_full_mesh_is_a_circle():
    topology = values.topology(8, 2)
    boxes, lines = layout(topology)
    gpus, hosts = boxes[:8], boxes[8:]
    assert len({box.y for box in gpus}) == 8
    assert {box.text for box in hosts} == {"host0", "host1"}
    assert all(box.y < min(gpu.y for gpu in gpus) for box in hosts)
    # The GPUs of a host memory are above it: no line to it crosses the other's.
    assert [box.x < 0 for box in gpus] == [True] * 4 + [False] * 4
    assert len(lines) == 8 * 7 // 2 + 8
    # No way down passes through another GPU.
    for gpu in gpus:
        for other in gpus:
            assert gpu is other or abs(gpu.x - other.x) > other.width / 2 or gpu.y < other.y


def test_a_mesh_with_a_gap_is_no_circle():
    topology = values.topology(8, 2)
    topology["links"] = [link for link in topology["links"] if link["from"] != "gpu3"]
    boxes, _ = layout(topology)
    assert {box.y for box in boxes[:8]} == {0}
