"""`polypath load`: the tensors of safetensors files to a GPU, and how long that takes."""

from __future__ import annotations

import math
import statistics
import time
from typing import Annotated, Any

from ..context import Context
from ..loading import load_file
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
    node: options.Node = None,
    json: options.Json = None,
) -> None:
    """Load the tensors of safetensors files to a GPU, as `polypath.load_file` does, and list them;
    with --time, show the time of a load and its rate.

    All headers are checked first. The first load may read from the disk, later ones from the page
    cache.
    """
    out = console(json)
    with Context(node=node) as context:
        tensors = load_file(file, gpu, context=context, progress=json != "-", framework="dlpack")
        size = sum(tensor.nbytes for tensor in tensors.values())
        result: dict[str, Any] = {
            "file": file,
            "gpu": gpu,
            "bytes": size,
            "tensors": [
                {"name": name, "dtype": tensor.dtype, "shape": list(tensor.shape)}
                for name, tensor in tensors.items()
            ],
        }
        tensors.clear()
        if time and context.topology()["simulated"]:
            print_lines(out, "simulated: the time is this machine's, and says nothing of the node")
        if time:
            result |= _timed(context, file, gpu, size, iterations)
    if time:
        rate = f"{figure(result['gbps'])} GB/s" if size else "no data"
        print_lines(
            out,
            f"{len(result['tensors'])} tensors, {rounded_size(size)}: "
            f"{figure(result['seconds'] * 1e3)} ms, {rate} (median of {iterations})",
        )
    else:
        table = PlainTable("tensor", "type", "shape", "elements", right=("elements",))
        for tensor in result["tensors"]:
            shape = " x ".join(map(str, tensor["shape"])) or "scalar"
            table.add_row(tensor["name"], tensor["dtype"], shape, str(math.prod(tensor["shape"])))
        out.print(table)
    write_json(result, json)


def _timed(context: Context, file: str, gpu: str, size: int, count: int) -> dict[str, Any]:
    """Loads again; each load's memory is freed before the next one."""
    samples = []
    for _ in range(count):
        begin = time.perf_counter()
        tensors = load_file(file, gpu, context=context, framework="dlpack")
        samples.append(time.perf_counter() - begin)
        tensors.clear()
    seconds = statistics.median(samples)
    return {"seconds": seconds, "samples_s": samples, "gbps": size / seconds / 1e9}
