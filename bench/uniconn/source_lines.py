"""Lines of source that each way takes, without blank lines, comments and includes: the benchmark's
calls by each library itself, and by UNICONN for all of them; and the applications over UNICONN.

    python bench/uniconn/source_lines.py
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "uniconn"
SOURCES = {
    "calls by MPI": [HERE / "native_mpi.hpp"],
    "calls by NCCL": [HERE / "native_gpuccl.hpp"],
    "calls by NVSHMEM, from the host": [HERE / "native_gpushmem.hpp"],
    "calls by polypath's communicators": [HERE / "native_polypath.hpp"],
    "calls by UNICONN": [HERE / "by_uniconn.hpp"],
    "Jacobi over UNICONN": [EXAMPLES / "jacobi2d.hpp"],
    "conjugate gradients over UNICONN": [EXAMPLES / "cg.hpp"],
}


def lines_of(file: Path) -> int:
    text = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = (re.sub(r"//.*", "", line).strip() for line in text.splitlines())
    return sum(1 for line in lines if line and not line.startswith(("#include", "#pragma")))


if __name__ == "__main__":
    for name, files in SOURCES.items():
        print(f"{name:36}{sum(map(lines_of, files)):5}")
