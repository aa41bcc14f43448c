"""Ranks that are threads of this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .errors import PolypathError
from .handles import is_failure
from .interrupts import interrupt_later

if TYPE_CHECKING:
    from .comm import Communicator

_SIGNAL_SEEN_S = 0.1


def on_all(ranks: Sequence[Communicator], body: Callable[[Communicator], Any]) -> list[Any]:
    """Calls ``body`` for each of these ranks at once, on a thread each, and returns what each
    returned. When one fails, its communicator is aborted, so that no other waits for it, and the
    first exception is raised. Ctrl-C aborts all, and is raised when they have left the library; a
    second one ends the process."""
    results: list[Any] = [None] * len(ranks)
    raised: list[BaseException] = []

    def run(at: int) -> None:
        try:
            results[at] = body(ranks[at])
        except BaseException as error:
            raised.append(error)
            if not is_failure(error):  # sys.exit(0)
                return
            with contextlib.suppress(PolypathError):  # it is closed
                ranks[at].abort(f"rank {ranks[at].rank} raised {type(error).__name__}: {error}")

    def interrupted() -> None:
        for comm in ranks:
            with contextlib.suppress(PolypathError):
                comm.abort("interrupted")

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(ranks))]
    with interrupt_later(interrupted):
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                # Without a limit, a signal right before the wait would not be seen in it.
                thread.join(_SIGNAL_SEEN_S)
    if raised:
        raise next((error for error in raised if is_failure(error)), raised[0])
    return results
