"""`polypath bench --beside`: the concurrent traffic, and the report."""  # words: ok

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from . import _api, _c_abi
from ._library import find_library
from .benchmark import Pair
from .context import Context
from .errors import InvalidArgument, PolypathError
from .transfers import Request, gpu_array, request_array

# Virtual time between two looks at a flow of the simulated node.
_LOOK_US = 50.0
_FIRST = 5


class Copies(NamedTuple):
    """What other traffic copies, as written: "h2d:gpu0", "d2d:gpu0:gpu1"."""

    kind: str
    gpus: tuple[str, ...]

    def __str__(self) -> str:
        return ":".join((self.kind, *self.gpus))


class Traffic(NamedTuple):
    """Concurrent traffic, and the process that makes it."""

    copies: Sequence[Copies]
    block: int = 64 << 20
    """Bytes of each copy."""
    queue: int | None = None
    """Copies of each kind that are queued at any time; None: 2, on a simulated node 1."""
    period_us: int = 0
    """Time on, and time off, in turn; 0: without pause."""
    under_polypath: bool = False
    same_process: bool = False
    rounds: int | None = None
    """None: 3, in virtual time 1."""


Switch = Callable[[bool], None]


def read_copies(text: str) -> list[Copies]:
    """Reads ``--beside``: copy kinds such as d2h:gpu0,d2d:gpu1:gpu2."""  # words: ok
    return [_read_one(part.strip()) for part in text.split(",")]


def _read_one(text: str) -> Copies:
    kind, *gpus = text.split(":")
    gpu_count = {"h2d": 1, "d2h": 1, "d2d": 2}.get(kind)
    are_gpus = all(gpu.startswith("gpu") and gpu[3:].isdigit() for gpu in gpus)
    if gpu_count != len(gpus) or not are_gpus or len(set(gpus)) != len(gpus):
        raise ValueError(f"'{text}' is no copy: write h2d:gpuN, d2h:gpuN or d2d:gpuA:gpuB")
    return Copies(kind, tuple(gpus))


def pairs_of(copies: Sequence[Copies], topology: dict[str, Any]) -> list[Pair]:
    """Sources and destinations; host memory is the one nearest to the GPU. Raises
    `InvalidArgument` for a GPU that the node does not have, and where there is no link."""
    host_of = {host["numa"]: host["id"] for host in topology["hosts"]}
    nearest = {gpu["id"]: host_of[gpu["numa"]] for gpu in topology["gpus"]}
    links = {(link["from"], link["to"]) for link in topology["links"]}
    pairs = []
    for each in copies:
        for gpu in each.gpus:
            if gpu not in nearest:
                raise InvalidArgument(
                    f"--beside '{each}': {gpu} is not one of {', '.join(nearest)}"
                )
        first, last = each.gpus[0], each.gpus[-1]
        pair = {
            "h2d": Pair(nearest[first], first),
            "d2h": Pair(first, nearest[first]),
            "d2d": Pair(first, last),
        }[each.kind]
        if pair not in links:
            raise InvalidArgument(f"--beside '{each}': there is no link {pair.src} to {pair.dst}")
        pairs.append(pair)
    return pairs


def require_possible(traffic: Traffic, topology: dict[str, Any]) -> None:
    """Raises `InvalidArgument` where the node cannot have this traffic."""
    pairs_of(traffic.copies, topology)
    if traffic.under_polypath and topology["virtual_time"]:
        raise InvalidArgument(
            "--beside-polypath needs a second process: not on a node in virtual time"
        )


def share_machine() -> None:
    """To be called before a context is made: processes of a simulated node in functional mode see
    each other's traffic when they name one machine."""
    os.environ.setdefault("POLYPATH_SIM_MACHINE", f"bench-{os.getpid()}")


class _InVirtualTime:
    """Traffic of the simulated node in this process."""

    def __init__(self, pairs: Sequence[Pair], traffic: Traffic) -> None:
        self._library = ctypes.CDLL(str(_simulated_driver()))
        self._library.polypath_sim_traffic_start.argtypes = [
            *[ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int],
            *[ctypes.c_double, ctypes.c_double],
        ]
        self._library.polypath_sim_traffic_blocks.restype = ctypes.c_uint64
        self._library.polypath_sim_advance_us.argtypes = [ctypes.c_double]
        self._library.polypath_sim_advance_us.restype = None
        self._pairs = pairs
        self._traffic = traffic
        self._ids: list[int] = []

    def __call__(self, on: bool) -> None:
        library, traffic = self._library, self._traffic
        if on:
            period = float(traffic.period_us)
            self._ids = [
                library.polypath_sim_traffic_start(
                    *(pair.src.encode(), pair.dst.encode(), traffic.block),
                    *(_queue(traffic, simulated=True), period, period),
                )
                for pair in self._pairs
            ]
            if 0 in self._ids:
                raise PolypathError("the simulated node refuses the traffic")
            self._advance_until(
                lambda traffic_id: library.polypath_sim_traffic_blocks(traffic_id) > 0
            )
        else:
            for traffic_id in self._ids:
                library.polypath_sim_traffic_stop(traffic_id)
            self._advance_until(
                lambda traffic_id: library.polypath_sim_traffic_queued(traffic_id) == 0
            )

    def _advance_until(self, holds: Callable[[int], bool]) -> None:
        while not all(holds(traffic_id) for traffic_id in self._ids):
            self._library.polypath_sim_advance_us(_LOOK_US)


class TrafficProcess:
    """Another process that copies. It ends when this one does, also when this one is killed."""

    def __init__(
        self, pairs: Sequence[Pair], traffic: Traffic, node: str | None, simulated: bool
    ) -> None:
        worker = [sys.executable, "-m", f"{__package__}.traffic_process"]
        worker += [f"{pair.src}-{pair.dst}" for pair in pairs]
        worker += ["--parent", str(os.getpid()), "--block", str(traffic.block)]
        worker += ["--queue", str(_queue(traffic, simulated))]
        worker += ["--period-us", str(traffic.period_us)]
        environment = dict(os.environ)
        if simulated:
            worker += ["--library", str(_simulated_driver())]
            environment["POLYPATH_SIM_MODE"] = "functional"
            if node is not None:
                environment["POLYPATH_NODE"] = node
        command = worker
        if traffic.under_polypath:
            run = [sys.executable, "-m", f"{__package__}", "run"]
            command = [*run, *(["--node", node] if node is not None else []), "--", *worker]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self._hear("ready")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def __call__(self, on: bool) -> None:
        state = "on" if on else "off"
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its answer will say why
            self._process.stdin.write(state + "\n")
            self._process.stdin.flush()
        self._hear(state)

    def _hear(self, state: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("state") == state:
                return
            if "error" in message:
                raise PolypathError(f"the process that makes traffic: {message['error']}")
        raise PolypathError("the process that makes traffic has ended")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@contextlib.contextmanager
def running(
    pairs: Sequence[Pair], traffic: Traffic, node: str | None, topology: dict[str, Any]
) -> Iterator[Switch | None]:
    """What switches the traffic on and off; None where this process makes it itself."""
    if traffic.same_process:
        yield None
    elif topology["virtual_time"]:
        yield _InVirtualTime(pairs, traffic)
    else:
        with contextlib.closing(
            TrafficProcess(pairs, traffic, node, topology["simulated"])
        ) as process:
            yield process


def _simulated_driver() -> str:
    return str(find_library().with_name("libpolypath_sim.so"))


def _queue(traffic: Traffic, simulated: bool) -> int:
    return traffic.queue or (1 if simulated else 2)


def measure(
    context: Context,
    requests: Iterable[Request | tuple[str, str, int | str]],
    traffic: Switch | None = None,
    iterations: int = 40,
    warmup: int = 3,
    rounds: int = 1,
    own: Iterable[Request | tuple[str, str, int | str]] = (),
    own_queue: int = 2,
    own_period_us: float = 0,
) -> dict[str, Any]:
    """Runs transfers together, native copies and polypath in turn, on the idle node and next to
    other traffic, and compares every byte::

        {"group_bytes", "verified",
         "rounds": [{"idle", "loaded": {"native_us": [], "polypath_us": []},
                     "recovery_us" or None}]}

    ``traffic(True)`` starts the traffic and returns when it flows, ``traffic(False)`` ends it;
    what it raises is raised again. ``own``: traffic of this process, native copies that are
    repeated without pause, ``own_queue`` of each queued at any time. With ``own_period_us`` it is
    on for that time and off for that time. ``warmup``: untimed pairs at the begin of each of the
    ``rounds``; ``iterations``: timed pairs of each phase. "recovery_us" is the time from the
    end of the traffic to the begin of the first transfer at 0.97 of the idle rate, None where
    there was none within 2 s. Raises `InternalError` when bytes differ.
    """
    array, other = request_array(requests), request_array(own)
    request = _c_abi.BenchBesideRequest(
        *(array, len(array), warmup, iterations, rounds),
        *(other if len(other) > 0 else None, len(other)),
        *(own_queue, own_period_us, own_period_us),
    )
    return _call("polypath_bench_beside", context, request, traffic)


def _call(name: str, context: Context, request: Any, traffic: Switch | None) -> dict[str, Any]:
    """Calls a benchmark that switches traffic on and off."""
    raised: list[BaseException] = []

    def switch(on: int, _user: int | None) -> int:
        try:
            if traffic is not None:
                traffic(on != 0)
        except BaseException as error:  # it must not pass through the C library
            raised.append(error)
            return 1
        return 0

    try:
        result: dict[str, Any] = _api.call_json(
            *(name, context._open(), ctypes.byref(request)),
            *(_c_abi.TrafficSwitch(switch), None),
        )
    except PolypathError:
        if raised:
            raise raised[0] from None
        raise
    return result


def run(
    context: Context,
    pairs: Sequence[Pair],
    sizes: Sequence[int],
    traffic: Traffic,
    node: str | None = None,
    iterations: int = 40,
    warmup: int = 3,
) -> Generator[dict[str, Any], None, None]:
    """One row of the document for each size::

    {"src", "dst", "bytes", "verified",
     "idle", "loaded": {"native_gbps", "polypath_gbps", "speedup" (medians of the later half of
                        each phase), "native_first_gbps", "polypath_first_gbps" (the worst of
                        the first five), "native_mean_gbps", "polypath_mean_gbps"},
     "recovery_ms" (median, or None where there was none within 2 s),
     "rounds": [{"idle", "loaded": {"native_us": [], "polypath_us": []}, "recovery_us"}]}
    """
    topology = context.topology()
    others = pairs_of(traffic.copies, topology)
    rounds = traffic.rounds or (1 if topology["virtual_time"] else 3)
    own = [Request(pair.src, pair.dst, traffic.block) for pair in others]
    with running(others, traffic, node, topology) as switch:
        for size in sizes:
            report = measure(
                context,
                [Request(pair.src, pair.dst, size) for pair in pairs],
                switch,
                iterations=iterations,
                warmup=warmup,
                rounds=rounds,
                own=own if traffic.same_process else (),
                own_queue=_queue(traffic, simulated=False),
                own_period_us=traffic.period_us,
            )
            row = {"src": pairs[0].src, "dst": pairs[0].dst, "bytes": size, **_row(report)}
            if len(pairs) > 1:
                row["transfers"] = [pair._asdict() for pair in pairs]
            yield row


def run_blocks(
    context: Context,
    pair: Pair,
    blocks: Sequence[tuple[int, int]],
    traffic: Traffic,
    node: str | None = None,
    iterations: int = 20,
    warmup: int = 2,
) -> Generator[dict[str, Any], None, None]:
    """`run` for batches: one row for each (bytes of a block, number of blocks)."""
    topology = context.topology()
    others = pairs_of(traffic.copies, topology)
    rounds = traffic.rounds or (1 if topology["virtual_time"] else 3)
    with running(others, traffic, node, topology) as switch:
        for size, count in blocks:
            request = _c_abi.BenchBlocksRequest(
                *(_api.encoded(pair.src, "src"), _api.encoded(pair.dst, "dst")),
                *(size, count, warmup, iterations, rounds),
            )
            report = _call("polypath_bench_blocks", context, request, switch)
            yield {
                "src": pair.src,
                "dst": pair.dst,
                "block_bytes": size,
                "count": count,
                "bytes": size * count,
                **_row(report),
            }


def run_file(
    context: Context,
    dst: str,
    file: str | None,
    sizes: Sequence[int],
    traffic: Traffic,
    node: str | None = None,
    iterations: int = 20,
    warmup: int = 2,
) -> Generator[dict[str, Any], None, None]:
    """`run` for reads of a file: one row for each number of bytes."""
    topology = context.topology()
    others = pairs_of(traffic.copies, topology)
    rounds = traffic.rounds or (1 if topology["virtual_time"] else 3)
    with running(others, traffic, node, topology) as switch:
        for size in sizes:
            request = _c_abi.BenchFileRequest(
                _api.encoded(dst, "dst"),
                None if file is None else _api.encoded(file, "file"),
                *(size, warmup, iterations, rounds),
            )
            report = _call("polypath_bench_file", context, request, switch)
            yield {"src": "file", "dst": dst, "bytes": report["group_bytes"], **_row(report)}


def run_spread(
    context: Context,
    src: str,
    gpus: Sequence[int],
    sizes: Sequence[int],
    traffic: Traffic,
    *,
    pageable: bool = False,
    node: str | None = None,
    iterations: int = 20,
    warmup: int = 2,
) -> Generator[dict[str, Any], None, None]:
    """`run` for spreads: one row for each size. GB/s are what each GPU receives."""
    topology = context.topology()
    others = pairs_of(traffic.copies, topology)
    rounds = traffic.rounds or (1 if topology["virtual_time"] else 3)
    numbers = gpu_array(gpus)
    with running(others, traffic, node, topology) as switch:
        for size in sizes:
            request = _c_abi.BenchSpreadRequest(
                *(_api.encoded(src, "src"), numbers, len(numbers), size),
                *(pageable, warmup, iterations, rounds),
            )
            report = _call("polypath_bench_spread", context, request, switch)
            yield {
                "src": f"{src}:pageable" if pageable else src,
                "gpus": [f"gpu{gpu}" for gpu in gpus],
                "bytes": size,
                **_row(report),
            }


def _row(report: dict[str, Any]) -> dict[str, Any]:
    total, rounds = report["group_bytes"], report["rounds"]
    recovered = [entry["recovery_us"] for entry in rounds]
    return {
        "verified": report["verified"],
        "idle": _phase(total, [entry["idle"] for entry in rounds]),
        "loaded": _phase(total, [entry["loaded"] for entry in rounds]),
        "recovery_ms": None if None in recovered else statistics.median(recovered) / 1e3,
        "rounds": rounds,
    }


def _phase(total: int, phases: Sequence[dict[str, list[float]]]) -> dict[str, float]:
    result: dict[str, float] = {}
    for way in ("native", "polypath"):
        samples = [phase[f"{way}_us"] for phase in phases]
        later = [us for times in samples for us in times[len(times) // 2 :]]
        every = [us for times in samples for us in times]
        first = [us for times in samples for us in times[:_FIRST]]
        result[f"{way}_gbps"] = total / statistics.median(later) / 1e3
        result[f"{way}_first_gbps"] = total / max(first) / 1e3
        result[f"{way}_mean_gbps"] = total / statistics.fmean(every) / 1e3
    result["speedup"] = result["polypath_gbps"] / result["native_gbps"]
    return result
