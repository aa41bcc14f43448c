"""Ctrl-C while the library works for other threads, or cannot be left."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def interrupt_later(first: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C within the statement calls ``first`` and is raised after its end; a second one ends
    the process. An exception in the midst of a wait for a thread is lost on that thread, which
    still runs: before Python 3.13 `threading.Thread.join` takes it for ended then.

    On a thread that is not the main one, and where Ctrl-C is ignored or ends the process, it
    changes nothing: no exception comes there."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    signals: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signals.append((number, frame))
        first()

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if signals:
            before(*signals[0])
