"""`polypath doctor`: are copies caught, which way do they go, and what can be done about the
others?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from ..doctor import statistics
from ..doctor.checks import Finding, State, all_well, spans
from ..doctor.program import program_findings, watch
from ..doctor.trials import Report, examine, other_findings
from ..launch.environment import assignments
from ..sizes import format_size, rounded_size
from . import options
from .output import PlainTable, console, print_lines, progress, write_json
from .run import check_node, check_program

_MARKS = {State.well: "ok", State.note: "note", State.wrong: "[bold]WRONG[/bold]"}


def doctor(
    program: options.Program,
    *,
    node: options.Node = None,
    json: options.Json = None,
) -> None:
    """Show which copies are caught and which routes are open, with real copies, and what to do.

    Without a program: checks this machine, then copies as UCX and libcudart do. With one, as in
    `polypath doctor -- mpirun -n 4 ./app`: runs it, and shows how the copies of each of its
    processes went. Exit code: 0 when all is well, 1 when something is wrong.
    """
    out = console(json)
    result = watched(program, node, out) if program else examined(node, out)
    write_json(result, json)
    if not result["well"]:
        raise SystemExit(1)


def examined(node: str | None, out: Console) -> dict[str, Any]:
    """Checks the machine, prints what was found, and returns it::

    {"findings": [{"what", "state": "well" | "note" | "wrong", "text", "advice"}],
     "copies": [{"way", "src", "dst", "symbol", "bytes", "verified", "caught", "routes": {name:
                 bytes}, "finding"}],
     "well": bool}
    """
    with progress("doctor") as step:
        findings, reports = examine(node, step)
    out.print(findings_table(findings))
    if reports:
        print_lines(out, f"Copies of {format_size(reports[0].bytes)}, every byte compared:")
        out.print(copies_table(reports))
        print_lines(out, *advice_lines([report.finding for report in reports]))
    return {
        "findings": [finding._asdict() for finding in findings],
        "copies": [report_json(report) for report in reports],
        "well": all_well([*findings, *(report.finding for report in reports)]),
    }


def watched(program: list[str], node: str | None, out: Console) -> dict[str, Any]:
    """Runs the program, prints what its processes did, and returns it::

    {"command", "exit_code", "findings": as of `examined`,
     "processes": [the statistics of one (`doctor.statistics`)], "well": bool}
    """
    check_node(node)
    file = check_program(program, anyway=False)
    environment = {**os.environ, **assignments(os.environ, node)}
    outcome = watch(file, program, environment, quiet=out.quiet)
    findings = [*other_findings(environment), *program_findings(outcome)]
    if outcome.processes:
        out.print(processes_table(outcome.processes))
        out.print(calls_table(outcome.processes))
    out.print(findings_table(findings))
    return {
        "command": program,
        "exit_code": outcome.exit_code,
        "findings": [finding._asdict() for finding in findings],
        "processes": outcome.processes,
        "well": all_well(findings),
    }


def findings_table(findings: Iterable[Finding]) -> PlainTable:
    """What was looked at, how it is, and what to do. Those that say the same are one row."""
    table = PlainTable(
        *("check", "", "found", "what to do"), wrap=("check", "found", "what to do"), keys=2
    )
    alike: dict[Finding, list[str]] = {}
    for finding in findings:
        kind = finding.what.partition(" ")[0]
        alike.setdefault(finding._replace(what=kind), []).append(finding.what)
    for (kind, state, text, advice), names in alike.items():
        suffixes = spans([name.removeprefix(kind).strip() for name in dict.fromkeys(names)])
        check = f"{kind} {suffixes}".strip()
        table.add_row(escape(check), _MARKS[state], escape(text), escape(advice))
    return table


def copies_table(reports: Sequence[Report]) -> PlainTable:
    """A row a copy; ways of finding the driver's function in which it went alike are told
    together."""
    table = PlainTable(
        *("copy", "found by", "", "caught", "verified", "went"),
        wrap=("copy", "found by", "went"),
        keys=2,
    )
    alike: dict[tuple[str, ...], list[str]] = {}
    for report in reports:
        went = escape(shares_text(report.routes) or report.finding.text)
        mark = _MARKS[report.finding.state]
        row = (str(report.leg), mark, _yes(report.caught), _yes(report.verified), went)
        alike.setdefault(row, []).append(report.way)
    every = {report.way for report in reports if report.leg == reports[0].leg}
    for (leg, *cells), ways in alike.items():
        found_by = f"all {len(every)} ways" if set(ways) == every else ", ".join(ways)
        table.add_row(leg, found_by, *cells)
    table.caption = f"ways: {', '.join(dict.fromkeys(report.way for report in reports))}"
    return table


def processes_table(processes: Iterable[dict[str, Any]]) -> PlainTable:
    """A row a process: how many copies it made, were asked for, split; and over what."""
    figures = ("copies", "bytes", "asked", "split")
    table = PlainTable(
        *("pid", "command", *figures, "routes"),
        right=("pid", *figures),
        wrap=("command", "routes"),
    )
    for process in processes:
        table.add_row(
            str(process["pid"]),
            escape(process["command"]),
            str(statistics.total(process, "calls")),
            rounded_size(statistics.total(process, "bytes")),
            str(statistics.total(process, "offloaded")),
            str(statistics.total(process, "issued")),
            escape(shares_text(statistics.bytes_by_route(process)) or "native"),
        )
    return table


def calls_table(processes: Iterable[dict[str, Any]]) -> PlainTable:
    """A row a function of the driver, over all processes."""
    columns = ("calls", "bytes", "offloaded", "issued")
    sums: dict[str, list[int]] = {}
    for process in processes:
        for symbol, call in process["calls"].items():
            before = sums.setdefault(symbol, [0] * len(columns))
            sums[symbol] = [count + call[name] for count, name in zip(before, columns, strict=True)]
    figures = ("calls", "bytes", "asked", "split")
    table = PlainTable("function", *figures, right=figures)
    for symbol, (calls, size, asked, split) in sorted(sums.items()):
        table.add_row(symbol, str(calls), rounded_size(size), str(asked), str(split))
    return table


def shares_text(routes: dict[str, int]) -> str:
    """ "direct 36%, via gpu2 64%"; empty when nothing went over several."""
    total = sum(routes.values())
    return ", ".join(f"{route} {size / total:.0%}" for route, size in routes.items() if total)


def advice_lines(findings: Sequence[Finding]) -> list[str]:
    """What to do about copies that are not well, each advice once."""
    lines = [f"{finding.text}: {finding.advice}" for finding in findings if finding.advice]
    return list(dict.fromkeys(lines))


def report_json(report: Report) -> dict[str, Any]:
    """With the names of the memories, and the finding as an object."""
    value = report._asdict()
    value["src"], value["dst"] = value.pop("leg")
    return {**value, "finding": report.finding._asdict()}


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
