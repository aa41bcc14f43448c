"""The resources of a library object are released by ``close``, or at the end of a ``with``
statement.

Only by the process that made it. A child that `os.fork` made has a copy of the object, but none of
the library's threads, and the memory that it shares with other processes is the parent's: `close`,
the end of a ``with`` statement and the destructor only forget the handle there.
"""

from __future__ import annotations

import os
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self


def is_failure(error: BaseException | None) -> bool:
    """Whether a ``with`` statement that this came out of has failed. It has not at its end, nor by
    ``sys.exit()`` or ``sys.exit(0)``, nor where the generator that it is in is closed."""
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return error is not None and not isinstance(error, GeneratorExit)


class Closing:
    """Closed in the end of a ``with`` statement."""

    _made_by: int
    """The process that made it."""

    def __new__(cls, *_arguments: Any, **_named: Any) -> Self:
        instance = super().__new__(cls)
        instance._made_by = os.getpid()
        return instance

    def _is_inherited(self) -> bool:
        """Whether this is a child that got it by a fork."""
        return self._made_by != os.getpid()

    def close(self) -> None:
        raise NotImplementedError

    def _leave(self, error: BaseException | None) -> None:
        """The end of the statement; `error`: what came out of it."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(error)


class WarnsUnlessClosed(Closing):
    """Its ``_handle`` is None once it is closed."""

    _handle: Any

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not self._is_inherited():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
