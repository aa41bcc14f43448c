"""Child processes that end when this process does, also when it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
#: Looked up here: between fork and exec as little as possible is done.
_prctl = ctypes.CDLL(None).prctl


def end_with_parent(parent: int, by: int = signal.SIGKILL) -> None:
    """Lets the system send this process a signal when its parent dies. Exits at once where the
    parent has died before."""
    _prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def ended_with_us(by: int = signal.SIGKILL) -> Callable[[], None]:
    """For ``preexec_fn`` of `subprocess`: what is started gets the signal when this process ends.
    ``by``: SIGTERM for a launcher, which ends what it has started itself.

    Call it on the main thread: the signal comes when the thread that started the child ends.
    """
    parent = os.getpid()
    return lambda: end_with_parent(parent, by)
