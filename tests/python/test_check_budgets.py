"""scripts/check_budgets.py: which tests take too much CPU time, on a machine of any speed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import check_budgets

BUDGETS = {"steady": 10.0, "long": 40.0} | {f"steady{n}": 20.0 for n in range(8)}


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Exit status and output for CPU seconds of C++ tests and of files of Python tests."""

    def run(cpp: dict[str, float], python: dict[str, tuple[float, float | None]] | None = None):
        tables = tmp_path / "budgets"
        tables.mkdir(exist_ok=True)
        own = "".join(f'"{name}" = {seconds}\n' for name, seconds in BUDGETS.items())
        (tables / "release.toml").write_text(f"default = 4.0\n[seconds]\n{own}")
        lines = "".join(f"release {name} {seconds:.2f}\n" for name, seconds in cpp.items())
        (tmp_path / "cpp.cpu").write_text(lines)
        rows = [
            {"name": name, "tests": 1, "cpu_seconds": seconds, "budget_seconds": budget}
            for name, (seconds, budget) in (python or {}).items()
        ]
        report = {"suite": "python", "cpu_seconds": 1.0, "rows": rows}
        (tmp_path / "python.cpu.json").write_text(json.dumps(report))
        monkeypatch.setattr(check_budgets, "BUDGETS", tables)
        monkeypatch.setattr(sys, "argv", ["check_budgets.py", str(tmp_path)])
        return check_budgets.main(), capsys.readouterr().out

    return run


@pytest.mark.parametrize("machine", [0.5, 1.0, 2.0, 4.0])
def test_machine_of_any_speed(check, machine):
    status, output = check({name: machine * seconds for name, seconds in BUDGETS.items()})
    assert status == 0, output
    assert "10 tests passed, 0 failed" in output


@pytest.mark.parametrize("machine", [1.0, 2.0, 4.0])
def test_one_that_takes_too_much(check, machine):
    taken = {name: machine * seconds for name, seconds in BUDGETS.items()}
    taken["steady"] *= 3.5
    status, output = check(taken)
    assert status == 1
    assert f"FAILED release: steady - {taken['steady']:.1f} s of CPU time, budget 10.0" in output


def test_default_budget_says_nothing_of_the_machine(check):
    short = {f"short{n}": 0.1 for n in range(50)}
    status, output = check({name: 2 * seconds for name, seconds in BUDGETS.items()} | short)
    assert status == 0
    assert "takes 2.00 CPU seconds" in output


def test_few_tests_say_nothing_of_the_machine(check):
    assert check({"steady": 1000.0})[0] == 1
    assert check({"steady": 1000.0, "long": 40.0})[0] == 1


def test_test_without_a_row(check):
    assert check({"new": 12.0})[0] == 0
    assert check({"new": 14.0})[0] == 1


def test_python_file_without_budget(check):
    status, output = check({}, {"test_new.py": (0.1, None), "test_old.py": (4.0, 4.0)})
    assert status == 1
    assert "FAILED python: test_new.py - 0.1 s of CPU time, no budget" in output
