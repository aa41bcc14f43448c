"""The command line, end to end, on simulated nodes."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from polypath.cli import COMMANDS
from test_command_line_errors import the_one_line

PNG = b"\x89PNG\r\n"
ROW = {
    "src": str,
    "dst": str,
    "bytes": int,
    "native_gbps": float,
    "polypath_gbps": float,
    "speedup": float,
    "limit_gbps": float,
    "verified": bool,
    "executor": str,
    "routes": list,
}


def succeeded(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


def json_of(done):
    return json.loads(succeeded(done))


def check_schema(document, operation, node):
    assert document["schema"] == 1
    assert document["op"] == operation
    assert document["node"]["name"] == node
    assert document["node"]["simulated"] is True
    assert document["node"]["fingerprint"]
    for row in document["rows"]:
        for key, kind in ROW.items():
            assert isinstance(row[key], kind), (key, row[key])
        for route in row["routes"]:
            assert isinstance(route["route"], str)
            assert 0 < route["share"] <= 1
            assert route["chunks"] >= 1
        assert row["verified"] is True
        assert row["polypath_gbps"] <= row["limit_gbps"] * 1.001
        assert row["speedup"] == pytest.approx(row["polypath_gbps"] / row["native_gbps"], rel=0.01)


def test_version_and_help(polypath):
    assert succeeded(polypath("--version")).strip().count(".") == 2
    text = succeeded(polypath())
    assert succeeded(polypath("--help")) == text
    for command in COMMANDS:
        assert f"\n  {command} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_its_help(polypath, command):
    text = succeeded(polypath(*command.split(), "--help", COLUMNS="80"))
    assert text.startswith(f"usage: polypath {command} [OPTIONS]")
    assert max(map(len, text.splitlines())) <= 80
    assert "  --node NAME|FILE" in text


def test_what_is_not_used_is_not_imported(started_program):
    """Time to start: what is heavy is loaded only if needed."""
    program = """
import sys
from polypath.cli import app
sys.argv[1:] = {arguments!r}
try:
    app()
except SystemExit as left:
    assert not left.code
finally:
    print([*{{"rich.table", "rich.progress", "matplotlib", "argparse"}} & set(sys.modules)])
"""
    for arguments, imported in (
        (["--version"], set()),
        (["--help"], set()),
        (["plan", "gpu0", "gpu1", "64M", "--node", "narval"], {"rich.table", "argparse"}),
    ):
        done = started_program(program.format(arguments=arguments))
        assert set(ast.literal_eval(succeeded(done).splitlines()[-1])) == imported


@pytest.mark.parametrize(
    "command",
    [
        "bench p2p --sizes 1M,4M",
        "bench p2p --sizes 1M --window 2",
        "bench p2p --sizes 4M --compare-executors",
        "bench graph-phases --sizes 1M --nodes 2",
        "plan gpu0 gpu1 64M",
        "plan allreduce 64M --compare",
        "tune --src gpu0 --dst gpu1 --sizes 1M",
        "topo",
        "info",
    ],
)
def test_80_columns_hold_what_160_hold(polypath, command):
    """No column is left out, none is cut, and no line is broken by the terminal."""
    texts = {
        width: succeeded(
            polypath(
                *command.split(),
                *("--node", "narval"),
                COLUMNS=str(width),
                POLYPATH_REGISTRY="auto",  # a test's own has a long name
            )
        )
        for width in (160, 80)
    }
    words = {width: set(text.split()) for width, text in texts.items()}
    changing = re.compile(r"[\d.]+|─+|s,")  # times of this machine's CPU
    missing = {word for word in words[160] - words[80] if not changing.fullmatch(word)}
    assert missing == set()
    tables = [line for line in texts[80].splitlines() if line.startswith(" ")]
    assert max(map(len, tables)) <= 80


@pytest.mark.parametrize("arguments", [[], ["nodes"], ["plan", "gpu0", "gpu1", "1M"]])
def test_a_reader_that_has_seen_enough_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "polypath", *arguments],
            env={**os.environ, "POLYPATH_NODE": "narval"},
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", "topo", "topo --json -", "topo --help", "nodes"])
def test_a_stdout_that_cannot_be_written_is_a_line(command, unbuffered):
    words = f"exec {sys.executable} -m polypath {command}"
    environment = {**os.environ, "POLYPATH_NODE": "narval", "PYTHONUNBUFFERED": unbuffered}
    for target, why in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
        done = subprocess.run(
            ["sh", "-c", f"{words} {target}"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert why in the_one_line(done, 1)
    done = subprocess.run(["sh", "-c", f"{words} 2>&-"], env=environment, capture_output=True)
    assert done.returncode == 0


def test_a_json_file_on_a_full_disk_is_a_line(polypath):
    line = the_one_line(polypath("topo", "--node", "narval", "--json", "/dev/full"), 2)
    assert line == "polypath: /dev/full: No space left on device"


def test_nodes(polypath):
    nodes = {node["name"]: node for node in json_of(polypath("nodes", "--json", "-"))}
    assert nodes["narval"]["gpus"] == 4
    assert nodes["dgx-h200-x8"]["gpus"] == 8
    assert "marenostrum5" in succeeded(polypath("nodes"))
    (only,) = json_of(polypath("nodes", "--node", "mist", "--json", "-"))
    assert only["name"] == "mist"
    (file,) = json_of(polypath("nodes", "--node", only["file"], "--json", "-"))
    assert file == only


def test_topo(polypath, tmp_path):
    text = succeeded(polypath("topo", "--node", "narval", "--plot", "node.png"))
    assert "NV4 93" in text
    assert "PCIE16 25" in text
    assert (tmp_path / "node.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("node", ["narval", "pcie-4gpu", "gh200-quad", "dgx-h200-x8"])
def test_topo_of_a_node_is_drawn_and_listed(polypath, tmp_path, node):
    succeeded(polypath("topo", "--node", node, "--plot", "node.svg", "--json", "topo.json"))
    topology = json.loads((tmp_path / "topo.json").read_text())
    assert topology["name"] == node
    assert topology["simulated"] is True
    assert topology["capacities"] == "node file"
    assert (tmp_path / "node.svg").stat().st_size > 1000


def test_plan(polypath):
    text = succeeded(polypath("plan", "gpu0", "gpu1", "64M", "--node", "narval"))
    for word in ("direct", "via gpu2", "via gpu3", "bound", "times native"):
        assert word in text


def test_plan_json(polypath):
    plan = json_of(polypath("plan", "gpu0", "gpu1", "64M", "--node", "narval", "--json", "-"))
    (transfer,) = plan["transfers"]
    assert plan["bytes"] == 64 << 20
    assert sum(route["bytes"] for route in transfer["routes"]) == 64 << 20
    assert plan["native_gbps"] < plan["predicted_gbps"] <= plan["limit_gbps"]


def test_plan_without_direct_route_has_no_native_copy(polypath):
    text = succeeded(polypath("plan", "gpu0", "gpu1", "64M", "--node", "narval", "--routes", "gpu"))
    assert "times native" not in text
    assert "native    not allowed by the settings" in text


@pytest.mark.parametrize("size", ["64MB", "64 MB", "64MiB", "0.0625G"])
def test_sizes_as_people_write_them(polypath, size):
    plan = json_of(polypath("plan", "gpu0", "gpu1", size, "--node", "narval", "--json", "-"))
    assert plan["bytes"] == 64 << 20


def test_plan_of_one_kind_of_routes(polypath):
    arguments = ("plan", "gpu0", "gpu1", "64M", "--node", "narval", "--json", "-")
    plan = json_of(polypath(*arguments, "--routes", "direct,gpu"))
    routes = [route["route"] for route in plan["transfers"][0]["routes"]]
    assert routes == ["direct", "via gpu2", "via gpu3"]


def test_plan_of_a_small_transfer_says_why_it_is_native(polypath):
    text = succeeded(polypath("plan", "gpu0", "gpu1", "4K", "--node", "narval"))
    assert "native copy: " in text


@pytest.mark.parametrize("node", ["narval", "pcie-4gpu"])
@pytest.mark.parametrize("operation", ["p2p", "h2d", "d2h", "bidir", "ring"])
def test_bench(polypath, node, operation):
    arguments = ("bench", operation, "--node", node, "--sizes", "64K,4M", "--json", "-")
    document = json_of(polypath(*arguments))
    check_schema(document, operation, node)
    assert [row["bytes"] for row in document["rows"]] == [64 << 10, 4 << 20]
    assert min(row["speedup"] for row in document["rows"]) >= 0.99


def test_bench_shows_a_table_and_draws_a_plot(polypath, tmp_path):
    done = polypath(
        *("bench", "p2p", "--node", "narval", "--src", "gpu2", "--dst", "gpu3"),
        *("--sizes", "1M:16M", "--iterations", "2", "--warmup", "1", "--executor", "stream"),
        *("--plot", "bench.png", "--json", "bench.json"),
    )
    text = succeeded(done)
    assert "p2p, gpu2 to gpu3, on narval (simulated, virtual time)" in text
    assert "p2p: 5/5 16M" in done.stderr
    assert (tmp_path / "bench.png").read_bytes().startswith(PNG)
    document = json.loads((tmp_path / "bench.json").read_text())
    check_schema(document, "p2p", "narval")
    assert document["command"].startswith("polypath bench p2p --node narval --src gpu2")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("bench p2p --sizes 64K", "on narval (simulated, times of this machine's CPU)"),
        ("bench graph-phases --sizes 1M --nodes 2", "narval (simulated, times of this machine's"),
        ("bench all_gather --sizes 64K", "times are of this machine's CPU, and say nothing of"),
    ],
)
def test_real_time_of_simulated_node_is_not_virtual(polypath, command, words):
    arguments = (*command.split(), "--node", "narval", "--json", "rows.json")
    text = succeeded(polypath(*arguments, POLYPATH_SIM_MODE="functional"))
    assert words in text
    assert "virtual" not in text


def test_bench_of_windows(polypath):
    arguments = ("bench", "p2p", "--node", "narval", "--sizes", "4M", "--window", "1,4")
    done = polypath(*arguments, "--json", "bench.json")
    text = succeeded(done)
    head, single, four = (line.split() for line in text.splitlines() if re.search("size|4M", line))
    assert head[:2] == ["window", "size"]
    assert (single[0], four[0]) == ("1", "4")
    assert "p2p: 2/2 4M x 4" in done.stderr
    document = json_of(polypath(*arguments, "--json", "-"))
    check_schema(document, "p2p", "narval")
    assert [row["window"] for row in document["rows"]] == [1, 4]
    # GB/s are sums: four at once keep the links busier than one.
    assert document["rows"][1]["native_gbps"] > document["rows"][0]["native_gbps"]
    assert document["rows"][1]["polypath_gbps"] > document["rows"][0]["polypath_gbps"]


def test_bench_of_windows_both_ways(polypath):
    arguments = ("bench", "bidir", "--node", "narval", "--sizes", "1M", "--window", "2")
    (row,) = json_of(polypath(*arguments, "--json", "-"))["rows"]
    assert row["window"] == 2
    assert len(row["transfers"]) == 2
    assert row["verified"] is True


def test_bench_by_graphs(polypath):
    arguments = ("bench", "p2p", "--node", "narval", "--sizes", "64K,16M")
    documents = {
        executor: json_of(polypath(*arguments, "--executor", executor, "--json", "-"))
        for executor in ("auto", "stream", "graph")
    }
    for executor, document in documents.items():
        check_schema(document, "p2p", "narval")
        assert document["settings"]["executor"] == executor
        expected = "graph" if executor == "graph" else "stream"  # nothing was tuned
        assert document["rows"][1]["executor"] == expected
    assert documents["graph"]["rows"][1]["speedup"] > 1.5
    figures = {name: document["rows"][1]["polypath_us"] for name, document in documents.items()}
    assert figures["auto"] == figures["stream"] != figures["graph"]
    text = succeeded(polypath(*arguments, "--executor", "graph"))
    assert re.search(r"16M .* yes +graph ", text)


def test_bench_is_the_same_twice(polypath):
    arguments = ("bench", "p2p", "--node", "narval", "--sizes", "1M,8M", "--json", "-")
    first, second = (json_of(polypath(*arguments)) for _ in range(2))
    for row in (*first["rows"], *second["rows"]):
        del row["issue_us"], row["native_issue_us"]  # the time of this machine's CPU
    assert first["rows"] == second["rows"]


def test_ring_in_both_directions(polypath):
    arguments = ("bench", "ring", "--both-directions", "--node", "narval", "--sizes", "1M")
    (row,) = json_of(polypath(*arguments, "--json", "-"))["rows"]
    assert len(row["transfers"]) == 8


def test_info_settings(polypath):
    settings = {
        setting["name"]: setting
        for setting in json_of(polypath("info", "-c", "--json", "-", POLYPATH_CHUNKS="8"))[
            "settings"
        ]
    }
    assert settings["chunks"]["value"] == "8"
    assert settings["chunks"]["origin"] == "environment"
    assert settings["routes"]["origin"] == "default"
    expected = (
        "node routes max_routes chunk_size chunks min_size staging_size executor graph_cache_size "
        "profile log_level"
    )
    assert set(expected.split()) <= set(settings)
    assert all(setting["meaning"] for setting in settings.values())
    assert "POLYPATH_STAGING_SIZE" in succeeded(polypath("info", "-c"))


def test_info_settings_of_a_node(polypath):
    result = json_of(polypath("info", "-c", "--node", "narval", "--json", "-"))
    (node,) = [setting for setting in result["settings"] if setting["name"] == "node"]
    assert (node["value"], node["origin"]) == ("narval", "argument")


def test_info_devices(polypath):
    devices = json_of(polypath("info", "-d", "--node", "narval", "--json", "-"))["devices"]
    assert devices["simulated"] is True
    assert [device["id"] for device in devices["devices"]] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    text = succeeded(polypath("info", "--node", "narval"))
    assert "libpolypath_sim.so" in text
    assert "POLYPATH_ROUTES" in text
    assert "graphs    supported, cache of 64: none used yet" in text
    assert devices["graphs"]["cache_size"] == 64
    assert set(devices["graphs"]["counts"].values()) == {0}
    text = succeeded(polypath("info", "-d", "--node", "narval", POLYPATH_GRAPH_CACHE_SIZE="7"))
    assert "cache of 7" in text


def test_measure_finds_the_capacities_of_the_node_file(polypath):
    node = Path(__file__).parent / "two_gpus.toml"
    arguments = ("topo", "--node", str(node), "--json", "-")
    declared = json_of(polypath(*arguments))
    done = polypath(*arguments, "--measure")
    measured = json_of(done)
    assert done.stderr.startswith("measure: 1/")
    expected = {(link["from"], link["to"]): link["gbps"] for link in declared["links"]}
    actual = {(link["from"], link["to"]): link["gbps"] for link in measured["links"]}
    assert actual == pytest.approx(expected, rel=0.03)


def test_demo_without_a_gpu(polypath, tmp_path):
    done = polypath("demo", "--sizes", "1M:4M", CUDA_VISIBLE_DEVICES="")
    text = succeeded(done)
    assert text.splitlines()[0] == (
        "No GPU here, so a node is simulated: narval (simulated, virtual time)"
    )
    assert "p2p, gpu0 to gpu1" in text
    assert "h2d, host0 to gpu0" in text
    assert text.splitlines()[-1] == "plot: out/demo-narval.png"
    assert (tmp_path / "out" / "demo-narval.png").read_bytes().startswith(PNG)


def test_demo_without_matplotlib(polypath_program, tmp_path):
    done = polypath_program(
        "import sys; sys.modules['matplotlib'] = None; from polypath.cli import app; app()",
        *("demo", "--node", "narval", "--sizes", "1M"),
    )
    text = succeeded(done)
    assert "h2d, host0 to gpu0" in text
    assert text.splitlines()[-1] == ("no plot: plots need matplotlib: pip install 'polypath[plot]'")
    assert not (tmp_path / "out").exists()
