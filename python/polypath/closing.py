"""What stands behind an object of the library is given back by ``close``, or in the end of a
``with`` statement."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self


class Closing:
    """Closed in the end of a ``with`` statement."""

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
        if getattr(self, "_handle", None) is not None:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
