"""That UNICONN's calls in kernels cost nothing: kernels that make them are those that call the
library itself, in PTX, but for names of registers, labels and variables.

    check_device_code.py NVCC COMPILER LIBRARY    LIBRARY: gpushmem (NVSHMEM) or gpuccl (NCCL)

The kernels are those of device_code/LIBRARY.cu. One of them, `mutant`, has an instruction more by
UNICONN than by the library, and has to be found.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent / "device_code"
HEADERS = {"gpushmem": ("nvshmem", "nvshmem.h"), "gpuccl": ("nccl", "nccl_device.h")}
INSTALL = "install it with: scripts/setup.sh test"

NAMES = [
    # Registers, labels, and what is numbered by the order in which the compiler comes to it.
    re.compile(r"%[a-z]+\d+"),
    re.compile(r"\$L__\w+"),
    re.compile(r"\b(?:__local_depot|callseq\s*|retval|param|prototype_)\d+\b"),
    # Names of the file's own, with a number that is made from its name and contents.
    re.compile(r"\b\w*_INTERNAL_\w*"),
]


def include_folders(library: str) -> list[Path]:
    """The headers, in the wheels that the project's setup installs. Exits where there are none."""
    wheels = sorted((REPOSITORY / ".venv/lib").glob("python3*/site-packages/nvidia"))
    package, header = HEADERS[library]
    folders = []
    for folder, name in ((f"{package}/include", header), ("cu13/include/cccl", "cuda/atomic")):
        candidates = [wheel / folder for wheel in wheels if (wheel / folder / name).exists()]
        if not candidates:
            sys.exit(
                f"there is no {name} in .venv/lib/python3*/site-packages/nvidia/{folder}: {INSTALL}"
            )
        folders.append(candidates[0])
    return folders


def compile_ptx(nvcc: str, compiler: str, library: str, *, native: bool, to: Path) -> str:
    command = [
        nvcc,
        "-ccbin",
        compiler,
        "-std=c++17",
        "-O2",
        "-arch=sm_90",
        "-ptx",
        "-w",
        "-rdc=true",
    ]
    command += [f"-DNATIVE={int(native)}"]
    public = [REPOSITORY / "include", *REPOSITORY.glob("[a-z]*/include")]
    command += [f"-I{folder}" for folder in (*public, *include_folders(library))]
    done = subprocess.run(
        [*command, "-o", str(to), str(SOURCES / f"{library}.cu")],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"nvcc failed:\n{done.stdout}{done.stderr}")
    return to.read_text(encoding="utf-8")


def kernels_of(ptx: str) -> dict[str, list[str]]:
    """The lines of each kernel, with its names numbered by their first appearance."""
    ptx = re.sub(r"//.*", "", ptx)
    kernels = {}
    for name, body in re.findall(
        r"^\.visible \.entry (\w+)\((.*?)^\}", ptx, re.DOTALL | re.MULTILINE
    ):
        body = re.sub(rf"\b{name}(_param_\d+)", r"kernel\1", body)
        lines = (line.strip() for line in body.splitlines())
        kernels[name] = [line for line in lines if line]
        numbers: dict[str, str] = {}

        def number(match: re.Match[str], numbers: dict[str, str] = numbers) -> str:
            return numbers.setdefault(match[0], f"#{len(numbers)}")

        for pattern in NAMES:
            kernels[name] = [pattern.sub(number, line) for line in kernels[name]]
        # How many registers there are says nothing of what is done with them.
        kernels[name] = [line for line in kernels[name] if not line.startswith(".reg")]
    return kernels


def difference(ours: list[str], native: list[str]) -> str:
    """Empty: there is none."""
    if ours == native:
        return ""
    for number, (a, b) in enumerate(zip(ours, native, strict=False)):
        if a != b:
            return f"instruction {number} of {len(ours)} and {len(native)}: '{a}', not '{b}'"
    return f"{len(ours)} instructions, not {len(native)}"


def main() -> None:
    if len(sys.argv) != 4 or sys.argv[3] not in HEADERS:
        sys.exit(__doc__)
    nvcc, compiler, library = sys.argv[1:]
    if not Path(nvcc).is_file():
        sys.exit(f"there is no nvcc ('{nvcc}'): {INSTALL}")
    include_folders(library)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        both = pool.map(
            lambda native: compile_ptx(
                nvcc, compiler, library, native=native, to=Path(folder) / f"{native}.ptx"
            ),
            (False, True),
        )
        ours, native = map(kernels_of, both)
    if ours.keys() != native.keys() or "mutant_BLOCK" not in ours:
        sys.exit(f"other kernels: {sorted(ours.keys() ^ native.keys())}")
    wrong = {
        name: difference_text
        for name in ours
        if (difference_text := difference(ours[name], native[name]))
    }
    if wrong.pop("mutant_BLOCK", None) is None:
        sys.exit("the kernel with an instruction more is not found")
    for name, difference_text in wrong.items():
        print(f"{name}: {difference_text}")
    if wrong:
        sys.exit(f"{len(wrong)} of {len(ours) - 1} kernels are not those of {library} itself")
    lines = sum(len(body) for name, body in native.items() if name != "mutant_BLOCK")
    print(f"{library}: {len(ours) - 1} kernels, {lines} lines of PTX: the same by UNICONN")


if __name__ == "__main__":
    main()
