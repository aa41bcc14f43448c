"""CPU seconds of the Python tests, compared with a table of budgets.

A test's CPU seconds are those of this process and of the processes that it started, user and
system, from its setup to its teardown. The table tests/budgets/NAME.toml holds the tests of
tests/NAME:

    [files]                     # the sum of a file's tests, without those of the next table
    "test_docs.py" = 12.0
    [tests]
    "test_shim.py::test_random_messages[5000]" = 9.0

A row that took more than twice its budget fails no test. It is listed at the end of the run and in
the report, build/test-logs/NAME.cpu.json (other place: --cpu-report FILE, or POLYPATH_CPU_REPORT).
"""

from __future__ import annotations

import json
import os
import resource
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = Path(__file__).resolve().parent
#: A row is over its budget from this multiple on.
TOLERANCE = 2.0
#: The row of what no test took: imports, the collection of tests, what ends with the session.
OUTSIDE = "outside tests"


class CpuClock:
    """CPU seconds of this process and of its children."""

    def __init__(self) -> None:
        self.elsewhere = 0.0
        """Seconds of grandchildren, which the system adds to this process's children later."""

    def read(self) -> float:
        used = self.elsewhere
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            used += usage.ru_utime + usage.ru_stime
        return used

    def lap(self) -> float:
        """Seconds since the last call, or since this process started."""
        now = self.read()
        taken, self._last = now - getattr(self, "_last", 0.0), now
        return taken


#: One a process: each worker of pytest-xdist has its own.
clock = CpuClock()


@pytest.fixture(scope="session")
def cpu_clock() -> CpuClock:
    return clock


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-report",
        metavar="FILE",
        default=os.environ.get("POLYPATH_CPU_REPORT"),
        help="where to write CPU seconds as JSON (default: build/test-logs/NAME.cpu.json)",
    )
    parser.addoption(
        "--write-cpu-budgets",
        action="store_true",
        help="write tests/budgets/NAME.toml anew, from what this run takes",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuReport(config), "polypath-cpu-report")


class CpuReport:
    """Collects CPU seconds of phases of tests, and reports them at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tests: Counter[str] = Counter()
        self._outside = 0.0

    # ---- Where tests run: this process, or a worker ----------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self._outside += clock.lap()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item):
        report = (yield).get_result()
        report.cpu_seconds = clock.lap()  # pytest-xdist carries attributes of reports

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._config.pluginmanager.has_plugin("dsession"):
            return  # its children are the workers, which report for themselves
        self._outside += clock.lap()
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["cpu_seconds_outside"] = self._outside

    # ---- Where reports arrive --------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] += getattr(report, "cpu_seconds", 0.0)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._outside += getattr(node, "workeroutput", {}).get("cpu_seconds_outside", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if hasattr(self._config, "workerinput"):
            return  # a worker: reports are collected where all arrive
        by_suite: dict[str, dict[str, float]] = defaultdict(dict)
        for test, seconds in self._tests.items():
            path = ROOT / test.partition("::")[0]
            if path.is_relative_to(TESTS):
                by_suite[path.relative_to(TESTS).parts[0]][test] = seconds
        for suite, tests in sorted(by_suite.items()):
            file = TESTS / "budgets" / f"{suite}.toml"
            if self._config.getoption("--write-cpu-budgets"):
                file.write_text(budget_table(suite, tests, self._outside))
            budgets = tomllib.loads(file.read_text()) if file.is_file() else {}
            report = compare(suite, tests, budgets, self._outside)
            place = self._config.getoption("--cpu-report")
            place = Path(place) if place else ROOT / "build" / "test-logs" / f"{suite}.cpu.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(report, indent=1) + "\n")
            self._print(terminalreporter, report, place)

    def _print(self, terminal: Any, report: dict[str, Any], place: Path) -> None:
        terminal.section(f"CPU seconds of {report['suite']}")
        for row in sorted(report["rows"], key=lambda row: -row["cpu_seconds"])[:25]:
            budget = row["budget_seconds"]
            budget_text = "no budget" if budget is None else f"budget {budget:6.1f}"
            terminal.write_line(f"{row['cpu_seconds']:7.1f} s  {budget_text}  {row['name']}")
        terminal.write_line(
            f"{report['cpu_seconds']:7.1f} s  budget {report['budget_seconds']:6.1f}  in all"
            f"; {place}"
        )
        for name in report["over"]:
            terminal.write_line(f"OVER CPU BUDGET: {name}")
        for name in report["without_budget"]:
            terminal.write_line(f"WITHOUT CPU BUDGET: {name}")


def row_of(suite: str, test: str, budgets: dict[str, Any]) -> str:
    """The row of the table that a test belongs to: its own, else its file's."""
    name = test.removeprefix(f"tests/{suite}/")
    return name if name in budgets.get("tests", {}) else name.partition("::")[0]


def compare(
    suite: str, tests: dict[str, float], budgets: dict[str, Any], outside: float
) -> dict[str, Any]:
    """The report. Seconds of tests are compared by the rows of the table."""
    limits = {**budgets.get("files", {}), **budgets.get("tests", {})}
    seconds: Counter[str] = Counter({OUTSIDE: outside})
    counts: Counter[str] = Counter({OUTSIDE: 0})
    for test, taken in tests.items():
        seconds[row_of(suite, test, budgets)] += taken
        counts[row_of(suite, test, budgets)] += 1
    rows = [
        {
            "name": name,
            "tests": counts[name],
            "cpu_seconds": round(taken, 2),
            "budget_seconds": limits.get(name),
        }
        for name, taken in sorted(seconds.items())
    ]
    return {
        "schema": 1,
        "suite": suite,
        "cpu_seconds": round(sum(seconds.values()), 2),
        "budget_seconds": round(sum(limits.values()), 2),
        "over": [
            name
            for name, taken in sorted(seconds.items())
            if name in limits and taken > TOLERANCE * limits[name]
        ],
        "without_budget": [name for name in sorted(seconds) if name not in limits],
        "rows": rows,
        "tests": {test: round(taken, 2) for test, taken in tests.items()},
    }


def budget_table(suite: str, tests: dict[str, float], outside: float, own_row: float = 3.0) -> str:
    """A table from what tests took: tests of `own_row` seconds or more have a row of their own."""
    own = {test: taken for test, taken in tests.items() if taken >= own_row}
    names = {"tests": {test.removeprefix(f"tests/{suite}/"): None for test in own}}
    files: Counter[str] = Counter({OUTSIDE: outside})
    for test, taken in tests.items():
        if test not in own:
            files[row_of(suite, test, names)] += taken
    lines = [
        f"# CPU seconds, user and system, of tests/{suite} on a machine of 2 cores",
        "# (tests/conftest.py). `pytest --write-cpu-budgets` writes this table anew.",
        "",
        "[files]",
        *(f'"{name}" = {max(0.5, taken):.1f}' for name, taken in sorted(files.items())),
        "",
        "[tests]",
    ]
    for test in sorted(own):
        lines.append(f"{json.dumps(test.removeprefix(f'tests/{suite}/'))} = {own[test]:.1f}")
    return "\n".join(lines) + "\n"
