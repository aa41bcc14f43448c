"""From objects that hold memory to addresses and sizes."""

import ctypes
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polypath.buffers import Buffer, as_buffer, covered, require_contiguous
from polypath.errors import InvalidArgument


class CudaArray:
    """An array as CuPy and Numba present theirs."""

    def __init__(self, shape, typestr="<f4", strides=None, read_only=False, **more):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (0x7F0000000000, read_only),
            "strides": strides,
            "version": 3,
            **more,
        }


class Tensor:
    """A tensor as PyTorch presents its own."""

    def __init__(self, elements, contiguous=True):
        self._elements = elements
        self._contiguous = contiguous

    def data_ptr(self):
        return 0x7F0000001000

    def numel(self):
        return self._elements

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self._contiguous


class OnlyDlpack:
    """A NumPy array that shows only DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)


class OldDlpack(OnlyDlpack):
    """As OnlyDlpack, from before DLPack 1.0."""

    def __dlpack__(self, *, stream=None):
        return self._array.__dlpack__(stream=stream)


def test_an_address_has_no_size():
    assert as_buffer(0x1000) == Buffer(0x1000, None)
    assert as_buffer(ctypes.c_void_p(0x1000)) == Buffer(0x1000, None)
    assert as_buffer(ctypes.c_void_p()) == Buffer(0, None)


def test_a_buffer_stays_as_it_is():
    buffer = Buffer(0x1000, 64)
    assert as_buffer(buffer) is buffer


def test_ctypes_memory():
    array = (ctypes.c_double * 10)()
    assert as_buffer(array) == Buffer(ctypes.addressof(array), 80)


def test_tensor():
    assert as_buffer(Tensor(100)) == Buffer(0x7F0000001000, 200)
    with pytest.raises(InvalidArgument, match=r"dst: not C-contiguous; call \.contiguous\(\)"):
        as_buffer(Tensor(100, contiguous=False), "dst")


@pytest.mark.parametrize(
    ("array", "size"),
    [
        (CudaArray((4, 5)), 80),
        (CudaArray((4, 5), strides=(20, 4)), 80),
        (CudaArray((1, 5), strides=(999, 4)), 20),
        (CudaArray((4, 0), strides=(7, 7)), 0),
        (CudaArray((), typestr="|u1"), 1),
        (CudaArray((3,), typestr="<c16"), 48),
    ],
)
def test_cuda_array(array, size):
    assert as_buffer(array) == Buffer(0x7F0000000000, size)


def test_cuda_array_that_may_not_be_written():
    assert as_buffer(CudaArray((4,), read_only=True)).read_only


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (CudaArray((4, 5), strides=(40, 4)), r"src: not C-contiguous \(shape \(4, 5\), strides"),
        (CudaArray((4, 5), strides=(4, 16)), "not C-contiguous"),
        (CudaArray((4, 5), mask=object()), "mask"),
    ],
)
def test_refuses_cuda_arrays_that_are_not_one_block(array, why):
    with pytest.raises(InvalidArgument, match=why):
        as_buffer(array, "src")


def test_numpy():
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert as_buffer(array) == Buffer(array.ctypes.data, 48)
    assert as_buffer(array[1:]) == Buffer(array.ctypes.data + 16, 32)
    array.flags.writeable = False
    assert as_buffer(array).read_only


class Presents:
    def __init__(self, **interface):
        self.__cuda_array_interface__ = interface


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (np.zeros(4, dtype=object), "elements of type '|O'"),
        (Presents(shape=(4,), typestr="zz", data=(4096, False)), "elements of type 'zz'"),
        (Presents(shape=(4,), data=(4096, False)), "no typestr"),
        (Presents(typestr="<f4", data=(4096, False)), "no shape"),
        (Presents(shape=(4,), typestr="<f4"), "no data"),
    ],
)
def test_refuses_what_does_not_say_its_bytes(memory, words):
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        as_buffer(memory)


@pytest.mark.parametrize("view", [np.s_[:, ::2], np.s_[:, 1:], np.s_[::-1]])
def test_refuses_numpy_views_with_gaps(view):
    array = np.zeros((3, 4))
    with pytest.raises(InvalidArgument, match="not C-contiguous"):
        as_buffer(array[view])
    with pytest.raises(InvalidArgument, match="not C-contiguous"):
        as_buffer(OnlyDlpack(array[view]))


@pytest.mark.parametrize("kind", [OnlyDlpack, OldDlpack])
def test_dlpack(kind):
    array = np.arange(24, dtype=np.int16).reshape(4, 6)
    assert as_buffer(kind(array)) == Buffer(array.ctypes.data, 48)
    assert as_buffer(kind(array[2:])) == Buffer(array.ctypes.data + 24, 24)
    assert as_buffer(kind(np.zeros((0, 3)))).bytes == 0


def test_dlpack_says_what_may_not_be_written():
    array = np.zeros(4)
    array.flags.writeable = False
    assert as_buffer(OnlyDlpack(array)).read_only


def test_dlpack_gives_the_export_back():
    array = np.zeros(1000)
    before = ctypes.c_ssize_t.from_address(id(array)).value
    for _ in range(10):
        as_buffer(OnlyDlpack(array))
    assert ctypes.c_ssize_t.from_address(id(array)).value == before


@pytest.mark.parametrize("memory", [None, "text", 1.5, True, b"bytes", [1, 2]])
def test_refuses_objects_without_memory(memory):
    for kind in (TypeError, InvalidArgument):
        with pytest.raises(kind, match=r"dst: .* holds no memory"):
            as_buffer(memory, "dst")


@given(
    st.lists(st.integers(0, 4), max_size=4).map(tuple),
    st.permutations(range(4)),
    st.lists(st.integers(1, 2), min_size=4, max_size=4),
)
def test_agrees_with_numpy_about_contiguity(shape, order, steps):
    axes = [axis for axis in order if axis < len(shape)]
    array = np.zeros([2 * length for length in shape], dtype=np.int32).transpose(axes)
    array = array[tuple(slice(None, None, step) for step in steps[: len(shape)])]
    if array.flags.c_contiguous:
        require_contiguous(array.shape, array.strides, 4, "array")
    else:
        with pytest.raises(InvalidArgument):
            require_contiguous(array.shape, array.strides, 4, "array")


def test_characters_of_text_have_four_bytes():
    array = np.array(["abcd", "efgh"])
    assert as_buffer(array).bytes == array.nbytes == 32
    assert as_buffer(np.array([b"abcd"])).bytes == 4


def test_storages_say_their_size_by_a_method():
    class Storage:
        def data_ptr(self):
            return 0x7000

        def nbytes(self):
            return 48

    assert as_buffer(Storage()) == Buffer(0x7000, 48)


def test_covered_bytes_are_checked():
    array = np.arange(10, dtype="int32")
    assert covered(array, "src") == (array.ctypes.data, 40)
    assert covered(array, "src", 8) == (array.ctypes.data, 8)
    assert covered(0x7000, "src", 8) == (0x7000, 8)
    with pytest.raises(InvalidArgument, match="src has 40 bytes, fewer than 41"):
        covered(array, "src", 41)
    with pytest.raises(InvalidArgument, match="src has no size, so bytes is wanted"):
        covered(0x7000, "src")
    array.flags.writeable = False
    assert covered(array, "src")[1] == 40
    with pytest.raises(InvalidArgument, match="recv is read-only"):
        covered(array, "recv", writes=True)
