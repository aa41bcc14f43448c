"""The backend of torch.distributed: on a simulated node with a stand-in of torch, and with a real
torch, where there is one, on host memory. scripts/check_torch_collectives.py checks it on GPUs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent


def _environment(*folders: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("POLYPATH_") or name == "POLYPATH_LIBRARY"
    }
    paths = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


_OF_GROUP = [
    "reductions",
    "layouts_of_lists",
    "uneven",
    "moves",
    "order",
    "choice",
    "messages",
    "alone",
    "norms",
]
_OF_DDP = ["taken", "left", "off", "given_way", "copies", "join", "unlike", "old"]
_CASES = [("torch_ranks", case) for case in _OF_GROUP] + [
    ("torch_ddp_ranks", case) for case in _OF_DDP
]


@pytest.mark.parametrize(("program", "case"), _CASES)
def test_on_a_simulated_node(program, case, tmp_path):
    done = subprocess.run(
        [sys.executable, _HERE / f"{program}.py", case],
        env={**_environment(_HERE / "torch_standin"), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert (done.stdout, done.returncode) == ("all right\n", 0), done.stderr


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="there is no PyTorch")
@pytest.mark.parametrize(
    ("case", "size"),
    [
        ("collectives", 3),
        ("norms", 3),
        ("messages", 2),
        ("messages", 3),
        ("ddp", 2),
        ("hooks", 2),
        ("hooks", 3),
    ],
)
def test_with_a_real_torch(case, size, tmp_path):
    root = _HERE.parents[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, _HERE / "torch_host_ranks.py", case, str(rank), str(size)],
            env=_environment(root / "scripts", root / "examples"),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    outputs = [rank.communicate(timeout=1200)[0] for rank in ranks]
    for rank, text in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0 and text.endswith("all right\n"), text
