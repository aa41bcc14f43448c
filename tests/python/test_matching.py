"""Matching in Python: on the host, and on the simulated node."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from polypath.errors import InvalidArgument
from polypath.matching import ANY_SOURCE, ANY_TAG, ENVELOPE, NO_MATCH, envelopes, match


def literally(messages: np.ndarray, receives: np.ndarray) -> list[int]:
    """Each message takes the first receive that accepts it."""
    taken = [NO_MATCH] * len(receives)
    for number, message in enumerate(messages):
        for at, receive in enumerate(receives):
            if (
                taken[at] == NO_MATCH
                and receive["communicator"] == message["communicator"]
                and receive["tag"] in (ANY_TAG, message["tag"])
                and receive["source"] in (ANY_SOURCE, message["source"])
            ):
                taken[at] = number
                break
    return taken


def draw(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    messages = envelopes(random.integers(0, 5, count), random.integers(0, 4, count), 1)
    receives = envelopes(random.integers(0, 5, count), random.integers(0, 4, count), 1)
    receives["tag"][random.random(count) < 0.2] = ANY_TAG
    receives["source"][random.random(count) < 0.2] = ANY_SOURCE
    return messages, receives


def test_the_host_matches_in_the_order_of_mpi() -> None:
    for seed in range(20):
        messages, receives = draw(seed, 3 * seed)
        matched = match(messages, receives)
        expected = literally(messages, receives)
        assert matched.matched_message.tolist() == expected
        assert matched.outcome.status == "done"
        assert matched.outcome.matches == sum(each != NO_MATCH for each in expected)


def test_relaxed_orders_refuse_what_they_do_not_know() -> None:
    messages = envelopes([1, 2, 1], 3)
    same = match(messages, messages[::-1].copy(), order="hashed")
    assert same.outcome.matches == 3
    assert [int(messages["tag"][i]) for i in same.matched_message] == [1, 2, 1]
    assert match(messages, messages, order="hashed_unique").outcome.status == "message_twice"
    any_tag = envelopes([ANY_TAG], 3)
    assert match(messages, any_tag, order="partitioned").matched_message.tolist() == [0]
    assert match(messages, any_tag, order="hashed").outcome.status == "wildcard"
    any_source = envelopes([1], ANY_SOURCE)
    assert match(messages, any_source, order="partitioned").outcome.status == "wildcard"


def test_what_is_out_of_range_is_a_status() -> None:
    matched = match(envelopes([1, 0x80000000], 1), envelopes([1], 1))
    assert matched.outcome.status == "message_tag" and matched.outcome.index == 1
    assert matched.matched_message.tolist() == [NO_MATCH]


def test_arguments_are_looked_at() -> None:
    good = envelopes([1, 2], 3)
    with pytest.raises(InvalidArgument, match="order 'none'"):
        match(good, good, order="none")
    with pytest.raises(InvalidArgument, match="messages: not an array of envelopes"):
        match(np.zeros(7, dtype=np.uint8), good)
    with pytest.raises(InvalidArgument, match="sources are not all 0 to 65535"):
        envelopes([1], 65536)
    assert good.dtype == np.dtype(ENVELOPE) and good["source"].tolist() == [3, 3]
    raw = match(good.view(np.uint64), good)
    assert raw.matched_message.tolist() == [0, 1]


_ON_THE_GPU = """
import sys
sys.path[:0] = ["tests/python"]
import numpy as np
import polypath
from polypath.comm import Communicator
from polypath.errors import InvalidArgument
from polypath.matching import OUTCOME, PAIR, Matcher, envelopes, match, outcome_of
from simulated import DeviceArray, Driver
from test_matching import draw, literally

context = polypath.Context(node="narval")
driver = Driver(context.devices()["driver"]["library"])
(comm,) = Communicator.all(context, [2])
driver.use(2)
stream = driver.stream()
on_gpu = lambda values: DeviceArray(driver, 2, values)
outcome = on_gpu(np.zeros(1, dtype=OUTCOME))
with Matcher(comm, capacity=200) as matcher:
    for seed in range(5):
        messages, receives = draw(seed, 40 * seed + 1)
        results = on_gpu(np.full(len(receives), 77, dtype=np.uint32))
        matcher.match(on_gpu(messages), on_gpu(receives), results, outcome, stream=stream)
        driver.synchronise(stream)
        assert results.numpy().tolist() == literally(messages, receives)
        assert outcome_of(outcome.numpy()).status == "done"
    messages, receives = draw(9, 150)
    expected = {(j, i) for j, i in enumerate(literally(messages, receives)) if i != 0xFFFFFFFF}
    found = set()
    pairs = on_gpu(np.zeros(200, dtype=PAIR))
    for begin in range(0, 150, 30):
        part = slice(begin, begin + 30)
        new = on_gpu(messages[part]), on_gpu(receives[part])
        matcher.match_next(*new, pairs, outcome, stream=stream)
        driver.synchronise(stream)
        count = outcome_of(outcome.numpy()).matches
        found |= {(int(j), int(i)) for j, i in pairs.numpy()[:count]}
    assert found == expected
    counts = [0, 60, 1, 25]
    many = [draw(20 + i, count) for i, count in enumerate(counts)]
    begins = on_gpu(np.cumsum([0, *counts], dtype=np.uint32))
    arrays = [on_gpu(np.concatenate([each[side] for each in many])) for side in (0, 1)]
    results = on_gpu(np.full(sum(counts), 77, dtype=np.uint32))
    outcomes = on_gpu(np.zeros(len(counts), dtype=OUTCOME))
    matcher.match_many(arrays[0], begins, arrays[1], begins, results, outcomes, stream=stream)
    driver.synchronise(stream)
    assert results.numpy().tolist() == sum((literally(*each) for each in many), [])
    said = outcomes.numpy()
    for i, each in enumerate(many):
        pairs_of_it = sum(number != 0xFFFFFFFF for number in literally(*each))
        assert outcome_of(said, i)[:3] == ("done", 0, pairs_of_it), i
    short = on_gpu(np.zeros(3, dtype=np.uint32))
    for wrong, why in (
        ((arrays[0], short, arrays[1], begins, results), "not of as many batches"),
        ((arrays[0], begins, arrays[1], begins, short), "matched_message has 12 bytes"),
        ((arrays[0], begins, arrays[1], begins, results, outcome), "outcomes has 24 bytes"),
    ):
        try:
            matcher.match_many(*wrong)
            raise AssertionError(why)
        except InvalidArgument as error:
            assert why in str(error), error
    report = matcher.report()
    assert report["batches"] == 11 and report["unmatched_messages"] == 150 - len(expected), report
    try:
        matcher.match_next(*new, results, outcome)
        raise AssertionError("too little room for pairs")
    except InvalidArgument as error:
        assert "pairs has" in str(error)
comm.close()
context.close()
print("all right")
"""


def test_a_gpu_matches_alone_and_carries_over() -> None:
    run = subprocess.run([sys.executable, "-c", _ON_THE_GPU], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout == "all right\n", run.stdout + run.stderr
