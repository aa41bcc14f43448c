"""What polypath starts ends with it, by any cause."""

import signal
import subprocess
import sys

import pytest
from test_bench_beside import children_of, is_running, wait_for

# The tests may run under nohup, which lets what it starts ignore this signal.
_DEFAULT = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
_WAITS = "import time; print('{}', flush=True); time.sleep(600)"
_RANKS = f"""
import os, sys
from polypath.rank_launcher import lines_of_first
command = [sys.executable, "-c", {_WAITS!r}]
for _ in lines_of_first(command, [dict(os.environ)] * int(sys.argv[1])):
    print("began", flush=True)
"""
_TRIAL = f"""
import os, sys
from polypath.doctor.trials import Child
child = Child(["-c", {_WAITS!r}], os.environ)
print("began", flush=True)
child.end()
"""
_PROGRAM = f"""
import os, sys
from polypath.doctor.program import watch
print("began", flush=True)
watch(sys.executable, [sys.executable, "-c", {_WAITS!r}], os.environ, quiet=True)
"""


@pytest.mark.parametrize("reason", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize(
    ("program", "count"),
    [(_RANKS, 3), (_RANKS, 1), (_TRIAL, 1), (_PROGRAM, 1)],
    ids=["ranks", "launcher", "trial", "program"],
)
def test_no_child_is_left(program, count, reason):
    with subprocess.Popen(
        [sys.executable, "-c", _DEFAULT + program, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as starter:
        children = []
        try:
            assert starter.stdout.readline() == "began\n"
            children = wait_for(lambda: _all(starter.pid, count))
            starter.send_signal(reason)
            assert starter.wait(timeout=120) == -reason
            wait_for(lambda: not any(is_running(child) for child in children))
        finally:
            starter.kill()


def _all(pid, count):
    children = children_of(pid)
    return children if len(children) == count else []
