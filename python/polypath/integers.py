"""Integers of callers as C types have them: ctypes drops the bits that do not fit."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Iterable, Sequence
from ctypes import c_int, c_size_t, c_uint32, c_uint64
from typing import Any

from .errors import InvalidArgument
from .sizes import parse_size

_RANGES = {
    c_int: (-(1 << 31), (1 << 31) - 1, "-2^31 to 2^31 - 1"),
    c_uint32: (0, (1 << 32) - 1, "0 to 2^32 - 1"),
    c_uint64: (0, (1 << 64) - 1, "0 to 2^64 - 1"),
    c_size_t: (0, (1 << 64) - 1, "0 to 2^64 - 1"),  # the same type where both are long
}


class Integers:
    """The integers among the fields of a structure or the parameters of a function."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        """Only parameters that are pairs (name, integer C type) count."""
        self._places = [
            (at, parameter[1], parameter[0], *_RANGES[parameter[1]][:2])
            for at, parameter in enumerate(parameters)
            if isinstance(parameter, tuple) and parameter[1] in _RANGES
        ]

    def checked(self, values: Sequence[Any]) -> Sequence[Any]:
        """All values, the integers among them as `integer` has them."""
        if not self._places:
            return values
        checked_values = None
        for at, kind, name, smallest, largest in self._places:
            if at >= len(values):
                break
            if type(values[at]) is int and smallest <= values[at] <= largest:
                continue
            if checked_values is None:
                checked_values = list(values)
            checked_values[at] = integer(values[at], kind, name)
        return values if checked_values is None else checked_values


class Checked:
    """A structure's base, next to ctypes' own: its integers are checked when it is made."""

    def __init_subclass__(cls) -> None:
        cls._integers = Integers(cls._fields_)

    def __init__(self, *values: Any) -> None:
        super().__init__(*self._integers.checked(values))


def integer(value: Any, kind: type[Any], name: str) -> int:
    """``value``, an integer of Python or numpy. Raises `InvalidArgument`, which names it, for
    anything else and for what the C type does not hold."""
    least, most, allowed = _RANGES[kind]
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name}: {value!r} is no integer") from None
    if not least <= number <= most:
        raise InvalidArgument(f"{name}: {number} is not allowed: {allowed}")
    return number


def array(values: Sequence[Any], kind: type[Any], name: str) -> ctypes.Array[Any]:
    """Integers one after the other, each as `integer` has it."""
    return (kind * len(values))(*[integer(value, kind, name) for value in values])


def checked_size(value: int | str, name: str = "bytes") -> int:
    """Bytes, also "64M". Raises `InvalidArgument` as `integer` does, and for text that is no
    size."""
    if isinstance(value, str):
        try:
            value = parse_size(value)
        except ValueError as error:
            raise InvalidArgument(f"{name}: {error}") from None
    return integer(value, c_size_t, name)
