"""The measurement before the first program on a node: so that its plans rest on what this node
reaches, and not on defaults."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from ..children import end_with_parent
from ..context import Context, Progress
from ..errors import NoDevice
from ..interrupts import interrupt_later

#: How long others wait for the one that measures; a node of 8 GPUs takes some 4 s.
WAIT_S = 60.0
_POLL_S = 0.05


def measure_once(wait_s: float = WAIT_S) -> None:
    """Measures this machine's capacities where they were never measured, with progress on stderr,
    and keeps them as the node's profile.

    Does nothing on a simulated node, without GPUs or with one alone, and where profiles are off. Of
    several processes that start at once, on all machines that share the folder of profiles, one
    measures; the others wait for it, with a time limit. A failure is one line on stderr: the
    program can run without. Runs in a child process: what it opens of the driver ends with it.
    """
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            end_with_parent(parent)
            _measure(wait_s)
        except OSError as error:
            _say(f"{_shown(error.filename or 'a file')}: {error.strerror}")
        except Exception as error:
            _say(" ".join(str(error).split()) or type(error).__name__)
        finally:  # also of Ctrl-C, which the launcher has as well
            sys.stderr.flush()
            os._exit(0)
    os.waitpid(child, 0)


def _measure(wait_s: float) -> None:
    profile = _missing_profile()
    if profile is None:
        return
    profile.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(profile.parent, os.W_OK):
        _say(f"{_shown(profile)} cannot be written")
        return
    with _locked(profile.with_suffix(".lock"), wait_s) as is_ours:
        if not is_ours:
            _say(f"another process has been measuring it for {wait_s:.0f} s")
        elif _missing_profile() is not None:
            _measure_now()


def _missing_profile() -> Path | None:
    """The file of this node's profile, when there is none that can be used and it is worth one."""
    try:
        # With an emulated mesh, the real rates of the node are measured. A refused profile is
        # reported once, by the process that measures anew.
        with Context(emulate_mesh="off", log_level="error") as context:
            topology, file = context.topology(), context.profile_file()
    except NoDevice:
        return None
    is_needed = topology["capacities"] == "defaults" and len(topology["gpus"]) > 1
    return Path(file).absolute() if is_needed and file else None


def _measure_now() -> None:
    title = "polypath: measuring this node, once"
    shown: AbstractContextManager[Progress]
    if sys.stderr.isatty():
        from ..cli.output import progress

        shown = progress(title)
    else:
        print(f"{title} (`--no-measure` skips it)", file=sys.stderr, flush=True)
        shown = contextlib.nullcontext(lambda *_: None)
    with Context(emulate_mesh="off") as context:
        # The launcher says that it was interrupted.
        measure_or_leave(context, shown, lambda: os._exit(0))


def measure_or_leave(
    context: Context, shown: AbstractContextManager[Progress], leave: Callable[[], object]
) -> None:
    """Measures, with each step shown. At the step after Ctrl-C calls ``leave``, which ends the
    process: the library measures to the end even if an exception is raised."""
    interrupts: list[None] = []
    with contextlib.ExitStack() as stack, interrupt_later(lambda: interrupts.append(None)):
        step = stack.enter_context(shown)

        def report(done: int, total: int, what: str) -> None:
            if interrupts:
                stack.close()  # a terminal is as before
                leave()
            step(done, total, what)

        context.measure(report)


@contextlib.contextmanager
def _locked(file: Path, wait_s: float) -> Iterator[bool]:
    """Whether the lock was had in time; on file systems without locks, it always is. It ends with
    the process, if not before; the file stays."""
    deadline = time.monotonic() + wait_s
    with file.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    yield False
                    return
                time.sleep(_POLL_S)
                continue
            except OSError:
                pass
            yield True
            return


def _shown(name: object) -> str:
    """The name of a file as text, also if it is no UTF-8."""
    return os.fsencode(str(name)).decode(errors="backslashreplace")


def _say(why: str) -> None:
    print(f"polypath: this node is not measured, defaults serve: {why}", file=sys.stderr)
