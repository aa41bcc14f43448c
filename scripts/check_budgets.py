#!/usr/bin/env python3
"""Compares the CPU time of tests with their budgets: check_budgets.py [--write] FOLDER.

FOLDER holds what the last run of the tests wrote down: cpp.cpu, a line "BUILD NAME SECONDS" for
each C++ test (tests/support/cpu_time.c), and the reports *.cpu.json of the Python tests
(tests/conftest.py). The budgets are in tests/budgets; a C++ test without a budget of its own has
the `default` of its table. Prints what took longest, each row with its budget.

A machine that is slower, or whose cores others share, takes longer for all tests. So what the
machine needs for the CPU time of the budgets is measured first: the median over the tests, at
least 1, and 1 where few are run. A test fails where it took more than FACTOR times its budget on
this machine: then it does too much, or its budget must be raised, with a reason.

--write: writes tests/budgets/{release,asan,tsan}.toml anew, from what the run took. (Those of
Python tests: pytest --write-cpu-budgets.)
"""

from __future__ import annotations

import json
import statistics
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

#: A test fails where it takes this many times its budget on this machine. Tests that wait in a
#: loop vary by more than the machine does.
FACTOR = 2.5
#: Beyond that, CPU seconds: what a start costs on a busy machine is as much as a small budget.
SLACK = 3.0
#: CPU seconds of a budget that says something of a machine.
MEASURABLE = 3.0
#: Fewer such tests say nothing: the one that takes too much might itself be the median.
MIN_MEASURABLE = 8
SHOWN = 25
#: CPU seconds of a C++ test that needs no row of its own.
DEFAULT = 3.0
BUDGETS = Path(__file__).parents[1] / "tests/budgets"


class Row(NamedTuple):
    """One test, or the tests of a file."""

    seconds: float
    budget: float | None  # None: it has none, and must
    name: str
    measured: bool = True  # the budget is of this test, not the default of its table

    def is_exceeded(self, slowness: float) -> bool:
        return self.budget is None or self.seconds > FACTOR * slowness * self.budget + SLACK

    def __str__(self) -> str:
        budget = "none" if self.budget is None else f"{self.budget:.1f}"
        return f"{self.seconds:7.1f} {budget:>7}  {self.name}"


def slowness(rows: list[Row]) -> float:
    """CPU seconds that this machine takes for one of the budgets, at least 1."""
    ratios = [
        row.seconds / row.budget
        for row in rows
        if row.measured and row.budget is not None and row.budget >= MEASURABLE
    ]
    return max(1.0, statistics.median(ratios)) if len(ratios) >= MIN_MEASURABLE else 1.0


def cpp_times(folder: Path) -> dict[str, dict[str, float]]:
    """CPU seconds of the C++ tests, by build and name."""
    used: dict[str, dict[str, float]] = {}
    if (file := folder / "cpp.cpu").exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            build, name, seconds = line.split(" ")
            used.setdefault(build, {})[name] = float(seconds)
    return used


def write(used: dict[str, dict[str, float]]) -> None:
    for build, tests in used.items():
        rows = [
            f'"{name}" = {max(DEFAULT, round(seconds))}'
            for name, seconds in sorted(tests.items())
            if seconds > DEFAULT
        ]
        text = f"# CPU seconds of C++ tests of the {build} build (scripts/check_budgets.py).\n"
        text += f"default = {DEFAULT}\n\n[seconds]\n" + "\n".join(rows) + "\n"
        (BUDGETS / f"{build}.toml").write_text(text, encoding="utf-8")


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    rows, totals = [], []
    used = cpp_times(folder)
    if "--write" in sys.argv:
        write(used)
    for build, tests in used.items():
        table = tomllib.loads((BUDGETS / f"{build}.toml").read_text(encoding="utf-8"))
        own, default = table["seconds"], table["default"]
        rows += [
            Row(seconds, own.get(name, default), f"{build}: {name}", measured=name in own)
            for name, seconds in tests.items()
        ]
        totals.append((sum(tests.values()), f"{build}: {len(tests)} tests"))
    for file in sorted(folder.glob("*.cpu.json")):
        report = json.loads(file.read_text(encoding="utf-8"))
        suite = report["suite"]
        rows += [
            Row(row["cpu_seconds"], row["budget_seconds"], f"{suite}: {row['name']}")
            for row in report["rows"]
        ]
        tests = sum(row["tests"] for row in report["rows"])
        totals.append((report["cpu_seconds"], f"{suite}: {tests} tests"))
    rows.sort(reverse=True, key=lambda row: row.seconds)
    machine = slowness(rows)
    print(f"{'CPU s':>7} {'budget':>7}")
    for row in rows[:SHOWN]:
        print(row)
    for seconds, name in totals:
        print(f"{seconds:7.1f}          {name}")
    print(f"this machine takes {machine:.2f} CPU seconds for one of the budgets")
    exceeded = [row for row in rows if row.is_exceeded(machine)]
    for row in exceeded:
        budget = "no budget" if row.budget is None else f"budget {row.budget:.1f}"
        print(f"FAILED {row.name} - {row.seconds:.1f} s of CPU time, {budget}")
    print(f"{len(rows) - len(exceeded)} tests passed, {len(exceeded)} failed")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
