"""Sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polypath.sizes import format_size, parse_size, parse_sizes, rounded_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64K", 64 << 10),
        ("64KiB", 64 << 10),
        ("1m", 1 << 20),
        ("2G", 2 << 30),
        ("8589934592G", 1 << 63),
        (" 7 ", 7),
    ],
)
def test_reads_a_size(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    "text", ["", "M", "-1", "1.5M", "1T", "64KB", "64 K", "0x10", "\u0661", "8589934593G"]
)
def test_refuses_what_is_not_a_size_and_says_what_is(text):
    with pytest.raises(ValueError, match=r"4096, 64K, 64KiB, 1M or 2G, at most 2\^63"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "expected"), [(0, "0"), (1536, "1536"), (67108864, "64M"), (3 << 30, "3G")]
)
def test_writes_the_shortest_exact_form(size, expected):
    assert format_size(size) == expected


def test_refuses_to_write_a_negative_size():
    with pytest.raises(ValueError, match="negative"):
        format_size(-1)


@given(st.integers(0, 1 << 63))
def test_reads_what_it_writes(size):
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (2110464, "2.01 MiB"),
        (3 << 30, "3.00 GiB"),
    ],
)
def test_rounds_for_people(size, expected):
    assert rounded_size(size) == expected


def test_a_range_doubles_up_to_its_end():
    assert parse_sizes("1K:8K") == [1024, 2048, 4096, 8192]
    assert parse_sizes("3:13") == [3, 6, 12]


def test_a_list_keeps_its_order():
    assert parse_sizes("1M,5,1K:2K") == [1 << 20, 5, 1024, 2048]


@pytest.mark.parametrize("text", ["0", "0:4", "8K:4K", "1M:", ":1M", "1M,", "1:2:4"])
def test_refuses_an_unusable_range(text):
    with pytest.raises(ValueError, match="is not a number of bytes"):
        parse_sizes(text)


@given(st.integers(1, 1 << 40), st.integers(0, 20))
def test_a_range_holds_both_ends_when_they_are_a_power_of_two_apart(first, doublings):
    sizes = parse_sizes(f"{first}:{first << doublings}")
    assert sizes == [first << i for i in range(doublings + 1)]
