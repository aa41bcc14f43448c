"""Values of the library as people see them."""

import io
import re

import pytest
import values
from polypath.benchmark import Operation, Pair
from polypath.cli import COMMANDS, GROUPS, bench, doctor, info, nodes, options, overview, plan, tune
from polypath.cli.arguments import CommandLine
from polypath.cli.output import print_lines
from polypath.doctor.checks import Finding, Leg, State, spans, staging
from polypath.doctor.trials import Report
from polypath.link_names import shared_capacities
from rich.console import Console


def rendered(table, width=160):
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return [line.split() for line in console.file.getvalue().splitlines() if line.strip()]


def test_topology_matrix():
    rows = rendered(nodes.link_matrix(values.topology(2)))
    assert rows[0] == ["gpu0", "gpu1", "host0"]
    assert rows[2] == ["gpu0", "X", "NV4", "93", "PCIE16", "25"]
    assert rows[4] == ["host0", "PCIE16", "24.5", "PCIE16", "24.5", "X"]


def test_missing_links_and_unknown_widths():
    topology = values.topology(2, 2)
    topology["links"] = [values.link("gpu0", "gpu1", "nvlink", 0, 46.5)]
    rows = rendered(nodes.link_matrix(topology))
    assert rows[2] == ["gpu0", "X", "NV", "46.5", "-", "-"]
    assert rows[3] == ["gpu1", "-", "X", "-", "-"]


def test_the_legend_explains_what_is_there_and_nothing_else():
    legend = "\n".join(nodes.legend(values.topology()))
    assert "NV# " in legend
    assert "PCIE#" in legend
    assert "SW#" not in legend
    assert "shared host-read 89 GB/s" in legend


def test_a_wide_matrix_puts_the_rate_below_the_type():
    rows = rendered(nodes.link_matrix(values.topology(8, 2, "nvswitch", 396)), width=80)
    assert rows[2][:4] == ["gpu0", "X", "SW4", "SW4"]
    assert rows[3][:2] == ["396", "396"]


def test_a_matrix_of_sixteen_has_a_row_for_those_alike():
    topology = values.topology(16, 2, "nvswitch", 138)
    rows = rendered(nodes.link_matrix(topology), width=100)
    assert rows[0] == ["gpu0", "...", "gpu7", "gpu8", "...", "gpu15", "host0", "host1"]
    assert rows[2][:7] == ["gpu0", "...", "gpu7", "SW4", "138", "SW4", "138"]
    assert len(rows) == 2 + 4


def test_a_gpu_unlike_its_neighbours_has_a_row_of_its_own():
    topology = values.topology(16, 1, "nvswitch", 138)
    for link in topology["links"]:
        if link["from"] == "gpu5" and link["to"] == "gpu9":
            link["gbps"] = 99
    rows = rendered(nodes.link_matrix(topology), width=200)
    assert rows[0][:7] == ["gpu0", "...", "gpu4", "gpu5", "gpu6", "...", "gpu8"]
    table = nodes.link_matrix(topology)
    assert "\n".join(cell for row in table.rows for cell in row).count("99") == 1


def test_ports_of_one_family_are_told_together():
    assert shared_capacities(values.topology(16))[1].startswith("pcie.gpu0 ... gpu15,")
    assert shared_capacities(values.topology(4)) == [
        "host-read 89 GB/s",
        "pcie.gpu0 ... gpu3, each 25 GB/s",
    ]
    assert shared_capacities(values.topology(2))[1] == "pcie.gpu0, gpu1, each 25 GB/s"


def test_lines_are_neither_markup_nor_broken():
    console = Console(file=io.StringIO(), width=20)
    print_lines(console, *nodes.heading(values.topology()))
    first = console.file.getvalue().splitlines()[0]
    assert first == "A node made up [for tests] (simulated)"


def test_plan_tables():
    transfer = values.plan()["transfers"][0]
    routes = rendered(plan.route_table(transfer))
    assert routes[2] == ["direct", "50.0%", "33,554,432", "1", "32.0", "MiB", "93.0"]
    assert routes[3] == ["via", "gpu2", "50.0%", "33,554,432", "8", "4.00", "MiB", "74.8"]
    assert rendered(plan.left_out_table(transfer))[2] == [
        *("via", "host0", "not", "allowed", "[routes]"),
    ]


def test_plan_summary():
    text = "\n".join(plan.summary(values.plan()))
    assert "predicted    168 GB/s" in text
    assert "bound        186 GB/s" in text
    assert "400 us, 1.82 times native, 90.2% of the bound" in text


def test_the_plan_of_no_bytes_divides_by_nothing():
    empty = {**values.plan(), "predicted_us": 0, "native_us": 0, "limit_gbps": 0}
    assert plan.summary(empty)[0].endswith(", - of the bound")


def test_a_plan_without_the_direct_route_has_no_native_copy():
    staged = {**values.plan(), "native_us": 0.0, "native_gbps": 0.0}
    predicted, native, _ = plan.summary(staged)
    assert "times native" not in predicted
    assert "GB/s" not in native
    assert "without the direct route there is no native copy" in native


def test_bench_table():
    nothing = {"split": 0, "graphs": 0, "native_share": 1.0, "routes": []}
    small = {"verified": False, "native": True, "reason": "small [x]", "counted": nothing}
    rows = [values.row(), values.row(1 << 20, **small)]
    first, second = rendered(bench.bench_table(rows))[2:4]
    assert first[:8] == ["64M", "91.9", "168", "1.83", "186", "90%", "yes", "stream"]
    assert first[8:] == ["direct", "50%,", "gpu2", "50%/8"]
    assert second[6:] == ["NO", "-", "native:", "small", "[x]"]


def test_windows_have_a_column_where_there_are_any():
    some = {
        "split": 4,
        "graphs": 3,
        "native_share": 0.25,
        "routes": [
            {"src": "gpu0", "dst": "gpu1", "route": "direct", "share": 0.7},
            {"src": "gpu0", "dst": "gpu1", "route": "via host0", "share": 0.05},
        ],
    }
    alone = {**some, "graphs": 4}
    rows = [values.row(counted=alone), values.row(window=16, counted=some)]
    head, _, first, second = rendered(bench.bench_table(rows))[:4]
    assert head[:2] == ["window", "size"]
    assert first[:2] == ["1", "64M"]
    assert first[8] == "graph"
    assert second[:2] == ["16", "64M"]
    # For a window, what was counted and not what was planned.
    assert second[8:] == ["both", "direct", "70%,", "host0", "5%,", "native", "25%"]


TUNED = {
    "pattern": "one way",
    "pair": "gpu to gpu, nvlink x4, via 2 gpu, 1 host",
    "bytes": 64 << 20,
    "executor": "stream",
    "routes": [
        {"route": "direct", "share": 0.36, "chunks": 1},
        {"route": "gpu", "share": 0.58, "chunks": 9},
        {"route": "host", "share": 0.06, "chunks": 1},
    ],
    "slots": 4,
    "native_gbps": 92.3,
    "predicted_gbps": 253.7,
    "measured_gbps": 251.04,
    "tried": 31,
    "edited": False,
}


def test_tuned_tables():
    native = {**TUNED, "executor": "graph", "routes": TUNED["routes"][:1], "slots": 0}
    window = {**TUNED, "pattern": "window", "edited": True, "native_gbps": 0, "measured_gbps": 0}
    other = {**TUNED, "pair": "gpu to host"}
    (pair, table), (other_pair, _) = tune.tuned_tables([other, window, TUNED, native])
    assert (pair, other_pair) == (TUNED["pair"], "gpu to host")
    first, second, third = rendered(table)[2:]
    assert first == [
        *("one", "way", "64M", "graph"),
        *("92.3", "254", "251", "2.72", "31", "native"),
    ]
    assert second == [  # the pattern is told once
        *("64M", "stream", "92.3", "254", "251", "2.72", "31"),
        *("direct", "36%,", "gpu", "58%/9,", "host", "6%/1;", "4", "slots"),
    ]
    assert third[0] == "window"
    assert third[3:8] == ["0", "254", "0", "-", "31"]
    assert third[-1] == "edited"


@pytest.mark.parametrize("width", [60, 80, 100, 116])
def test_a_narrow_terminal_loses_no_figure(width):
    routes = [*TUNED["routes"], *TUNED["routes"][1:]]
    ((_, table),) = tune.tuned_tables([{**TUNED, "routes": routes}])
    words = {word for line in rendered(table, width) for word in line}
    assert {"pattern", "size", "executor", "native", "predicted", "measured", "speedup"} <= words
    assert {"64M", "stream", "92.3", "254", "251", "2.72", "31", "58%/9,"} <= words


def test_tuning_is_summed_up(tmp_path):
    file = tmp_path / "x.toml"
    document = {"choices": [TUNED], "profile": str(file), "stopped": True, "seconds": 12.4}
    assert tune.summary(document, "narval")[1] == "kept in no profile"  # it could not be written
    file.touch()
    assert tune.summary(document, "narval") == [
        "1 choices, 12 s, stopped; the same command goes on from here",
        f"profile: {file}",
    ]
    assert tune.summary({**document, "stopped": False}, "narval")[0] == "1 choices, 12 s, done"
    assert tune.summary({"choices": [], "profile": ""}, "narval") == [
        "nothing is tuned for narval",
        "kept in no profile",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("60", 60), ("60s", 60), ("1.5m", 90), ("5 min", 300), ("2h", 7200), (" 3 s ", 3)],
)
def test_budgets(text, expected):
    assert options.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1", "1d", "1e3", "5m30s", "soon", "0", "0s"])
def test_budgets_that_are_no_time(text):
    with pytest.raises(ValueError, match="is no time: seconds such as 60s"):
        options.seconds(text)


def test_bench_table_of_several_transfers_counts_routes():
    row = values.row(transfers=[{"src": "gpu0", "dst": "gpu1"}, {"src": "gpu1", "dst": "gpu0"}])
    assert bench.routes_text(row) == "1 direct, 1 via gpu"


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([Pair("gpu0", "gpu1")], "p2p, gpu0 to gpu1, on"),
        ([Pair("gpu0", "gpu1"), Pair("gpu1", "gpu0")], "gpu0 to gpu1, gpu1 to gpu0, on"),
        (
            [Pair("gpu0", "gpu1")] * 4,
            "4 transfers at once, gpu0 to gpu1, gpu0 to gpu1 ..., on",
        ),
    ],
)
def test_bench_heading(pairs, expected):
    heading = bench.heading(Operation.p2p, pairs, values.topology())
    assert expected in heading
    assert heading.endswith("made-up (simulated, virtual time)")


def test_emulated_mesh_is_marked_with_every_node_name():
    mesh = values.emulated_mesh()
    first, _, figures = nodes.heading(mesh)
    assert first.endswith("(emulated mesh, 46 GB/s a link)")
    assert figures == (
        "emulated mesh: 46 GB/s a link asked, 45.6 to 46.2 measured, "
        "by 1 to 2 lanes of a copy kernel"
    )
    heading = bench.heading(Operation.p2p, [Pair("gpu0", "gpu1")], mesh)
    assert heading.endswith("(emulated mesh, 46 GB/s a link)")


def test_settings_table():
    setting = {
        "name": "chunks",
        "environment": "POLYPATH_CHUNKS",
        "value": "8",
        "origin": "environment",
        "default": "",
        "allowed": "1 to 4096",
        "meaning": "chunks of a staged route",
    }
    first, second = rendered(info.settings_table([setting]))[2:]
    assert first == ["chunks", "8", "environment", *["chunks", "of", "a", "staged", "route"]]
    assert second == ["POLYPATH_CHUNKS", "1", "to", "4096"]


def test_devices():
    devices = {
        "driver": {"library": "libcuda.so.1", "cuda_version": 13010, "driver_version": ""},
        "simulated": False,
        "nvml": False,
        "kernels": False,
        "library": "/lib/libpolypath.so",
        "version": "0.1.0",
        "profile": {"file": "", "state": "off"},
        "graphs": {"supported": True, "cache_size": 64, "counts": {"launches": 0, "builds": 0}},
        "devices": [
            {
                "id": "gpu0",
                "name": "NVIDIA H200",
                "memory_bytes": 140 << 30,
                "free_bytes": None,
                "context_active": False,
            }
        ],
    }
    assert "unknown, CUDA 13.1, libcuda.so.1" in info.driver_lines(devices)[0]
    assert info.driver_lines(devices)[2].endswith("built without kernels: no emulated mesh")
    devices["kernels"] = True
    assert info.driver_lines(devices)[2].endswith("/lib/libpolypath.so")
    assert info.driver_lines(devices)[3] == "graphs    supported, cache of 64: none used yet"
    devices["graphs"] = {
        "supported": False,
        "cache_size": 0,
        "counts": {"launches": 7, "hits": 0, "builds": 2},
    }
    assert info.driver_lines(devices)[3].endswith(
        "not supported by this driver, cache of 0: 7 launches, 2 builds"
    )
    row = rendered(info.devices_table(devices["devices"]))[2]
    assert row == ["gpu0", "NVIDIA", "H200", "140", "GiB", "-", "none"]


def test_nodes_table():
    node = {"name": "narval", "gpus": 4, "gpu": "NVIDIA A100", "title": "Four [A100]", "file": "x"}
    assert rendered(nodes.nodes_table([node]))[2] == [
        *("narval", "4", "NVIDIA", "A100", "Four", "[A100]"),
    ]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_table_that_is_too_wide_is_shown_in_parts(width):
    rows = [values.row(size, window=4) for size in (1 << 20, 1 << 26)]
    table = bench.bench_table(rows)
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    heads = [line.split() for line in lines if "size" in line]
    assert all(head[:2] == ["window", "size"] for head in heads)
    shown = " ".join(word for head in heads for word in head[2:])
    assert shown == "native polypath speedup limit of limit verified executor routes"
    words = {word for line in lines for word in line.split()}
    assert {"1M", "64M", "91.9", "168", "1.83", "186", "90%", "yes", "stream", "50%"} <= words


def test_a_table_that_fits_is_one():
    table = bench.bench_table([values.row()])
    assert sum("size" in line for line in rendered(table, 116)) == 1


def report(way, leg, routes, state="well"):
    finding = Finding(f"{way}, {leg}", State(state), "split")
    return Report(way, leg, "symbol", 8, True, True, routes, finding)


def test_copies_that_went_alike_are_told_together():
    there, back, between = Leg("host", "gpu0"), Leg("gpu0", "host"), Leg("gpu1", "gpu0")
    split = {"direct": 3, "via gpu1": 1}
    reports = [report(way, leg, split) for way in ("a", "b", "c") for leg in (there, back)]
    reports[2] = report("b", there, {"direct": 1, "via gpu1": 3})
    rows = rendered(doctor.copies_table([*reports, report("import", between, split)]))
    went = ["ok", "yes", "yes", "direct", "75%,", "via", "gpu1", "25%"]
    assert rows[2] == ["host", "to", "gpu0", "a,", "c", *went]
    assert rows[3] == ["gpu0", "to", "host", "all", "3", "ways", *went]
    assert rows[4][:4] == ["host", "to", "gpu0", "b"]
    assert rows[5] == ["gpu1", "to", "gpu0", "import", *went]
    assert len(rows) == 7
    assert rows[6] == ["ways:", "a,", "b,", "c,", "import"]


def test_where_may_be_staged_and_why_not():
    policy = [
        *({"memory": f"gpu{n}", "allowed": True, "reason": "", "bytes": 64 << 20} for n in (0, 1)),
        {"memory": "gpu2", "allowed": False, "reason": "exclusive compute mode", "bytes": 0},
        {"memory": "gpu3", "allowed": True, "reason": "", "bytes": 64 << 20},
        {"memory": "host0", "allowed": True, "reason": "", "bytes": 64 << 20},
    ]
    assert staging({}) == []
    rows = rendered(doctor.findings_table(staging({"staging": policy})))
    assert rows[2] == [
        *("staging", "gpu0,", "gpu1,", "gpu3,", "host0", "ok", "up", "to", "64.0", "MiB")
    ]
    assert rows[3] == ["staging", "gpu2", "note", "not:", "exclusive", "compute", "mode"]
    assert len(rows) == 4


def test_names_that_follow_each_other_are_a_span():
    assert spans([f"gpu{number}" for number in range(4)]) == "gpu0..gpu3"
    assert spans(["gpu0", "gpu1", "gpu8", "gpu9", "gpu10", "host0"]) == (
        "gpu0, gpu1, gpu8..gpu10, host0"
    )
    assert spans(["host to gpu0"]) == "host to gpu0"
    assert spans([]) == ""


def test_each_command_says_what_it_is_about_in_its_overview():
    text = overview("polypath")
    for group, commands in GROUPS.items():
        assert f"\n{group}:\n" in text
        for command in commands:
            assert re.search(rf"^  {command.name} +{re.escape(command.about)}$", text, re.MULTILINE)
            assert command.load().__doc__, command.name
    assert max(map(len, text.splitlines())) <= 80


PROGRAM_WORDS = [
    ([], None),
    (["app"], ["app"]),
    (["--", "app", "--help"], ["app", "--help"]),
    (["app", "--routes", "x", "--", ""], ["app", "--routes", "x", "--", ""]),
    (["--routes", "gpu", "app", "--print"], ["app", "--print"]),
    (["--routes=gpu", "--print", "--", "--", "b"], ["--", "b"]),
]


@pytest.mark.parametrize(("words", "program"), PROGRAM_WORDS)
def test_words_of_a_program_are_its_own(words, program):
    read = CommandLine("polypath run", COMMANDS["run"].load()).read(words)
    assert read["program"] == program
    assert read["routes"] == ("gpu" if any("gpu" in word for word in words) else None)
    assert read["print_only"] is (words[:1] == ["--routes=gpu"])
