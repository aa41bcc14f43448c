"""Launches of one program on the ranks of this machine, under several settings of NCCL. They stay
side by side and take orders in turn, so that what is compared is measured in alternation although
NCCL reads its settings once a process. The ranks' part is in ranks.py.

A launch that waits for an order does nothing on its GPUs. Nothing here needs PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
_TAIL_LINES = 15  # of a log, where its launch failed
_POLL_S = 0.2

#: As SGLang's deterministic mode and issues of vLLM's name it.
TREE = {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"}
#: All that vLLM's batch-invariant mode sets (vllm/model_executor/layers/batch_invariant.py).
VLLM = {
    **TREE,
    "NCCL_LAUNCH_MODE": "GROUP",
    "NCCL_COLLNET_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_P2P_NET_DISABLE": "1",
    "NCCL_MIN_NCHANNELS": "1",
    "NCCL_MAX_NCHANNELS": "1",
    "NCCL_NTHREADS": "1",
    "NCCL_SOCKET_NTHREADS": "1",
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a program's sums between GPUs are made."""

    name: str
    variables: Mapping[str, str]
    """What its environment has beside the caller's. Those of `VLLM` are taken out of it first."""
    polypath: tuple[str, ...] | None = None
    """Options of `polypath run`; None: not under polypath."""


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("nccl", {}),
        Setting("tree", TREE),
        Setting("vllm", VLLM),
        Setting("polypath", {}, ("--reproducible",)),
        Setting("gloo", {}),
    )
}
#: Whose bits must not differ, and the one whose times the others' are divided by.
REPRODUCIBLE = "polypath"
ON_CPU = "gloo"


class LaunchFailed(Exception):
    """A launch ended, or did not answer in time. The message: which one, and its last lines."""


# ---- Options that all programs have --------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser, settings: str) -> None:
    """``settings``: the default of --settings on GPUs, with commas between them."""
    parser.add_argument("--ranks", type=_positive, help="default: the GPUs of this machine, or 2")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--settings",
        help=f"of {', '.join(SETTINGS)}; default: {settings}, and on the CPU {ON_CPU}",
    )
    parser.add_argument("--rounds", type=_positive, default=5, help="in alternation")
    parser.add_argument("--limit", type=float, default=120, metavar="S", help="of one order")
    parser.add_argument("--json", metavar="FILE", help="the result; its folder gets the logs too")
    parser.add_argument(
        "--polypath", default="", metavar="COMMAND", help="default: this Python's polypath"
    )
    parser.set_defaults(default_settings=settings)


def complete(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    """The options with ``ranks`` and ``settings``, a list, filled in; ends the program where they
    do not fit together."""
    default = ON_CPU if options.device == "cpu" else options.default_settings
    options.settings = (options.settings or default).split(",")
    for name in options.settings:
        if name not in SETTINGS:
            parser.error(f"there is no setting '{name}': {', '.join(SETTINGS)}")
        if (name == ON_CPU) != (options.device == "cpu"):
            parser.error(f"the setting {name} is not for --device {options.device}")
    if len(set(options.settings)) < len(options.settings):
        parser.error("a setting is there twice")
    if options.ranks is None:
        options.ranks = gpus() if options.device == "cuda" else 2
    if options.ranks < 2:
        parser.error("sums between GPUs need two ranks or more")
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def numbers(text: str) -> list[int]:
    """Reads "1,2,4". Raises `ValueError`, also for numbers below 1."""
    return [_positive(part) for part in text.split(",")]


def gpus() -> int:
    """How many nvidia-smi lists; 0 without it."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


# ---- How a launch is started ---------------------------------------------------------------------


def command(
    setting: Setting,
    program: Sequence[str],
    ranks: int,
    statistics_file: Path | None = None,
    polypath: str = "",
) -> list[str]:
    """The command line of ``ranks`` processes of ``program``, a Python file and its arguments.
    ``statistics_file``: where polypath says which calls it took, if it is in between."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    line = [*torchrun, "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks), *program]
    if setting.polypath is None:
        return line
    stats = [] if statistics_file is None else ["--stats", str(statistics_file)]
    front = shlex.split(polypath) or [sys.executable, "-m", "polypath"]
    return [*front, "run", *setting.polypath, *stats, "--", *line]


def environment(setting: Setting, base: Mapping[str, str], device: str) -> dict[str, str]:
    """The environment of the setting's processes: ``base``, less what any setting sets. Raises
    `LaunchFailed` where ``base`` is of `polypath run` already: then nothing would be NCCL's."""
    if "libpolypath_" in base.get("LD_PRELOAD", ""):
        raise LaunchFailed("start this program without `polypath run`: it starts that itself")
    kept = {name: value for name, value in base.items() if name not in VLLM}
    changed = {
        "OMP_NUM_THREADS": base.get("OMP_NUM_THREADS", "1"),
        "GLOO_SOCKET_IFNAME": base.get("GLOO_SOCKET_IFNAME", "lo"),
        # For deterministic kernels of cuBLAS.
        "CUBLAS_WORKSPACE_CONFIG": base.get("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        "PYTHONUNBUFFERED": "1",
        **setting.variables,
    }
    if device == "cpu":
        changed["CUDA_VISIBLE_DEVICES"] = ""
    if setting.polypath is not None and importlib.util.find_spec("polypath") is None:
        folders = [str(ROOT / "python"), *filter(None, [base.get("PYTHONPATH")])]
        changed["PYTHONPATH"] = os.pathsep.join(folders)
    return {**kept, **changed}


class Launch:
    """The ranks of one launch. Used by one thread; `close` it, or use it in a ``with``."""

    def __init__(
        self, name: str, line: Sequence[str], variables: Mapping[str, str], folder: Path
    ) -> None:
        """Starts ``line``, with the option --orders and a path behind it, which ranks.serve() of
        its rank 0 connects to. ``folder`` gets that socket and NAME.log. Raises `OSError`."""
        self.name = name
        self.log = folder / f"{name}.log"
        place = folder / f"{name}.socket"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(place))
        self._listener.listen()
        self._listener.settimeout(_POLL_S)
        self._stream: IO[str] | None = None
        self._socket: socket.socket | None = None
        with self.log.open("w") as log:
            # Of this process's group: whoever ends that ends all.
            self.process = subprocess.Popen(
                [*line, "--orders", str(place)],
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Launch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, order: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """What rank 0 answers. Raises `LaunchFailed` when the ranks ended, or after ``limit_s``;
        they are ended then."""
        end = time.monotonic() + limit_s
        try:
            if self._stream is None:
                self._connect(end)
            assert self._stream is not None and self._socket is not None
            self._socket.settimeout(max(end - time.monotonic(), _POLL_S))
            self._stream.write(json.dumps(order) + "\n")
            self._stream.flush()
            answer = self._stream.readline()
        except TimeoutError:
            self._end()
            raise LaunchFailed(self._said(f"no answer within {limit_s:g} s")) from None
        except OSError:
            answer = ""
        if not answer:
            self._end()
            raise LaunchFailed(self._said("ended"))
        return json.loads(answer)

    def close(self, limit_s: float = 60) -> None:
        """Lets the ranks end by themselves, and ends those that have not by then."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
            assert self._socket is not None
            self._socket.close()
            self._stream = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(limit_s)
        self._end()
        self._listener.close()

    def _connect(self, end: float) -> None:
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                self._socket = self._listener.accept()[0]
                self._stream = self._socket.makefile("rw")
                return
            if self.process.poll() is not None:
                raise ConnectionError
        raise TimeoutError

    def _end(self) -> None:
        """torchrun ends its ranks when it is asked to end."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _said(self, what: str) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n    ".join([f"{self.name}: {what}; exit code {self.process.returncode}", *lines])


class Launches:
    """Launches by name. One that failed is told on stderr, and left out from then on."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.failures: dict[str, str] = {}
        self._limit_s = options.limit
        self._running: dict[str, Launch] = {}
        # Short: the name of a socket has room for a hundred characters.
        self._folder = Path(tempfile.mkdtemp(prefix="polypath-"))
        self._options = options

    def __enter__(self) -> Launches:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is put away
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, name: str, setting: Setting, program: Sequence[str]) -> None:
        """Does not wait for it. ``program`` as for `command`."""
        options = self._options
        file = self._folder / f"{name}.json"
        line = command(setting, program, options.ranks, file, options.polypath)
        variables = environment(setting, os.environ, options.device)
        self._running[name] = Launch(name, line, variables, self._folder)

    def __iter__(self) -> Iterator[str]:
        """The names of those that did not fail, in the order of their start."""
        return iter([name for name in self._running if name not in self.failures])

    def file(self, name: str) -> str:
        """A path in a folder that goes with the launches."""
        return str(self._folder / name)

    def ask(self, name: str, order: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer; None when the launch failed, now or before."""
        if name in self.failures:
            return None
        try:
            return self._running[name].ask(order, self._limit_s)
        except LaunchFailed as failed:
            self.failures[name] = str(failed)
            say(str(failed))
            return None

    def close(self) -> None:
        """Ends them all, and says what polypath said to their logs; these go beside --json."""
        for launch in self._running.values():
            launch.close()
            text = launch.log.read_text(errors="replace") if launch.log.exists() else ""
            for line in sorted({line for line in text.splitlines() if line.startswith("polypath")}):
                say(f"{launch.name}: {line}")
            if self._options.json and text:
                target = Path(self._options.json)
                target.with_name(f"{target.stem}.{launch.name}.log").write_text(text)

    def calls(self) -> dict[str, dict[str, Any]]:
        """Of each launch under polypath, after `close`: its NCCL calls, see `summed_calls`."""
        found = {}
        for name in self._running:
            files = sorted(self._folder.glob(f"{name}.*.nccl.json"))
            if files:
                found[name] = summed_calls(json.loads(file.read_text()) for file in files)
        return found


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- What is made of what they measured ----------------------------------------------------------


def in_turn(names: Iterable[str], turn: int) -> list[str]:
    """Whoever comes first comes last in the next round."""
    listed = list(names)
    return listed if turn % 2 == 0 else listed[::-1]


def sampled(
    names: Iterable[str], rounds: int, measure: Callable[[str], float | None]
) -> dict[str, list[float | None]]:
    """One figure a name and round, measured in alternation; None where there was none."""
    listed = list(names)
    found: dict[str, list[float | None]] = {name: [] for name in listed}
    for turn in range(rounds):
        for name in in_turn(listed, turn):
            found[name].append(measure(name))
    return found


def median(figures: Iterable[float | None]) -> float | None:
    """None when there is none among them."""
    there = [figure for figure in figures if figure is not None]
    return statistics.median(there) if there else None


def times(samples: Mapping[str, Sequence[float | None]], over: str) -> dict[str, float | None]:
    """How many times as long as ``over`` each other name takes: the median of the ratios of
    rounds. Empty without ``over``."""
    own = samples.get(over)
    if own is None:
        return {}
    return {
        name: median(
            other / mine
            for other, mine in zip(figures, own, strict=True)
            if other is not None and mine is not None
        )
        for name, figures in samples.items()
        if name != over
    }


def summed_calls(processes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The statistics of all ranks in one: ``functions`` has calls, taken and ``to_nccl`` (how
    many for which reason) by function; ``refusals`` why communicators are NCCL's."""
    functions: dict[str, dict[str, Any]] = {}
    refusals: dict[str, int] = {}
    for process in processes:
        nccl = process["nccl"]
        _add(refusals, nccl["refusals"])
        for function, counted in nccl["calls"].items():
            sums = functions.setdefault(function, {"calls": 0, "taken": 0, "to_nccl": {}})
            sums["calls"] += counted["calls"]
            sums["taken"] += counted["taken"]
            _add(sums["to_nccl"], counted["to_nccl"])
    return {"functions": functions, "refusals": refusals}


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for reason, count in more.items():
        sums[reason] = sums.get(reason, 0) + count


def result(
    options: argparse.Namespace, launches: Launches, about: Mapping[str, Any], **measured: Any
) -> dict[str, Any]:
    """All that --json gets. ``about``: what a rank said of itself."""
    given = {name: value for name, value in vars(options).items() if name != "default_settings"}
    return {
        "about": dict(about),
        "options": given,
        "settings": {name: dict(SETTINGS[name].variables) for name in options.settings},
        **measured,
        "calls": launches.calls(),
        "failures": launches.failures,
    }


def write(found: Mapping[str, Any], file: str | None) -> None:
    if file:
        Path(file).write_text(json.dumps(found, indent=1) + "\n")


# ---- Tables --------------------------------------------------------------------------------------


def shown(figure: float | None, digits: int = 3) -> str:
    return "-" if figure is None else f"{figure:.{digits}f}"


def print_tables(
    tables: Iterable[tuple[str, Sequence[str], Sequence[Sequence[str]]]],
) -> None:
    """Title, headings and cells of each, on stdout; those without rows are left out."""
    from rich.console import Console
    from rich.table import Table

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    out = Console(highlight=False, width=width)
    for title, headings, rows in tables:
        if not rows:
            continue
        made = Table(title=title, title_justify="left")
        for index, heading in enumerate(headings):
            made.add_column(heading, justify="right" if index else "left")
        for row in rows:
            made.add_row(*row)
        out.print(made)


def calls_table(
    calls: Mapping[str, Mapping[str, Any]],
) -> tuple[str, Sequence[str], list[list[str]]]:
    """As `print_tables` has it, of what `Launches.calls` found."""
    rows = [
        [
            f"{name}: {function}",
            str(counted["calls"]),
            str(counted["taken"]),
            ", ".join(f"{count} x {why}" for why, count in counted["to_nccl"].items()),
        ]
        for name, found in calls.items()
        for function, counted in found["functions"].items()
    ]
    rows += [
        [f"{name}: communicator", str(count), "0", why]
        for name, found in calls.items()
        for why, count in found["refusals"].items()
    ]
    return "NCCL's calls, of all ranks", ("", "calls", "taken", "to NCCL"), rows
