#!/usr/bin/env python3
"""Compares the CPU time of tests with their budgets: check_budgets.py FOLDER.

FOLDER holds what the last run of the tests wrote down: cpp.cpu, a line "BUILD NAME SECONDS" for
each C++ test and build (tests/support/cpu_time.c), and *.cpu.json of the Python tests
(tests/cpu_time.py). The budgets are in tests/budgets/*.toml. Prints the tests that took
longest, each beside its budget, and fails where one took more than twice its budget: then it
does too much, or its budget is to be raised, with a reason. A test without a budget of its own
has the table's `default`.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

#: A test fails where it takes this many times its budget: machines differ, and others use them.
FACTOR = 2
SHOWN = 25


def measured(folder: Path) -> dict[str, dict[str, float]]:
    """CPU seconds by table of budgets and name of the test."""
    used: dict[str, dict[str, float]] = {}
    if (file := folder / "cpp.cpu").exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            build, name, seconds = line.split(" ")
            used.setdefault(build, {})[name] = float(seconds)
    for file in folder.glob("*.cpu.json"):
        used[file.name.removesuffix(".cpu.json")] = json.loads(file.read_text(encoding="utf-8"))
    return used


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = Path(__file__).parents[1]
    used = measured(Path(sys.argv[1]))
    rows = []
    for table, tests in used.items():
        budgets = tomllib.loads((root / f"tests/budgets/{table}.toml").read_text(encoding="utf-8"))
        default = budgets["default"]
        own = budgets["seconds"]
        rows += [(seconds, own.get(name, default), table, name) for name, seconds in tests.items()]
    rows.sort(reverse=True)
    exceeded = [row for row in rows if row[0] > FACTOR * row[1]]
    print(f"{'CPU s':>7} {'budget':>7}  test")
    for seconds, budget, table, name in rows[:SHOWN] + [
        row for row in exceeded if row not in rows[:SHOWN]
    ]:
        mark = "  MORE THAN TWICE" if seconds > FACTOR * budget else ""
        print(f"{seconds:7.1f} {budget:7.1f}  {table}: {name}{mark}")
    for table, tests in used.items():
        print(f"{sum(tests.values()):7.1f}          {table}: all {len(tests)}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
