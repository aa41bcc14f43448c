"""`polypath load`: the tensors of safetensors files to a GPU, and how long that takes."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Generator
from time import perf_counter as clock
from typing import Annotated, Any

from ..comm import Communicator, on_all
from ..context import Context
from ..errors import InvalidArgument
from ..loading import load_file, load_sharded
from ..sizes import figure, rounded_size
from . import options
from .arguments import Argument, Option
from .output import PlainTable, console, print_lines, write_json


def load(
    file: Annotated[
        str,
        Argument("FILE", "A safetensors file, an index of several, or a folder with either."),
    ],
    *,
    gpu: Annotated[str, options.text_option("--gpu", "Default gpu0.", "GPU")] = "gpu0",
    time: Annotated[
        bool, Option("--time", "Load it several times, and show how long that takes.")
    ] = False,
    iterations: Annotated[
        int,
        options.count_option("--iterations", "Timed loads; default 5; one more comes first.", 1),
    ] = 5,
    ranks: Annotated[
        int | None,
        options.count_option(
            "--ranks", "With --time: load all of it to this many GPUs, each a rank.", 2
        ),
    ] = None,
    framework: Annotated[
        str | None,
        options.text_option(
            "--framework",
            "With --time: torch or dlpack; default torch where it is installed.",
            "NAME",
        ),
    ] = None,
    node: options.Node = None,
    json: options.Json = None,
) -> None:
    """Load the tensors of safetensors files to a GPU, as `polypath.load_file` does, and list them;
    with --time, show the time of a load and its rate, with --ranks that of each GPU.

    All headers are checked first. The first load may read from the disk, later ones from the page
    cache. Before the timed loads all routes are made ready, which a program's first load is not
    given: its time is shown as well. PyTorch keeps the memory between loads, "dlpack" does not.
    """
    out = console(json)
    if (ranks is not None or framework is not None) and not time:
        raise InvalidArgument("--ranks and --framework need --time")
    with Context(node=node) as context:
        gpus = len(context.topology()["gpus"])
        if ranks is not None and ranks > gpus:
            raise InvalidArgument(f"--ranks {ranks}: there are {gpus} GPUs")
        framework = framework if time else "dlpack"
        if framework != "dlpack" and not context.topology()["simulated"]:
            with contextlib.suppress(ImportError):  # a program has it long before
                import torch

                torch.cuda.init()
        begin = clock()
        tensors = load_file(file, gpu, context=context, progress=json != "-", framework=framework)
        first = clock() - begin
        size = sum(tensor.nbytes for tensor in tensors.values())
        result: dict[str, Any] = {
            "file": file,
            "gpu": gpu,
            "bytes": size,
            "tensors": [
                {
                    "name": name,
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    "shape": list(tensor.shape),
                }
                for name, tensor in tensors.items()
            ],
        }
        tensors.clear()
        if time and context.topology()["simulated"]:
            print_lines(out, "simulated: the time is this machine's, and says nothing of the node")
        if time:
            for each in (f"gpu{index}" for index in range(ranks)) if ranks else (gpu,):
                context.prepare("host0:pageable", each, max(1, size // (ranks or 1)))
            if ranks:
                loads = _of_ranks(context, file, ranks, framework)
            else:
                loads = _of_gpu(context, file, gpu, framework)
            result |= {"ranks": ranks, "first_s": first, **_timed(loads, size, iterations)}
    if time:
        rate = f"{figure(result['gbps'])} GB/s" if size else "no data"
        print_lines(
            out,
            f"{len(result['tensors'])} tensors, {rounded_size(size)}: "
            f"{figure(result['seconds'] * 1e3)} ms, {rate}{' a GPU' if ranks else ''} "
            f"(median of {iterations}); the first to {gpu}: {figure(first * 1e3)} ms",
        )
    else:
        table = PlainTable("tensor", "type", "shape", "elements", right=("elements",))
        for tensor in result["tensors"]:
            shape = " x ".join(map(str, tensor["shape"])) or "scalar"
            table.add_row(tensor["name"], tensor["dtype"], shape, str(math.prod(tensor["shape"])))
        out.print(table)
    write_json(result, json)


def _of_gpu(
    context: Context, file: str, gpu: str, framework: str | None
) -> Generator[float, None, None]:
    """Seconds of each load. Its tensors are dropped before the next one."""
    while True:
        begin = clock()
        tensors = load_file(file, gpu, context=context, framework=framework)
        seconds = clock() - begin
        tensors.clear()
        yield seconds


def _of_ranks(
    context: Context, file: str, count: int, framework: str | None
) -> Generator[float, None, None]:
    """The same for ranks on the first GPUs, threads of this process: of the slowest one."""

    def loaded(comm: Communicator) -> float:
        comm.exchange(b"begin")
        begin = clock()
        tensors = load_sharded(file, comm, framework=framework)
        seconds = clock() - begin
        tensors.clear()
        return seconds

    communicators = Communicator.all(context, range(count))
    try:
        on_all(communicators, loaded)  # makes what the first all-gather needs
        while True:
            yield max(on_all(communicators, loaded))
    finally:
        for comm in communicators:
            comm.close()


def _timed(loads: Generator[float, None, None], size: int, count: int) -> dict[str, Any]:
    with contextlib.closing(loads):
        samples = [next(loads) for _ in range(count)]
    seconds = statistics.median(samples)
    return {"seconds": seconds, "samples_s": samples, "gbps": size / seconds / 1e9}
