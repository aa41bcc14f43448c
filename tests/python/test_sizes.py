"""Sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polypath.sizes import (
    figure,
    format_size,
    parse_size,
    parse_sizes,
    rounded_size,
    short_figure,
)


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
        ("7B", 7),
        ("64KB", 64 << 10),
        ("64MB", 64 << 20),
        ("64 MB", 64 << 20),
        ("64 mib", 64 << 20),
        ("1.5M", 3 << 19),
        ("0.5K", 512),
        ("1.25 GiB", 5 << 28),
        ("1T", 1 << 40),
        ("2TiB", 2 << 40),
    ],
)
def test_reads_a_size(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "M", "-1", ".5M", "1.M", "1,5M", "1P", "64iB", "64 M B", "1e6", "0x10", "\u0661"),
        *("8589934593G", "8388609T"),
    ],
)
def test_refuses_what_is_not_a_size_and_says_what_is(text):
    with pytest.raises(ValueError, match=r"64K, 1.5M, 64MB, .* \(powers of 1024\), at most 2\^63"):
        parse_size(text)


@pytest.mark.parametrize("text", ["1.5", "0.3K", "1.0001K"])
def test_refuses_parts_of_bytes(text):
    with pytest.raises(ValueError, match=f"'{text}' is no whole number of bytes"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0"), (1536, "1536"), (67108864, "64M"), (3 << 30, "3G"), (1 << 40, "1T")],
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
        (140 << 30, "140 GiB"),
        (1 << 41, "2.00 TiB"),
    ],
)
def test_rounds_for_people(size, expected):
    assert rounded_size(size) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1380.9, "1381"),
        (395.6, "396"),
        (99.95, "100"),
        (99.94, "99.9"),
        (55.4, "55.4"),
        (9.996, "10.0"),
        (1.094, "1.09"),
        (0.9996, "1.00"),
        (0.7449, "0.745"),
        (0, "0"),
    ],
)
def test_three_significant_digits(value, expected):
    assert figure(value) == expected


def test_short_figures_end_in_no_zero():
    assert [short_figure(value) for value in (93, 24.5, 12.25, 100, 1200)] == [
        *("93", "24.5", "12.2", "100", "1200"),
    ]


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
def test_power_of_two_range_includes_both_ends(first, doublings):
    sizes = parse_sizes(f"{first}:{first << doublings}")
    assert sizes == [first << i for i in range(doublings + 1)]
