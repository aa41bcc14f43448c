"""Lines of source that each way takes: the benchmark's calls by each library itself, and by UNICONN
for all of them; and the applications over UNICONN. Of a checkout: an installed package has none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .errors import PolypathError

_CHECKOUT = Path(__file__).resolve().parents[2]
_SOURCES = {
    "calls by MPI": ["lab/bench/uniconn/native_mpi.hpp"],
    "calls by NCCL": ["lab/bench/uniconn/native_gpuccl.hpp"],
    "calls by NVSHMEM, from the host": ["lab/bench/uniconn/native_gpushmem.hpp"],
    "calls by polypath's communicators": ["lab/bench/uniconn/native_polypath.hpp"],
    "calls by UNICONN": ["lab/bench/uniconn/by_uniconn.hpp"],
    "Jacobi over UNICONN": ["examples/uniconn/jacobi2d.hpp"],
    "Jacobi's kernels, from which it sends": [
        "examples/uniconn/jacobi2d.cuh",
        "examples/uniconn/jacobi2d_kernel.h",
    ],
    "conjugate gradients over UNICONN": ["examples/uniconn/cg.hpp"],
}


def lines_of(text: str) -> int:
    """Without blank lines, comments, includes and pragmas."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    lines = (re.sub(r"//.*", "", line).strip() for line in text.splitlines())
    return sum(1 for line in lines if line and not line.startswith(("#include", "#pragma")))


def source_lines(checkout: Path = _CHECKOUT) -> list[dict[str, Any]]:
    """``{"what", "files", "lines"}`` of each. Raises `PolypathError` where a file is missing."""
    rows = []
    for what, files in _SOURCES.items():
        try:
            texts = [(checkout / name).read_text(encoding="utf-8") for name in files]
        except OSError as error:
            raise PolypathError(
                f"--test lines counts sources, and {error.filename} is not there: run it from a "
                "checkout"
            ) from error
        rows.append({"what": what, "files": files, "lines": sum(map(lines_of, texts))})
    return rows
