"""Headers of safetensors files, and which files a path names: what is read, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polypath import FileError
from polypath.loading.elements import ELEMENTS
from polypath.loading.header import parse_header, read_header
from polypath.loading.sources import digest, open_sources
from safetensors_files import header_bytes, make_file


def parsed(contents: bytes):
    return parse_header(
        lambda offset, count: contents[offset : offset + count], len(contents), "model"
    )


def entry(dtype="F32", shape=(2, 3), begin=0, end=24):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def with_header(entries, data=24):
    return header_bytes(entries) + bytes(data)


_NAMES = st.text(max_size=8).filter(lambda name: name != "__metadata__")
_SHAPES = st.lists(st.integers(0, 5), max_size=4)


@given(
    tensors=st.dictionaries(_NAMES, st.tuples(st.sampled_from(sorted(ELEMENTS)), _SHAPES)),
    metadata=st.none() | st.dictionaries(st.text(), st.text(), max_size=2),
    pad=st.integers(0, 9),
    order=st.randoms(),
)
def test_header_says_what_was_written(tensors, metadata, pad, order):
    entries, place, expected = {}, 0, {}
    for name, (dtype, shape) in tensors.items():
        bits = ELEMENTS[dtype].bits
        for length in shape:
            bits *= length
        if bits % 8:
            continue
        expected[name] = (dtype, tuple(shape), place, place + bits // 8)
        entries[name] = entry(dtype, shape, place, place + bits // 8)
        place += bits // 8
    names = list(entries)
    order.shuffle(names)
    written = {name: entries[name] for name in names}
    if metadata is not None:
        written["__metadata__"] = metadata
    header = parsed(header_bytes(written, pad) + bytes(place))
    actual = {each.name: (each.dtype, each.shape, each.begin, each.end) for each in header.entries}
    assert actual == expected
    assert header.metadata == (metadata or {})
    assert header.data_bytes == place
    assert [each.begin for each in header.entries] == sorted(each.begin for each in header.entries)


@given(contents=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(contents):
    for each in (contents, len(contents).to_bytes(8, "little") + contents):
        try:
            parsed(each)
        except FileError as error:
            assert str(error).startswith("model: no valid safetensors file: ")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(
    replaced=st.fixed_dictionaries(
        {}, optional={"dtype": _JSON, "shape": _JSON, "data_offsets": _JSON}
    ),
    more=st.dictionaries(st.text(max_size=5), _JSON, max_size=2),
)
def test_any_entries_are_read_or_refused(replaced, more):
    try:
        header = parsed(with_header({"a": {**entry(), **replaced}, **more}))
    except FileError:
        return
    assert sum(each.bytes for each in header.entries) == 24


@given(data=st.data())
def test_each_shorter_file_is_refused(data):
    whole = with_header({"a": entry(), "b": entry("U8", [3], 24, 27)}, 27)
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(FileError):
        parsed(whole[:length])


MALFORMED = {
    "empty": (b"", "0 bytes, fewer than the 8"),
    "long header": ((1 << 62).to_bytes(8, "little"), "more than 100000000"),
    "header past the end": ((100).to_bytes(8, "little") + b"{}", "header would end at byte 108"),
    "no object": ((2).to_bytes(8, "little") + b"[]", "does not begin with '{'"),
    "no JSON": ((2).to_bytes(8, "little") + b"{,", "no JSON"),
    "no UTF-8": ((5).to_bytes(8, "little") + b'{"\xff"}', "no UTF-8 at byte 2"),
    "deep": ((30000).to_bytes(8, "little") + b'{"a":' * 6000, "no JSON"),
    "metadata": (with_header({"__metadata__": {"a": 1}}, 0), "__metadata__"),
    "no dtype": (with_header({"a": {"shape": [], "data_offsets": [0, 4]}}, 4), "lacks dtype"),
    "unknown dtype": (with_header({"a": entry("F31")}), "'F31'"),
    "negative": (with_header({"a": entry(shape=[-2, -3])}), "no list of lengths"),
    "boolean": (with_header({"a": entry("U8", [True], 0, 1)}, 1), "no list of lengths"),
    "backwards": (with_header({"a": entry(begin=24, end=0)}), "no range"),
    "wrong size": (with_header({"a": entry(shape=[2, 4])}), "has 24 bytes, and F32"),
    "part of a byte": (with_header({"a": entry("F4", [3], 0, 1)}, 1), "no whole number of bytes"),
    "huge": (with_header({"a": entry(shape=[1 << 62, 1 << 62])}), "has 24 bytes"),
    "overlap": (with_header({"a": entry(), "b": entry("U8", [4], 20, 24)}), "overlaps"),
    "gap": (with_header({"a": entry(begin=8, end=32)}, 32), "gap"),
    "past the end": (with_header({"a": entry()}, 23), "end at byte 24"),
    "surplus": (with_header({"a": entry()}, 25), "1 bytes after"),
    "twice": (
        (lambda text: len(text).to_bytes(8, "little") + text + bytes(24))(
            b'{"a": %s, "a": %s}' % ((json.dumps(entry()).encode(),) * 2)
        ),
        "'a' is twice",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_headers_say_what_is_wrong(name):
    contents, message = MALFORMED[name]
    with pytest.raises(FileError, match="no valid safetensors file") as raised:
        parsed(contents)
    assert message in str(raised.value)


def test_files_that_cannot_be_read(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(FileError, match="m: Is a directory"):
        read_header(folder, "m")
    os.close(folder)
    with pytest.raises(FileError, match="none: No such file"), open_sources(tmp_path / "none"):
        pass
    with pytest.raises(FileError, match=r"no model\.safetensors\.index"), open_sources(tmp_path):
        pass
    with pytest.raises(FileError, match="no file is named"), open_sources([]):
        pass


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_are_closed(tmp_path):
    file = tmp_path / "a.safetensors"
    make_file(file, {"x": ("F32", (2,))})
    before = open_descriptors()
    with open_sources([file]):
        assert open_descriptors() == before + 1
    bad = tmp_path / "b.safetensors"
    bad.write_bytes(b"")
    with pytest.raises(FileError), open_sources([file, bad]):
        pass
    assert open_descriptors() == before


def test_an_index_names_files_and_tensors(tmp_path):
    make_file(tmp_path / "1.safetensors", {"x": ("F32", (2,)), "y": ("U8", (3,))})
    make_file(tmp_path / "2.safetensors", {"z": ("F32", (2,)), "x": ("F32", (1,))})
    index = tmp_path / "model.safetensors.index.json"
    weights = {"x": "1.safetensors", "z": "2.safetensors"}
    index.write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    for path in (index, tmp_path, str(tmp_path)):
        with open_sources(path) as sources:
            actual = [
                (source.path.name, entry.name) for source in sources for entry in source.entries
            ]
        assert actual == [("1.safetensors", "x"), ("2.safetensors", "z")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "no index"),
        ("[]", "no weight_map"),
        ('{"weight_map": {}}', "no weight_map"),
        ('{"weight_map": {"a": "../secret"}}', "no name of a file"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "no name of a file"),
        ('{"weight_map": {"a": 3}}', "no name of a file"),
        ('{"weight_map": {"a": "1.safetensors"}}', "'a' is in the index, and not in the file"),
        ('{"weight_map": {"a": "2.safetensors"}}', "No such file"),
    ],
)
def test_malformed_indexes(tmp_path, content, message):
    make_file(tmp_path / "1.safetensors", {"x": ("F32", (2,))})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(content)
    with pytest.raises(FileError, match=message), open_sources(index):
        pass


def test_a_tensor_of_two_files_is_refused(tmp_path):
    for name in "ab":
        make_file(tmp_path / f"{name}.safetensors", {"x": ("F32", (2,))})
    message = r"'x' is in .*a.safetensors and in .*b.safetensors"
    with pytest.raises(FileError, match=message), open_sources(tmp_path):
        pass


def test_digests_tell_names_apart(tmp_path):
    digests = set()
    for number, name in enumerate(("x", "y", "\ud800", "\udc00")):  # halves of a character, too
        make_file(tmp_path / f"{number}.safetensors", {name: ("F32", (2,))})
        with open_sources(tmp_path / f"{number}.safetensors") as sources:
            digests.add(digest(sources))
    assert len(digests) == 4


def test_the_package_safetensors_reads_the_same(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="no package safetensors")
    import numpy as np

    arrays = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.zeros((0, 3), np.int8)}
    file = tmp_path / "m.safetensors"
    safetensors.save_file(arrays, file, {"format": "np"})
    with open_sources(file) as (source,):
        assert {entry.name: entry.shape for entry in source.entries} == {"a": (3, 4), "b": (0, 3)}
        assert source.header.metadata == {"format": "np"}
