"""The Python example, run as its own comment says."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "copy_async.py"


def test_copies_on_a_simulated_node():
    environment = {**os.environ, "POLYPATH_NODE": "narval"}
    done = subprocess.run(
        [sys.executable, EXAMPLE], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{64 << 20} bytes copied and compared"
