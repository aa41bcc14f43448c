"""The exceptions of the package: one for each status of the C API, all of them a `PolypathError`.

``str(error)`` is the library's message: one line that a user can act on.
"""

from __future__ import annotations


class PolypathError(RuntimeError):
    """Root of the family."""


class InvalidArgument(PolypathError, ValueError):
    """An address, size, name, setting or file is not usable; the message names it."""


class WrongType(InvalidArgument, TypeError):
    """An object of a type that the call does not take; the message names it."""


class NoDevice(PolypathError):
    """No CUDA driver or no GPU, and no node was named."""


class NotSupported(PolypathError):
    """The driver lacks what this call needs."""


class DriverError(PolypathError):
    """A driver call failed; the message names it."""


class InternalError(PolypathError):
    """Out of memory, a benchmark whose bytes differ, or a defect of the library."""


class CommunicatorError(PolypathError):
    """Ranks could not connect, or one failed, ended, aborted or did not come in time; the message
    says which and why."""


class FileError(PolypathError):
    """A file could not be read, ends before the last byte that was asked for, or does not hold what
    its format demands; the message says where."""


class LibraryNotFound(PolypathError):
    """libpolypath.so is not where it is looked for, or cannot be loaded."""


#: The exception of each status of ``polypath_status``, but POLYPATH_SUCCESS.
BY_STATUS_NAME: dict[str, type[PolypathError]] = {
    "POLYPATH_INVALID_ARGUMENT": InvalidArgument,
    "POLYPATH_NO_DEVICE": NoDevice,
    "POLYPATH_NOT_SUPPORTED": NotSupported,
    "POLYPATH_DRIVER_ERROR": DriverError,
    "POLYPATH_INTERNAL_ERROR": InternalError,
    "POLYPATH_COMMUNICATOR_ERROR": CommunicatorError,
    "POLYPATH_FILE_ERROR": FileError,
}
