"""`polypath topo --load`: rates between two looks, the table, and the text for Prometheus."""

import io
import json

from polypath.cli import load
from rich.console import Console


def link(source="free", pid=None, wait_us=0.0, **busy_us):
    processes = [{"pid": int(name[1:]), "busy_us": value} for name, value in busy_us.items()]
    return {
        "from": "gpu0",
        "to": "host0",
        "gbps": 50.0,
        "loaded": source != "free",
        "source": source,
        "pid": pid,
        "wait_us": wait_us,
        "processes": processes,
    }


def looks(before, after, elapsed_us=1000.0):
    return load.with_ratios(
        {"time_us": 500.0, "links": [before]}, {"time_us": 500.0 + elapsed_us, "links": [after]}
    )["links"][0]


def test_ratio_adds_processes_up():
    summary = looks(link(p1=100.0, p2=50.0), link(p1=300.0, p2=350.0))
    assert summary["busy_ratio"] == 0.5
    assert summary["carried_gbps"] == 25.0


def test_processes_of_one_look_only_do_not_count():
    assert looks(link(p1=0.0, p2=900.0), link(p1=100.0, p3=5000.0))["busy_ratio"] == 0.1


def test_ratio_is_at_most_one():
    assert looks(link(p1=0.0), link(p1=9000.0))["busy_ratio"] == 1.0
    assert looks(link(p1=900.0), link(p1=0.0))["busy_ratio"] == 0.0, "a process that began anew"
    assert looks(link(p1=0.0), link(p1=10.0), 0.0)["busy_ratio"] == 0.0


def test_measured_link_is_busy():
    assert looks(link(p1=0.0), link("measured", p1=0.0))["busy_ratio"] == 1.0
    by_other = looks(link(p1=0.0), link("measured by another process", pid=7, p1=0.0))
    assert by_other["busy_ratio"] == 1.0


def test_table_says_who_loads_a_link():
    rows = [
        {
            **link("copies of another process", pid=7, wait_us=812.4),
            "busy_ratio": 0.93,
            "carried_gbps": 46.5,
        },
        {**link(), "busy_ratio": 0.0, "carried_gbps": 0.0},
    ]
    console = Console(file=io.StringIO(), width=120)
    console.print(load.table_of({"links": rows}))
    text = [line for line in console.file.getvalue().splitlines() if "gpu0" in line]
    assert "93%" in text[0] and "812" in text[0]
    assert "loaded: copies of another process 7" in text[0]
    assert text[1].split()[-1] == "free"


def test_prometheus_text():
    summary = looks(link(p1=0.0), link("copies of this process", wait_us=20.5, p1=250.0))
    lines = load.prometheus({"links": [summary]})
    assert 'polypath_link_busy_ratio{link="gpu0->host0"} 0.25' in lines
    assert 'polypath_link_loaded{link="gpu0->host0"} 1' in lines
    assert 'polypath_link_wait_microseconds{link="gpu0->host0"} 20.5' in lines
    assert lines.count("# TYPE polypath_link_busy_ratio gauge") == 1


def test_command(polypath, tmp_path):
    done = polypath("topo", "--load", "--node", "narval", "--json", "load.json")
    assert done.returncode == 0, done.stderr
    assert "gpu0" in done.stdout and "free" in done.stdout
    links = json.loads((tmp_path / "load.json").read_text())["links"]
    assert {("gpu3", "host0"), ("gpu0", "gpu1")} <= {(row["from"], row["to"]) for row in links}
    assert not any(row["loaded"] for row in links)
    done = polypath("topo", "--load", "--format", "prometheus", "--node", "narval")
    assert done.returncode == 0, done.stderr
    assert 'polypath_link_busy_ratio{link="host0->gpu0"} 0' in done.stdout
