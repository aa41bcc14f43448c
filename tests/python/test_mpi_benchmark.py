"""What `polypath bench mpi` and `polypath bench jacobi` make of their runs, with programs and
results made by hand."""

import os
import sys

import pytest
from polypath.cli.bench import finish
from polypath.cli.bench_mpi import messages_table, solver_table, statistics_lines
from polypath.cli.output import console
from polypath.errors import PolypathError
from polypath.mpi import results
from polypath.mpi.runs import ProgramFailed, Runs, alternate
from polypath.plots import plot_messages, plot_solver
from test_tables import rendered

BW, LATENCY = results.Test.bw, results.Test.latency

#: A program that has the option --json: what it was started with, and statistics where they are
#: asked for.
PROGRAM = """
import json, os, pathlib, sys
number = len(pathlib.Path("log").read_text().split()) if pathlib.Path("log").exists() else 0
with open("log", "a") as log: print(os.environ["WAY"], file=log)
results = {"number": number, "way": os.environ["WAY"], "arguments": sys.argv[1:-2]}
if "WRITES_NOT" not in os.environ:
    pathlib.Path(sys.argv[-1]).write_text(json.dumps(results))
if (statistics := os.environ.get("POLYPATH_STATS")):
    pathlib.Path(statistics.replace("%p", str(os.getpid()))).write_text(json.dumps({"pid": number}))
print("-----\\nrank 1: 1 of 8 bytes are wrong, the first at 3", file=sys.stderr)
sys.exit(int(os.environ.get("CODE", 0)))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs PROGRAM: `run(pairs, timed, **environment)` gives the runs, and what was announced."""
    monkeypatch.chdir(tmp_path)

    def start(pairs, timed=False, **environment):
        base = {**os.environ, **environment}
        announced = []
        runs = alternate(
            [sys.executable, "-c", PROGRAM, "--size", "4"],
            {**base, "WAY": "without"},
            {**base, "WAY": "with"},
            pairs,
            timed,
            lambda number, what: announced.append((number, what)),
        )
        return runs, announced

    return start


def test_ways_alternate(run):
    runs, announced = run(3)
    assert [entry["number"] for entry in runs.baseline] == [0, 2, 4]
    assert [entry["number"] for entry in runs.polypath] == [1, 3, 5]
    assert {entry["way"] for entry in runs.baseline} == {"without"}
    assert {entry["way"] for entry in runs.polypath} == {"with"}
    assert all(entry["arguments"] == ["--size", "4"] for entry in runs.baseline)
    assert announced == list(enumerate(["baseline", "polypath"] * 3))
    assert runs.processes == [{"pid": number} for number in (1, 3, 5)]


def test_statistics_of_what_is_timed_are_of_another_run(run):
    runs, announced = run(2, timed=True)
    assert [entry["number"] for entry in runs.baseline] == [0, 2]
    assert [entry["number"] for entry in runs.polypath] == [1, 3]
    assert announced == list(enumerate(["baseline", "polypath"] * 2 + ["statistics"]))
    assert runs.processes == [{"pid": 4}]


def test_wrong_bytes_are_a_result(run):
    runs, _ = run(1, CODE="1")
    assert len(runs.baseline) == len(runs.polypath) == 1
    assert runs.messages == ["rank 1: 1 of 8 bytes are wrong, the first at 3"] * 2


@pytest.mark.parametrize("environment", [{"CODE": "2"}, {"CODE": "1", "WRITES_NOT": "1"}])
def test_other_failures_are_errors(run, environment):
    with pytest.raises(ProgramFailed, match=f"ended with {environment['CODE']}: rank 1: 1 of 8"):
        run(1, **environment)


def message_run(figure, *values, verified=True):
    rows = [
        {
            "bytes": 1 << (10 * number),
            "window": 1,
            "messages": 3,
            "verified": verified,
            figure: value,
        }
        for number, value in enumerate(values, 1)
    ]
    return {"mpi": "MPI", "ranks": 2, "rows": rows}


def solver_run(iteration_us, residuals=(0.5, 0.25), digest="a0"):
    return {
        **{"mpi": "MPI", "ranks": 4, "rows": 32, "columns": 1024, "halo_bytes": 4096},
        **{"iterations": 2, "compute": "gpu", "residuals": list(residuals), "digest": digest},
        "iteration_us": iteration_us,
        "compute_us": iteration_us / 4,
        "communication_us": iteration_us / 2,
    }


def runs_of(baseline, polypath):
    return Runs(baseline, polypath, [], [])


def bandwidth_rows(**changes):
    return results.message_rows(
        BW,
        runs_of(
            [message_run("gbps", value, 10) for value in (1, 4, 2)],
            [message_run("gbps", value, 30, **changes) for value in (5, 3, 4)],
        ),
        timed=True,
    )


def test_figures_are_medians_of_the_runs():
    first, second = bandwidth_rows()
    assert (first["bytes"], first["baseline_gbps"], first["polypath_gbps"]) == (1024, 2, 4)
    assert first["speedup"] == 2
    assert first["speedups"] == [5, 0.75, 2]
    assert (second["bytes"], second["speedup"], second["messages"]) == (1 << 20, 3, 3)
    assert first["verified"] is second["verified"] is True


def test_less_latency_is_a_speedup():
    runs = runs_of([message_run("latency_us", 8)], [message_run("latency_us", 2)])
    (row,) = results.message_rows(LATENCY, runs, timed=True)
    assert (row["baseline_latency_us"], row["polypath_latency_us"], row["speedup"]) == (8, 2, 4)


def test_one_run_with_wrong_bytes_is_enough():
    for ways in ((True, False), (False, True)):
        runs = runs_of(*([message_run("gbps", 1, verified=way)] for way in ways))
        assert [row["verified"] for row in results.message_rows(BW, runs, timed=True)] == [False]


def test_no_times_where_they_mean_nothing():
    runs = runs_of([message_run("gbps", 1)], [message_run("gbps", 2)])
    (row,) = results.message_rows(BW, runs, timed=False)
    assert row["baseline_gbps"] is row["polypath_gbps"] is row["speedup"] is row["speedups"] is None
    solved = results.solver_row(runs_of([solver_run(8)], [solver_run(4)]), timed=False)
    assert solved["baseline"] is solved["polypath"] is solved["speedup"] is None
    assert rendered(messages_table([row], "stock", "gbps"))[2] == ["1K", "3", "yes"]
    assert rendered(solver_table([solved], "stock"))[2] == ["32K", "4K", "0.25", "yes"]


def test_solver_row():
    row = results.solver_row(
        runs_of([solver_run(time) for time in (8, 9, 7)], [solver_run(time) for time in (4, 2, 5)]),
        timed=True,
    )
    assert (row["elements"], row["halo_bytes"], row["digest"]) == (32768, 4096, "a0")
    assert row["baseline"] == {"iteration_us": 8, "compute_us": 2, "communication_us": 4}
    assert row["polypath"]["iteration_us"] == 4
    assert (row["speedup"], row["speedups"]) == (2, [2, 4.5, 1.4])
    assert row["verified"] is True


@pytest.mark.parametrize("other", [{"residuals": (0.5, 0.2500001)}, {"digest": "a1"}])
def test_solver_that_comes_to_other_bits(other):
    for runs in (
        runs_of([solver_run(1)], [solver_run(1, **other)]),
        runs_of([solver_run(1), solver_run(1, **other)], [solver_run(1), solver_run(1)]),
    ):
        assert results.solver_row(runs, timed=True)["verified"] is False


def process(split, native, dst="gpu1", **routes):
    return {
        "pid": 1,
        "calls": {"cuMemcpyAsync": {"calls": 10, "bytes": 50, "offloaded": 7, "issued": split}},
        "engine": {
            "routes": [
                {"src": "gpu0", "dst": dst, "route": route, "transfers": 1, "bytes": size}
                for route, size in routes.items()
            ],
            "native_by_reason": {"small": native},
            "left_out_by_reason": {},
        },
    }


def test_statistics_are_those_of_all_processes():
    idle = {"pid": 2, "calls": {}, "engine": None}
    summary = results.summary([process(5, 2, direct=60, gpu2=20), process(6, 0, direct=20), idle])
    assert {key: summary[key] for key in ("processes", "calls", "bytes", "asked", "split")} == {
        **{"processes": 3, "calls": 20, "bytes": 100},
        **{"asked": 14, "split": 11},
    }
    pair = {"src": "gpu0", "dst": "gpu1"}
    assert summary["routes"] == [
        {**pair, "route": "direct", "bytes": 80, "share": 0.8},
        {**pair, "route": "gpu2", "bytes": 20, "share": 0.2},
    ]
    assert statistics_lines(summary) == [
        "with polypath: 20 copies of 3 processes, 14 large enough, 11 split",
        "bytes of those: direct 80%, gpu2 20%",
        "not split: 2 x small",
    ]


def test_routes_of_several_pairs_are_shown_by_kind():
    first = process(1, 0, direct=50, gpu2=10, gpu3=20)
    summary = results.summary([first, process(1, 0, "gpu2", direct=10, gpu1=10)])
    assert len(summary["routes"]) == 5
    assert statistics_lines(summary)[1] == "bytes of those: direct 60%, gpu 40%"


def leave(document):
    finish(document, console("-"), None, None, draw=None)


def test_a_comparison_with_itself_is_an_error():
    statistics = results.summary([])
    rows = bandwidth_rows()
    with pytest.raises(PolypathError, match="no copy was caught"):
        leave({"rows": rows, "statistics": statistics})
    caught = {"statistics": results.summary([process(0, 1)])}
    leave({"rows": rows, **caught})
    with pytest.raises(SystemExit) as left:
        leave({"rows": bandwidth_rows(verified=False), **caught})
    assert left.value.code == 1


def test_tables():
    table = rendered(messages_table(bandwidth_rows(), "direct", "gbps"))
    assert table[0] == ["size", "direct", "polypath", "speedup", "messages", "verified"]
    assert table[2] == ["1K", "2.00", "4.00", "2.00", "3", "yes"]
    wrong = messages_table([{**bandwidth_rows(verified=False)[0], "window": 4}], "stock", "gbps")
    assert rendered(wrong)[2] == ["4", "1K", "2.00", "4.00", "2.00", "3", "NO"]
    row = results.solver_row(runs_of([solver_run(800)], [solver_run(400)]), timed=True)
    assert rendered(solver_table([row], "stock"))[2] == [
        *("32K", "4K", "800", "400", "2.00", "400", "200", "0.25", "yes")
    ]


def drawn(file):
    """The texts of a drawing."""
    return {
        line.strip().removeprefix("<!-- ").removesuffix(" -->")
        for line in file.read_text().splitlines()
        if line.strip().startswith("<!-- ")
    }


def document(operation, rows, mesh=None):
    node = {"name": "made-up", "simulated": False, "emulated_mesh_gbps": mesh}
    return {"op": operation, "baseline": "stock", "ranks": 2, "node": node, "rows": rows}


def test_plot_of_messages(tmp_path):
    rows = [{**row, "window": window} for window in (1, 16) for row in bandwidth_rows()]
    plot_messages(document("mpi bw", rows, mesh=46.0), tmp_path / "a.svg")
    assert {
        *("window 1", "window 16", "stock", "polypath", "GB/s", "speedup"),
        "mpi bw, 2 ranks, made-up, emulated mesh of 46 GB/s a link",
    } <= drawn(tmp_path / "a.svg")


def test_plot_of_latency(tmp_path):
    runs = runs_of([message_run("latency_us", 8, 9)], [message_run("latency_us", 7, 9)])
    rows = results.message_rows(LATENCY, runs, timed=True)
    plot_messages(document("mpi latency", rows), tmp_path / "a.svg")
    assert {"us", "mpi latency, 2 ranks, made-up"} <= drawn(tmp_path / "a.svg")


def test_plot_of_the_solver(tmp_path):
    row = results.solver_row(runs_of([solver_run(800)], [solver_run(400)]), timed=True)
    plot_solver(document("jacobi", [row, {**row, "halo_bytes": 8192}]), tmp_path / "a.svg")
    assert {
        *(
            "computation",
            "communication, stock",
            "communication, polypath",
            "of an iteration, stock",
        ),
        *("4K", "8K"),
    } <= drawn(tmp_path / "a.svg")
