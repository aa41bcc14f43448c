"""A user's program under the shim: what its processes did, and what to do about it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..children import ended_with_us
from . import advice, statistics
from .checks import Finding, State
from .trials import temporary_folder


class Outcome(NamedTuple):
    exit_code: int
    """Exit code of the program; minus the signal that killed it."""
    processes: list[dict[str, Any]]
    """The statistics of each process that made a replaced call."""
    unread: Sequence[str] = ()
    """Files of statistics that could not be read, and why."""


def watch(
    file: str, program: Sequence[str], environment: Mapping[str, str], quiet: bool
) -> Outcome:
    """Runs the program to its end, with its own stdin, stdout and stderr; ``quiet``: its stdout is
    stderr. ``file``: what is executed, with a slash."""
    unread: list[str] = []
    with temporary_folder() as folder:
        done = subprocess.run(
            program,
            executable=file,
            env={
                "POLYPATH_PREPARE": "wait",  # else a short program would show no routes
                **environment,
                "POLYPATH_STATS": str(Path(folder) / statistics.PATTERN),
            },
            stdout=sys.stderr if quiet else None,
            check=False,
            preexec_fn=ended_with_us(signal.SIGTERM),
        )
        return Outcome(done.returncode, statistics.read(Path(folder), unread), unread)


def program_findings(outcome: Outcome) -> list[Finding]:
    """What is right and wrong with what the program's processes did."""
    findings = []
    code, processes, unread = outcome
    if code != 0:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        findings.append(
            Finding("program", State.wrong, how, "does it do the same without polypath?")
        )
    for why in unread:
        text = f"cannot be read: {why}"
        findings.append(Finding("statistics", State.wrong, text, "please report it"))
    if processes or not unread:
        findings.append(_caught(processes))
    if findings[-1].state is State.well:
        findings.append(_split(processes))
    findings += _mpi(processes)
    findings += _nccl(processes)
    findings += _reasons("native", statistics.reasons(processes, "native_by_reason"))
    findings += _reasons("without a route", statistics.reasons(processes, "left_out_by_reason"))
    failed = sum((process["engine"] or {}).get("failed", 0) for process in processes)
    if failed:
        findings.append(
            Finding(
                "failed",
                State.wrong,
                f"{failed} transfers, midway",
                "POLYPATH_LOG_LEVEL=info says which call of the driver failed",
            )
        )
    return findings


def _caught(processes: Sequence[dict[str, Any]]) -> Finding:
    calls = [statistics.total(process, "calls") for process in processes]
    if any(calls):
        count = sum(1 for of_one in calls if of_one)
        return Finding("caught", State.well, f"{sum(calls)} copies of {count} processes")
    if statistics.nccl_totals(processes)[0]:
        return Finding("caught", State.note, "no copies, but calls of NCCL")
    return Finding(
        "caught",
        State.wrong,
        "no process made a copy that can be caught",
        "does it copy with CUDA at all? Does its launcher pass LD_PRELOAD on (Slurm: --export=ALL; "
        "mpirun -x LD_PRELOAD)? Copies by kernels cannot be caught",
    )


def _split(processes: Sequence[dict[str, Any]]) -> Finding:
    issued = sum(statistics.total(process, "issued") for process in processes)
    offloaded = sum(statistics.total(process, "offloaded") for process in processes)
    if issued:
        return Finding(
            "split", State.well, f"{issued} of {offloaded} copies that were large enough"
        )
    return Finding(
        "split",
        State.note,
        f"none; {offloaded} copies were large enough to ask",
        "`polypath plan gpu0 gpu1 64M` shows what would be split, by size",
    )


def _mpi(processes: Sequence[dict[str, Any]]) -> list[Finding]:
    """What became of MPI collectives; nothing if none was called."""
    calls, taken, reasons = statistics.mpi_totals(processes)
    if not calls:
        return []
    text = f"{taken} of {calls} collectives taken"
    others = [f"{count} x {reason}" for reason, count in reasons.items()]
    if others:
        text += f"; to MPI: {', '.join(others)}"
    refusals = dict.fromkeys(
        process["mpi"]["refusal"]
        for process in processes
        if process.get("mpi") and process["mpi"]["refusal"]
    )
    return [
        Finding("MPI", State.well if taken else State.note, text),
        *(Finding("MPI", State.note, f"no communicator: {why}") for why in refusals),
    ]


def _nccl(processes: Sequence[dict[str, Any]]) -> list[Finding]:
    """What became of NCCL collectives; nothing if none was called."""
    used = [process["nccl"] for process in processes if process.get("nccl")]
    findings = []
    calls, taken, reasons = statistics.nccl_totals(processes)
    if calls:
        text = f"{taken} of {calls} collectives taken"
        others = [f"{count} x {reason}" for reason, count in reasons.items()]
        if others:
            text += f"; to NCCL: {', '.join(others)}"
        advice = ""
        if "not measured" in reasons:
            advice = "`polypath tune backend` measures; --reproducible takes sums without that"
        findings.append(Finding("NCCL", State.well if taken else State.note, text, advice))
    refusals = dict.fromkeys(why for used_process in used for why in used_process["refusals"])
    findings += [Finding("NCCL", State.note, f"no communicator: {why}") for why in refusals]
    if any(used_process["other_libraries"] for used_process in used):
        findings.append(
            Finding("NCCL", State.note, "a process has two: calls of one of them are looked at")
        )
    return findings


def _reasons(what: str, counts: Mapping[str, int]) -> list[Finding]:
    findings = []
    advice_on = advice.on_native if what == "native" else advice.on_left_out
    for reason, count in sorted(counts.items(), key=lambda item: -item[1]):
        hint = advice_on(reason)
        state = State.wrong if hint.wrong else State.note
        findings.append(Finding(what, state, f"{count} x {reason}", hint.text))
    return findings
