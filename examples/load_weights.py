"""Loads the weights of a model into a GPU with a stock PyTorch, and times it.

    python load_weights.py                        one copy after another, as PyTorch makes them
    polypath run -- python load_weights.py        the same program, its copies over every path
    python load_weights.py --compare              both in alternation, with a table

The weights are the tensors of a stack of decoder layers with random contents, in pinned memory.
They go into GPU 0 by ``.to("cuda", non_blocking=True)``, back into pinned memory by ``.copy_()``,
and from GPU 0 to GPU 1 by ``.copy_()``. GB/s (1e9 bytes/s) are medians of runs over the whole set.
Every byte that arrived is compared with what left, in host memory, before and after the timed runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HIDDEN, FEED_FORWARD, KEYS_AND_VALUES = 4096, 14336, 1024
#: The weights of one layer with grouped attention and a gated feed-forward network, two bytes each.
LAYER = [
    (HIDDEN,),
    (HIDDEN, HIDDEN),
    (KEYS_AND_VALUES, HIDDEN),
    (KEYS_AND_VALUES, HIDDEN),
    (HIDDEN, HIDDEN),
    (HIDDEN,),
    (FEED_FORWARD, HIDDEN),
    (FEED_FORWARD, HIDDEN),
    (HIDDEN, FEED_FORWARD),
]
WIDTH = 2  # bytes of one weight
POISON = -21846  # 0xAAAA


def shapes_of(size: int, single: bool) -> list[tuple[int, ...]]:
    """So many whole layers as fit into ``size`` bytes, at least one; or one tensor of that size."""
    if single:
        return [(size // WIDTH,)]
    return LAYER * max(1, size // bytes_of(LAYER))


def bytes_of(shapes: Sequence[tuple[int, ...]]) -> int:
    total = 0
    for shape in shapes:
        count = WIDTH
        for length in shape:
            count *= length
        total += count
    return total


# ---- One process: what PyTorch does --------------------------------------------------------------


def measure(shapes: Sequence[tuple[int, ...]], repeats: int, warmup: int) -> dict[str, Any]:
    """Loads, stores and passes on a set of weights of these shapes; the rows of the result are
    {"what", "gbps", "runs_gbps", "verified"}."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("load_weights.py: PyTorch sees no GPU here")
    weights = [random_weights(torch, shape) for shape in shapes]
    size = bytes_of(shapes)
    rows = []

    def row(what: str, run: Callable[[], list[Any]], poison: Callable[[], None]) -> None:
        def verified() -> bool:
            poison()
            arrived = run()
            synchronise(torch)
            # Into pageable memory: PyTorch's own copy, which nothing splits.
            return all(torch.equal(a.cpu(), b) for a, b in zip(arrived, weights, strict=True))

        good = verified()
        runs = [seconds(torch, run) for _ in range(warmup + repeats)][warmup:]
        good = verified() and good
        rates = [size / 1e9 / run for run in runs]
        rows.append(
            {"what": what, "gbps": statistics.median(rates), "runs_gbps": rates, "verified": good}
        )

    loaded: list[Any] = []

    def load() -> list[Any]:
        loaded.clear()  # PyTorch gives the same GPU memory again
        loaded.extend(weight.to("cuda:0", non_blocking=True) for weight in weights)
        return loaded

    row("pinned to GPU", load, lambda: fill(torch, loaded))

    stored = [torch.empty_like(weight, pin_memory=True) for weight in weights]
    row("GPU to pinned", copier(stored, loaded), lambda: fill(torch, stored))

    if torch.cuda.device_count() > 1:
        passed = [torch.empty_like(tensor, device="cuda:1") for tensor in loaded]
        row("GPU to GPU", copier(passed, loaded), lambda: fill(torch, passed))

    return {
        "bytes": size,
        "tensors": len(shapes),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(0),
        "rows": rows,
    }


def random_weights(torch: Any, shape: tuple[int, ...]) -> Any:
    """Random bits in pinned memory, as integers of a weight's width: no two of them compare equal
    unless all their bits are."""
    weight = torch.empty(shape, dtype=torch.int16, pin_memory=True)
    return weight.random_(-(1 << 15), 1 << 15)


def copier(targets: Sequence[Any], sources: Sequence[Any]) -> Callable[[], list[Any]]:
    def run() -> list[Any]:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)
        return list(targets)

    return run


def fill(torch: Any, tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        tensor.fill_(POISON)
    synchronise(torch)


def synchronise(torch: Any) -> None:
    for gpu in range(min(2, torch.cuda.device_count())):
        torch.cuda.synchronize(gpu)


def seconds(torch: Any, run: Callable[[], Any]) -> float:
    synchronise(torch)
    begin = time.perf_counter()
    run()
    synchronise(torch)
    return time.perf_counter() - begin


# ---- Two processes in alternation ----------------------------------------------------------------


def compare(arguments: Sequence[str], rounds: int) -> dict[str, Any]:
    """Runs this program without and with polypath in alternation, and puts the rows together."""
    this = [sys.executable, str(Path(__file__).resolve()), *arguments, "--json", "-"]
    without, under, routes = [], [], {}
    for _ in range(rounds):
        without.append(result_of(this))
        with tempfile.TemporaryDirectory() as folder:
            under.append(result_of([*polypath_run(folder), *this]))
            routes = bytes_by_route(Path(folder))
    return {**put_together(without, under), "bytes_by_route": routes}


def polypath_run(folder: str) -> list[str]:
    """`polypath run` with the statistics of each process in this folder; first copies wait until
    their routes are ready, so that every run is timed alike."""
    program = shutil.which("polypath")
    command = [program] if program else [sys.executable, "-m", "polypath"]
    return [*command, "run", "--setting", "prepare=wait", "--stats", f"{folder}/%p.json", "--"]


def result_of(command: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0 or not done.stdout:
        raise SystemExit(f"load_weights.py: {' '.join(command)} ended with {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def bytes_by_route(folder: Path) -> dict[str, int]:
    """What processes under polypath say of split copies: "host0 to gpu0, via gpu1": bytes."""
    routes: dict[str, int] = {}
    for file in folder.glob("*.json"):
        for route in (json.loads(file.read_text())["engine"] or {}).get("routes", []):
            name = f"{route['src']} to {route['dst']}, {route['route']}"
            routes[name] = routes.get(name, 0) + route["bytes"]
    return routes


def put_together(
    without: Sequence[dict[str, Any]], under: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """One row for each of the results' rows: medians over all runs of all processes."""
    rows = []
    for index, first in enumerate(without[0]["rows"]):
        pair = [
            [rate for result in results for rate in result["rows"][index]["runs_gbps"]]
            for results in (without, under)
        ]
        stock, split = (statistics.median(rates) for rates in pair)
        verified = all(result["rows"][index]["verified"] for result in (*without, *under))
        rows.append(
            {
                "what": first["what"],
                "without_gbps": stock,
                "with_gbps": split,
                "times": split / stock,
                "verified": verified,
            }
        )
    return {**without[0], "rows": rows}


# ---- What it prints ------------------------------------------------------------------------------


def table(result: dict[str, Any]) -> list[str]:
    """The result as lines for people."""
    lines = [
        f"{result['bytes'] / 1e9:.2f} GB in {result['tensors']} tensors, "
        f"{result['gpu']}, PyTorch {result['torch']}"
    ]
    compared = "without_gbps" in result["rows"][0]
    heads = ["without", "with polypath", "times"] if compared else ["GB/s"]
    lines.append(f"{'':14}" + "".join(f"{head:>15}" for head in [*heads, "verified"]))
    for row in result["rows"]:
        if compared:
            cells = [f"{row['without_gbps']:.1f}", f"{row['with_gbps']:.1f}", f"{row['times']:.2f}"]
        else:
            cells = [f"{row['gbps']:.1f}"]
        cells.append("yes" if row["verified"] else "NO")
        lines.append(f"{row['what']:14}" + "".join(f"{cell:>15}" for cell in cells))
    for name, size in result.get("bytes_by_route", {}).items():
        lines.append(f"{name}: {size / 1e9:.2f} GB")
    return lines


def parse_size(text: str) -> int:
    """Bytes, or a number with M or G (powers of 1024): at least 2, and even."""
    unit = {"M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    number = text[:-1] if unit else text
    if not number.isdigit() or int(number) == 0 or int(number) * (unit or 1) % WIDTH:
        raise argparse.ArgumentTypeError(f"'{text}' is no size such as 4G or 512M")
    return int(number) * (unit or 1)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--size", type=parse_size, default=parse_size("4G"), help="default 4G")
    parser.add_argument("--single", action="store_true", help="one tensor of that size")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs, default 5")
    parser.add_argument("--warmup", type=int, default=2, help="untimed runs first, default 2")
    parser.add_argument("--compare", action="store_true", help="without and with polypath")
    parser.add_argument("--rounds", type=int, default=3, help="alternations, default 3")
    parser.add_argument("--json", metavar="FILE|-", help="write the result; - is stdout")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse_arguments()
    if options.compare:
        arguments = [f"--{name}={getattr(options, name)}" for name in ("size", "repeats", "warmup")]
        result = compare(arguments + ["--single"] * options.single, options.rounds)
    else:
        result = measure(shapes_of(options.size, options.single), options.repeats, options.warmup)
    if options.json == "-":
        print(json.dumps(result))
    else:
        print("\n".join(table(result)))
        if options.json:
            Path(options.json).write_text(json.dumps(result, indent=2) + "\n")
    if not all(row["verified"] for row in result["rows"]):
        raise SystemExit("load_weights.py: bytes differ")


if __name__ == "__main__":
    main()
