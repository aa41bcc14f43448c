"""Sizes in bytes as people write them: ``64M``, ``1.5 GiB``, ``4096``, and ranges like ``1M:1G``.

A unit is a power of 1024: K, M, G or T, alone or as KB or KiB, in either case, after a space or
none; as the library's own settings are written.
"""

from __future__ import annotations

import re

_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE = re.compile(r"(\d+)(?:\.(\d+))?\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII)
_LIMIT = 1 << 63

ALLOWED = (
    "a number of bytes such as 4096, 64K, 1.5M, 64MB, 64 MiB, 2G or 1T (powers of 1024), at most "
    "2^63"
)
ALLOWED_LIST = (
    f"{ALLOWED}; a range 1M:1G (each size twice the last); or a list of these, with commas"
)


def parse_size(text: str) -> int:
    """Bytes that ``text`` stands for. ``ValueError`` says what is allowed."""
    match = _SIZE.fullmatch(text.strip())
    if match is None and _SIZE.fullmatch(text.strip().removeprefix("-")):
        raise ValueError(f"'{text}' is negative, and a size is {ALLOWED}")
    if match is None:
        raise ValueError(f"'{text}' is not {ALLOWED}")
    fraction = match[2] or ""
    scaled = int(match[1] + fraction) << _UNITS[(match[3] or "").lower()]
    value, rest = divmod(scaled, 10 ** len(fraction))
    if rest:
        raise ValueError(f"'{text}' is no whole number of bytes")
    if value > _LIMIT:
        raise ValueError(f"'{text}' is not {ALLOWED}")
    return value


def format_size(size: int) -> str:
    """The shortest exact form that :func:`parse_size` reads: 1536 -> ``1536``, 67108864 ->
    ``64M``."""
    if size < 0:
        raise ValueError(f"a size cannot be negative: {size}")
    for unit in ("T", "G", "M", "K"):
        if size and size % (1 << _UNITS[unit.lower()]) == 0:
            return f"{size >> _UNITS[unit.lower()]}{unit}"
    return str(size)


def rounded_size(size: int) -> str:
    """For people, to three or four digits: 2110464 -> ``2.01 MiB``, 100 -> ``100 B``."""
    for unit in ("T", "G", "M", "K"):
        if size >= 1 << _UNITS[unit.lower()]:
            return f"{figure(size / (1 << _UNITS[unit.lower()]))} {unit}iB"
    return f"{size} B"


def figure(value: float) -> str:
    """A measured figure to three significant digits, and never fewer than its whole part: ``1381``,
    ``396``, ``55.4``, ``1.09``, ``0.745``."""
    for least, decimals in ((99.95, 0), (9.995, 1), (0.9995, 2)):
        if value >= least:
            return f"{value:.{decimals}f}"
    return f"{value:.3f}" if value else "0"


def short_figure(value: float) -> str:
    """`figure` without zeros after the point: ``93``, ``24.5``."""
    text = figure(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def parse_sizes(text: str) -> list[int]:
    """Sizes of a list such as ``64K,1M:8M``, in the order given; a range doubles from its first
    size up to its last. ``ValueError`` says what is allowed."""
    sizes: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        low = parse_size(first)
        high = parse_size(last) if colon else low
        if low == 0 or high < low:
            raise ValueError(f"'{part}' is not {ALLOWED_LIST}; no size is 0, no range runs down")
        while low <= high:
            sizes.append(low)
            low *= 2
    return sizes
