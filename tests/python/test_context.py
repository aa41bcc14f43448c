"""The Python API on the simulated node narval: copies, plans, counters, errors."""

import ctypes
import gc
import warnings
from pathlib import Path

import numpy as np
import pytest
from polypath import Context, InvalidArgument, Request, Transfer, settings, version
from simulated import DeviceArray, Driver

SIZE = 8 << 20
TWO_GPUS = Path(__file__).parent / "two_gpus.toml"


@pytest.fixture(scope="module")
def context():
    with Context(node="narval") as created:
        created.prepare("gpu0", "gpu1", SIZE)
        created.group_prepare([("gpu0", "gpu1", SIZE), ("gpu1", "gpu0", SIZE)])
        yield created


@pytest.fixture(scope="module")
def driver(context):
    return Driver(context.devices()["driver"]["library"])


@pytest.fixture
def random():
    generator = np.random.default_rng(1)
    return lambda: generator.integers(0, 256, SIZE, dtype=np.uint8)


def test_copies_between_gpus(context, driver, random):
    contents = random()
    dst = DeviceArray(driver, 1, np.zeros_like(contents))
    src = DeviceArray(driver, 0, contents)
    stream = driver.stream()
    context.reset_counters()
    context.copy_async(dst, src, stream=stream)
    driver.synchronise(stream)
    assert np.array_equal(dst.numpy(), contents)
    counters = context.counters()
    assert counters["transfers"] == counters["split"] == 1
    assert counters["bytes"] == SIZE
    assert {route["route"] for route in counters["routes"]} >= {"direct", "via gpu2", "via gpu3"}


def test_copies_from_and_to_pinned_host_memory(context, driver, random):
    contents = random()
    device = DeviceArray(driver, 0, np.zeros_like(contents))
    sent, received = driver.pinned(SIZE), driver.pinned(SIZE)
    sent[:] = contents
    stream = driver.stream()
    context.copy_async(device, sent, stream=stream)
    context.copy_async(received, device, stream=stream)
    driver.synchronise(stream)
    assert np.array_equal(received, contents)


def test_copies_a_part_by_address(context, driver, random):
    contents = random()
    dst = DeviceArray(driver, 1, np.zeros_like(contents))
    src = DeviceArray(driver, 0, contents)
    stream = driver.stream()
    context.copy_async(dst.address + 100, src.address + 7, 1000, stream)
    driver.synchronise(stream)
    expected = np.zeros_like(contents)
    expected[100:1100] = contents[7:1007]
    assert np.array_equal(dst.numpy(), expected)


def test_copies_a_group(context, driver, random):
    ping, pong = random(), random()
    on_1 = DeviceArray(driver, 1, np.zeros_like(ping))
    from_1 = DeviceArray(driver, 1, pong)
    second = driver.stream()
    on_0 = DeviceArray(driver, 0, np.zeros_like(pong))
    from_0 = DeviceArray(driver, 0, ping)
    first = driver.stream()
    context.group_copy_async([Transfer(on_1, from_0, stream=first), (on_0, from_1, SIZE, second)])
    driver.synchronise(first)
    driver.synchronise(second)
    assert np.array_equal(on_1.numpy(), ping)
    assert np.array_equal(on_0.numpy(), pong)


def test_both_names_of_the_default_stream_are_one_stream(context, driver, random):
    contents = random()
    legacy = 1
    on_0 = DeviceArray(driver, 0, contents)
    on_1 = DeviceArray(driver, 1, np.zeros_like(contents))
    part = DeviceArray(driver, 1, np.zeros(1 << 16, np.uint8))
    context.group_copy_async([(on_1, on_0, SIZE, None), (part, on_1, 1 << 16, legacy)])
    driver.synchronise(None)
    assert np.array_equal(on_1.numpy(), contents)
    assert np.array_equal(part.numpy(), contents[: 1 << 16])


def test_nothing_is_done_for_no_bytes(context):
    context.reset_counters()
    context.copy_async(0, 0, 0)
    context.group_copy_async([])
    assert context.counters()["copies"] == 0


def test_sizes_have_to_fit(context, driver):
    small = DeviceArray(driver, 0, np.zeros(10, dtype=np.uint8))
    large = DeviceArray(driver, 0, np.zeros(20, dtype=np.uint8))
    with pytest.raises(InvalidArgument, match="dst has 20 bytes and src 10: give bytes"):
        context.copy_async(large, small)
    with pytest.raises(InvalidArgument, match="src has 10 bytes, fewer than 11"):
        context.copy_async(large, small, 11)
    with pytest.raises(InvalidArgument, match="bytes: -1 is not allowed: 0 to"):
        context.copy_async(large, small, -1)
    with pytest.raises(InvalidArgument, match="bytes is needed"):
        context.copy_async(large.address, small.address)
    with pytest.raises(InvalidArgument, match=r"transfers\[1\]: src has 10 bytes"):
        context.group_copy_async([(large, small, 1), (large, small, 11)])


def test_read_only_memory_is_no_destination(context):
    array = np.zeros(10)
    array.flags.writeable = False
    with pytest.raises(InvalidArgument, match="dst is read-only"):
        context.copy_async(array, np.zeros(10))


def test_the_library_names_an_address_that_is_not_usable(context, driver):
    device = DeviceArray(driver, 0, np.zeros(1000, dtype=np.uint8))
    with pytest.raises(InvalidArgument, match="src"):
        context.copy_async(device.address, 0, 1000)
    with pytest.raises(InvalidArgument, match="dst"):
        context.copy_async(device.address, np.zeros(1 << 24, dtype=np.uint8), 1 << 24)


def test_plans(context):
    plan = context.plan("gpu0", "gpu1", "64M")
    assert plan == context.group_plan([Request("gpu0", "gpu1", 64 << 20)])
    assert plan["bytes"] == 64 << 20
    both = context.group_plan([("gpu0", "gpu1", SIZE), ("gpu1", "gpu0", SIZE)])
    assert [transfer["src"] for transfer in both["transfers"]] == ["gpu0", "gpu1"]


@pytest.mark.parametrize("size", [-1, 1 << 64])
def test_sizes_that_no_address_space_has(context, size):
    with pytest.raises(InvalidArgument, match="bytes"):
        context.plan("gpu0", "gpu1", size)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ((0, "gpu1", "1M"), "src: 0 is no text"),
        (("gpu0", b"gpu1", "1M"), "dst: b'gpu1' is no text"),
        (("gpu0\0x", "gpu1", "1M"), "null character"),
        (("gpu0", "gpu1", "64X"), "bytes: '64X' is not"),
        (("gpu0", "gpu1"), "is no request"),
        ("gpu", "is no request"),
    ],
)
def test_what_is_no_request(context, request_, words):
    with pytest.raises(InvalidArgument, match=words):
        context.group_plan([request_])


def test_what_is_no_transfer(context):
    with pytest.raises(InvalidArgument, match=r"transfers\[0\]: 1 is no transfer"):
        context.group_copy_async([1])


def test_an_exception_of_the_progress_comes_back(polypath_program):
    done = polypath_program(
        "import polypath, sys\n"
        "calls = []\n"
        "def progress(done, total, what):\n"
        "    calls.append((done, total, what))\n"
        "    raise KeyError('of the caller')\n"
        "with polypath.Context(node=sys.argv[1]) as context:\n"
        "    try:\n"
        "        context.measure(progress)\n"
        "    except KeyError as error:\n"
        "        print(error, len(calls), calls[0][0])\n",
        str(TWO_GPUS),
    )
    assert done.stdout == "'of the caller' 1 0\n", done.stderr


def test_settings_have_an_origin():
    with Context(node="narval", routes=["direct", "gpu"], chunks=4, max_routes=None) as context:
        by_name = {setting["name"]: setting for setting in context.settings()}
    assert by_name["routes"]["value"] == "direct,gpu"
    assert by_name["chunks"]["origin"] == "argument"
    assert by_name["max_routes"]["origin"] == "default"
    assert {setting["name"] for setting in settings()} == set(by_name)


@pytest.mark.parametrize("wrong", [{"chunks": 0}, {"speed": "high"}, {"routes": "sea"}])
def test_settings_that_are_not_allowed(wrong):
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Context(node="narval", **wrong)


def test_a_closed_context_says_so():
    context = Context(node="narval")
    context.close()
    context.close()
    with pytest.raises(InvalidArgument, match="closed"):
        context.topology()


def test_a_forgotten_context_warns():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Context(node="narval")
        gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning]


def test_version():
    assert [int(part) >= 0 for part in version().split(".")] == [True] * 3


class Properties(ctypes.Structure):
    """CUmemAllocationProp of memory on GPU 0."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int),
        ("location_id", ctypes.c_int),
        ("unused", ctypes.c_uint64 * 2),
    ]


class AccessRule(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [
        ("location_type", ctypes.c_int),
        ("location_id", ctypes.c_int),
        ("flags", ctypes.c_int),
    ]


def test_shared_mapping_takes_every_route(context, driver, random):
    contents = random()
    context.group_prepare([("host0", "gpu0", SIZE), ("gpu0", "host0", SIZE)])
    address, handle = ctypes.c_uint64(), ctypes.c_uint64()
    length = ctypes.c_size_t(SIZE)
    properties = Properties(type=1, location_type=1)
    own = AccessRule(1, 0, 3)
    driver("cuMemCreate", ctypes.byref(handle), length, ctypes.byref(properties), 0)
    driver("cuMemAddressReserve", ctypes.byref(address), length, 0, 0, 0)
    driver("cuMemMap", address, length, 0, handle, 0)
    driver("cuMemSetAccess", address, length, ctypes.byref(own), 1)
    sent, received = driver.pinned(SIZE), driver.pinned(SIZE)
    sent[:], received[:] = contents, 0xEE
    stream = driver.stream()
    context.share_mapping(address.value, SIZE)
    context.reset_counters()
    context.copy_async(address.value, sent, SIZE, stream=stream)
    context.copy_async(received, address.value, SIZE, stream=stream)
    driver.synchronise(stream)
    assert np.array_equal(received, contents)
    counters = context.counters()
    assert counters["split"] == 2
    assert counters["shared_mappings"]["granted"] > 0
    assert counters["shared_mappings"]["refused"] == 0
    assert 0 < counters["pinned"]["bytes"] <= counters["pinned"]["limit_bytes"] == 256 << 20
    assert any(
        route["src"] == "host0" and route["route"].startswith("via gpu")
        for route in counters["routes"]
    )
    context.unshare_mapping(address.value, SIZE)
    driver("cuMemUnmap", address, length)


def test_only_mapped_memory_is_shared(context, driver, random):
    with pytest.raises(InvalidArgument, match="cuMemMap"):
        context.share_mapping(DeviceArray(driver, 0, random()))
    with pytest.raises(InvalidArgument, match="bytes is missing"):
        context.share_mapping(4096)
