"""Matching of messages and receives in batches: on the host, or on a communicator's GPU.

>>> matched = match(envelopes(tags, sources), envelopes([7, ANY_TAG], [3, ANY_SOURCE]))
>>> matched.matched_message        # the index of each receive's message, or NO_MATCH
>>> with Matcher(comm, capacity=4096) as matcher:
...     matcher.match(messages, receives, results, stream=stream)    # arrays on the GPU
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _api, _c_abi
from .buffers import Buffer, as_buffer
from .comm import Communicator
from .errors import InvalidArgument
from .handles import WarnsUnlessClosed
from .integers import integer
from .streams import stream_handle

if TYPE_CHECKING:
    import numpy

ANY_TAG = _c_abi.CONSTANTS["POLYPATH_ANY_TAG"]
ANY_SOURCE = _c_abi.CONSTANTS["POLYPATH_ANY_SOURCE"]
#: The index of no message.
NO_MATCH = _c_abi.CONSTANTS["POLYPATH_NO_MATCH"]

_ORDERS = _c_abi.ENUMS["polypath_match_order"]
#: polypath_match_order
ORDERS = {
    "mpi": _ORDERS["POLYPATH_ORDER_MPI"],
    "partitioned": _ORDERS["POLYPATH_ORDER_NO_ANY_SOURCE"],
    "hashed": _ORDERS["POLYPATH_ORDER_UNORDERED"],
    "hashed_unique": _ORDERS["POLYPATH_ORDER_UNORDERED_UNIQUE"],
}


def _numpy_fields(structure: type[ctypes.Structure]) -> list[tuple[str, str]]:
    """The fields of a structure of unsigned integers."""
    return [(name, f"<u{ctypes.sizeof(kind)}") for name, kind in structure._fields_]


#: polypath_match_status, as `MatchOutcome.status` has it.
STATUSES = (
    *("done", "full", "message_tag", "message_source", "receive_tag", "wildcard"),
    *("message_twice", "receive_twice"),
)

#: Bytes of an envelope, of an outcome and of a pair, as numpy has them.
ENVELOPE = _numpy_fields(_c_abi.Envelope)
OUTCOME = _numpy_fields(_c_abi.MatchResult)
PAIR = _numpy_fields(_c_abi.MatchPair)
_ENVELOPE_BYTES, _OUTCOME_BYTES, _PAIR_BYTES = (
    ctypes.sizeof(kind) for kind in (_c_abi.Envelope, _c_abi.MatchResult, _c_abi.MatchPair)
)


class MatchOutcome(NamedTuple):
    """What one batch came to; unless ``status`` is "done", nothing was matched."""

    status: str
    index: int
    """One of the messages or receives that the status is about."""
    matches: int
    unmatched_messages: int
    unmatched_receives: int


class Matched(NamedTuple):
    matched_message: numpy.ndarray
    outcome: MatchOutcome


def envelopes(tags: Any, sources: Any, communicators: Any = 0) -> numpy.ndarray:
    """A numpy array of envelopes of these, which are arrays or single values."""
    import numpy

    parts = numpy.broadcast_arrays(tags, sources, communicators)
    array = numpy.empty(parts[0].shape, dtype=ENVELOPE)
    for (name, kind), values in zip(ENVELOPE, parts, strict=True):
        most = numpy.iinfo(kind).max
        if values.size and (int(values.min()) < 0 or int(values.max()) > most):
            raise InvalidArgument(f"{name}s are not all 0 to {most}")
        array[name] = values
    return array


def match(messages: Any, receives: Any, order: str = "mpi") -> Matched:
    """Matches a batch on the host, at once; needs no GPU. Envelopes are arrays of `ENVELOPE`, or
    any memory of 8 bytes each (`polypath.buffers`)."""
    import numpy

    arrays = _array(messages, "messages"), _array(receives, "receives")
    counts = [array.bytes // _ENVELOPE_BYTES for array in arrays]
    results = numpy.empty(counts[1], dtype=numpy.uint32)
    outcome = numpy.zeros(1, dtype=OUTCOME)
    _api.call(
        "polypath_match_host",
        _order(order),
        *[arrays[0].address or None, counts[0], arrays[1].address or None, counts[1]],
        results.ctypes.data or None,
        outcome.ctypes.data,
    )
    return Matched(results, outcome_of(outcome))


def outcome_of(memory: Any, number: int = 0) -> MatchOutcome:
    """The outcome that lies in host memory (an array of `OUTCOME`), or one of several."""
    buffer = as_buffer(memory, "memory")
    number = integer(number, ctypes.c_uint32, "number")
    result = _c_abi.MatchResult.from_address(buffer.address + number * _OUTCOME_BYTES)
    return MatchOutcome(
        *(STATUSES[result.status], result.index, result.matches),
        *(result.unmatched_messages, result.unmatched_receives),
    )


class Matcher(WarnsUnlessClosed):
    """A matcher on the GPU of ``comm``, which stays open longer. At most ``capacity`` messages and
    as many receives are in one batch, with what earlier ones left over.

    Arrays are memory that this GPU reaches (`polypath.buffers`): envelopes of 8 bytes (`ENVELOPE`),
    outcomes of 24 (`OUTCOME`), pairs of 16 (`PAIR`). Calls are asynchronous on ``stream``, and come
    from one thread at a time; arrays live until it is done. ``launch_per_phase``: batches by the
    whole GPU are a row of launches instead of one whose blocks all need room at once, next to a
    kernel that never ends.

    Use it in a ``with`` statement or call `close`."""

    def __init__(
        self,
        comm: Communicator,
        capacity: int,
        order: str = "mpi",
        *,
        launch_per_phase: bool = False,
    ) -> None:
        self._handle: ctypes.c_void_p | None = None
        handle = ctypes.c_void_p()
        options = _c_abi.MatcherOptions(_order(order), capacity, launch_per_phase)
        _api.call(
            "polypath_matcher_create", comm._open(), ctypes.byref(options), ctypes.byref(handle)
        )
        self._handle = handle
        self._comm = comm  # kept open by this reference, unless it is closed
        self.capacity = capacity

    def match(
        self,
        messages: Any,
        receives: Any,
        matched_message: Any,
        outcome: Any = None,
        stream: Any = None,
    ) -> None:
        """One batch by itself: ``matched_message`` gets 4 bytes for each receive, the index of
        its message or `NO_MATCH`."""
        arrays = _array(messages, "messages"), _array(receives, "receives")
        counts = [array.bytes // _ENVELOPE_BYTES for array in arrays]
        _api.call(
            "polypath_match",
            self._open(),
            *[arrays[0].address or None, counts[0], arrays[1].address or None, counts[1]],
            _room(matched_message, 4 * counts[1], "matched_message"),
            _room(outcome, _OUTCOME_BYTES, "outcome"),
            stream_handle(stream),
        )

    def match_many(
        self,
        messages: Any,
        message_begins: Any,
        receives: Any,
        receive_begins: Any,
        matched_message: Any,
        outcomes: Any = None,
        stream: Any = None,
    ) -> None:
        """Many batches that have nothing to do with each other, at once. The messages of batch b
        are those from ``message_begins[b]`` to before ``message_begins[b + 1]``; its receives are
        those of ``receive_begins`` (4 bytes each, one more than there are batches); indices count
        from the batch's first message. ``outcomes`` has room for one of each batch. One with more
        than 1024 of either, or than the capacity, is "full"."""
        arrays = _array(messages, "messages"), _array(receives, "receives")
        begins = (
            _begins(message_begins, "message_begins"),
            _begins(receive_begins, "receive_begins"),
        )
        if begins[0].bytes != begins[1].bytes:
            raise InvalidArgument("message_begins and receive_begins are not of as many batches")
        batches = max(begins[0].bytes // 4 - 1, 0)
        _api.call(
            "polypath_match_batched",
            self._open(),
            batches,
            *[arrays[0].address or None, begins[0].address or None],
            *[arrays[1].address or None, begins[1].address or None],
            _room(matched_message, arrays[1].bytes // 2, "matched_message"),
            _room(outcomes, _OUTCOME_BYTES * batches, "outcomes"),
            stream_handle(stream),
        )

    def match_next(
        self,
        messages: Any,
        receives: Any,
        pairs: Any,
        outcome: Any,
        stream: Any = None,
    ) -> None:
        """Matches what is new together with what earlier calls left over. ``pairs`` has room for
        ``capacity`` pairs and gets as many as ``outcome`` says, in the order of their receives;
        messages and receives are numbered from 0 since the matcher was made, or reset."""
        arrays = _array(messages, "messages"), _array(receives, "receives")
        counts = [array.bytes // _ENVELOPE_BYTES for array in arrays]
        _api.call(
            "polypath_match_incremental",
            self._open(),
            *[arrays[0].address or None, counts[0], arrays[1].address or None, counts[1]],
            _room(pairs, _PAIR_BYTES * self.capacity, "pairs"),
            _room(outcome, _OUTCOME_BYTES, "outcome"),
            stream_handle(stream),
        )

    def reset(self, stream: Any = None) -> None:
        """Forgets what is left over, and counts from 0 again."""
        _api.call("polypath_matcher_reset", self._open(), stream_handle(stream))

    def report(self) -> dict[str, int]:
        """How its batches went; waits for them."""
        report: dict[str, int] = _api.call_json("polypath_matcher_report", self._open())
        return report

    def close(self) -> None:
        """Waits for its batches. More calls do nothing."""
        handle, self._handle = self._handle, None
        if handle is not None and not self._is_inherited():
            _api.call("polypath_matcher_destroy", handle)

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise InvalidArgument("the matcher is closed")
        self._comm._open()
        return self._handle


def _order(name: str) -> int:
    if name not in ORDERS:
        raise InvalidArgument(f"order '{name}' is none: {', '.join(ORDERS)}")
    return ORDERS[name]


class _Array(NamedTuple):
    address: int
    bytes: int


def _array(memory: Any, name: str) -> _Array:
    """Envelopes; their number is that of their bytes."""
    buffer: Buffer = as_buffer(memory, name)
    if buffer.bytes is None or buffer.bytes % _ENVELOPE_BYTES:
        raise InvalidArgument(f"{name}: not an array of envelopes of 8 bytes")
    return _Array(buffer.address, buffer.bytes)


def _begins(memory: Any, name: str) -> _Array:
    buffer: Buffer = as_buffer(memory, name)
    if buffer.bytes is None or buffer.bytes % 4:
        raise InvalidArgument(f"{name}: not an array of 4 bytes each")
    return _Array(buffer.address, buffer.bytes)


def _room(memory: Any, least: int, name: str) -> int | None:
    if memory is None:
        return None
    buffer = as_buffer(memory, name)
    if buffer.bytes is not None and buffer.bytes < least:
        raise InvalidArgument(f"{name} has {buffer.bytes} bytes, and needs {least}")
    if buffer.read_only:
        raise InvalidArgument(f"{name} is read-only")
    return buffer.address or None
