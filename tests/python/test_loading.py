"""Tensors of safetensors files in memory of simulated GPUs: every byte, by which routes, and what
callers learn of files that cannot be loaded."""

from __future__ import annotations

import ctypes
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polypath
import pytest
from polypath import Context, DriverError, FileError, InvalidArgument, NotSupported
from polypath.gpu import Gpu
from safetensors_files import make_file
from simulated import Driver

#: Enough for several threads and links.
LARGE = {"a": ("BF16", (3, 1000, 1000)), "b": ("F32", (1 << 20,)), "c": ("F8_E4M3", (7,))}


@pytest.fixture(scope="module")
def context():
    with Context(node="narval", prepare="wait") as context:
        yield context


@pytest.fixture(scope="module")
def driver(context):
    return Driver(context.devices()["driver"]["library"])


@pytest.fixture
def contents_of(driver):
    """The bytes of a tensor in GPU memory."""

    def read(tensor) -> bytes:
        actual = np.full(max(1, tensor.nbytes), 0xEE, np.uint8)
        driver.use(tensor.gpu)
        if tensor.nbytes:
            size = ctypes.c_size_t(tensor.nbytes)
            address = ctypes.c_uint64(tensor.data_ptr())
            driver("cuMemcpy", ctypes.c_uint64(actual.ctypes.data), address, size)
            driver("cuStreamSynchronize", None)
        return actual.tobytes()[: tensor.nbytes]

    return read


def routes_to(gpu, counters):
    return {route["route"] for route in counters["routes"] if route["dst"] == gpu}


def test_read_async_copies_a_part_of_a_file(context, driver, tmp_path):
    contents = np.random.default_rng(3).integers(0, 256, 9 << 20, np.uint8)
    file = tmp_path / "data"
    file.write_bytes(contents.tobytes())
    gpu = Gpu(context, 1)
    address = gpu.allocate(8 << 20)
    before = context.counters()["files"]
    driver.use(1)
    with file.open("rb") as opened, gpu.streams(1) as (stream,):
        opened.seek(5)
        context.read_async(opened, address, 8 << 20, offset=77, stream=stream)
        assert opened.tell() == 5
        driver.synchronise(stream)
        with pytest.raises(FileError, match="fewer than"):
            context.read_async(opened, address, 8 << 20, offset=2 << 20, stream=stream)
        with pytest.raises(InvalidArgument, match="bytes is wanted"):
            context.read_async(opened.fileno(), address)
    with pytest.raises(InvalidArgument, match="not open for reading"), file.open("ab") as opened:
        context.read_async(opened, address, 4)
    actual = np.empty(8 << 20, np.uint8)
    size = ctypes.c_size_t(actual.nbytes)
    driver("cuMemcpy", ctypes.c_uint64(actual.ctypes.data), ctypes.c_uint64(address), size)
    driver("cuStreamSynchronize", None)
    assert np.array_equal(actual, contents[77 : 77 + (8 << 20)])
    counters = context.counters()
    assert counters["files"] == before + 1
    assert len(routes_to("gpu1", counters)) > 1, "links of several GPUs carry a part"
    gpu.free(address)


def test_tensors_are_those_of_the_file(context, contents_of, tmp_path):
    file = tmp_path / "m.safetensors"
    expected = make_file(file, LARGE, metadata={"format": "pt"}, pad=3)
    before = context.counters()
    tensors = polypath.load_file(file, "cuda:2", context=context)
    assert list(tensors) == list(LARGE)
    for name, tensor in tensors.items():
        assert contents_of(tensor) == expected[name]
        assert tensor.shape == LARGE[name][1]
        assert tensor.__dlpack_device__() == (2, 2)
    assert [tensor.dtype for tensor in tensors.values()] == ["bfloat16", "float32", "float8_e4m3fn"]
    after = context.counters()
    assert after["files"] > before["files"]
    assert len(routes_to("gpu2", after)) > 1, "links of several GPUs carry a part"


def test_odd_places_scalars_and_empty_tensors(context, contents_of, tmp_path):
    file = tmp_path / "m.safetensors"
    odd = {
        "flag": ("BOOL", ()),
        "odd": ("F64", (3, 5)),
        "none": ("I64", (0, 4)),
        "last": ("F16", (9,)),
    }
    expected = make_file(file, odd)
    tensors = polypath.load_file(str(file), "gpu0", context=context)
    assert {name: contents_of(tensor) for name, tensor in tensors.items()} == expected
    for name in ("odd", "last"):
        assert tensors[name].data_ptr() % 8 == 0
    interface = tensors["odd"].__cuda_array_interface__
    assert (interface["typestr"], interface["shape"]) == ("<f8", (3, 5))
    nothing = tmp_path / "n.safetensors"
    make_file(nothing, {})
    assert polypath.load_file(nothing, 0, context=context) == {}


def test_an_index_and_several_files(context, contents_of, tmp_path):
    expected = make_file(tmp_path / "1.safetensors", {"x": ("F32", (400_000,)), "y": ("U8", (3,))})
    expected |= make_file(tmp_path / "2.safetensors", {"z": ("F32", (2, 9))}, seed=2)
    weights = {"x": "1.safetensors", "z": "2.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    tensors = polypath.load_file(tmp_path, 1, context=context)
    assert {name: contents_of(tensor) for name, tensor in tensors.items()} == {
        name: expected[name] for name in weights
    }
    both = polypath.load_file(sorted(tmp_path.glob("*.safetensors")), 1, context=context)
    assert {name: contents_of(tensor) for name, tensor in both.items()} == expected


def test_dlpack_keeps_the_memory(context, contents_of, tmp_path, driver):
    from polypath import _dlpack

    file = tmp_path / "m.safetensors"
    expected = make_file(file, {"a": ("F32", (7, 3)), "b": ("F8_E4M3", (5,))})
    tensors = polypath.load_file(file, 0, context=context)
    description = _dlpack.describe(tensors["a"])
    assert (description.shape, description.bits) == ((7, 3), 32)
    assert description.address == tensors["a"].data_ptr()
    assert _dlpack.describe(tensors["b"]).bits == 8
    capsule = tensors["a"].__dlpack__()
    a = tensors.pop("a")
    address = a.data_ptr()
    del a, tensors
    again = polypath.load_file(file, 0, context=context)  # takes freed memory, if there is any
    assert again["a"].data_ptr() != address
    actual = np.empty(84, np.uint8)
    driver.use(0)
    driver(
        "cuMemcpy",
        ctypes.c_uint64(actual.ctypes.data),
        ctypes.c_uint64(address),
        ctypes.c_size_t(84),
    )
    driver("cuStreamSynchronize", None)
    assert actual.tobytes() == expected["a"]
    del capsule


def test_progress_says_all_bytes(context, tmp_path, capfd):
    file = tmp_path / "m.safetensors"
    expected = make_file(file, LARGE)
    seen = []
    size = sum(map(len, expected.values()))
    polypath.load_file(file, 0, context=context, progress=lambda *each: seen.append(each))
    assert seen[-1] == (size, size)
    polypath.load_file(file, 0, context=context, progress=True)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("device", "more", "error", "message"),
    [
        ("cuda:9", {}, InvalidArgument, "none of cuda:0 to cuda:3"),
        ("cpu", {}, InvalidArgument, "'cpu'"),
        (-1, {}, InvalidArgument, "'-1'"),
        (0, {"framework": "jax"}, InvalidArgument, "'jax'"),
        (0, {"dtype": "int8"}, InvalidArgument, "'int8' is no floating-point type"),
        (0, {"dtype": "float16"}, NotSupported, "dtype needs PyTorch"),
    ],
)
def test_arguments_that_are_refused(context, tmp_path, device, more, error, message):
    file = tmp_path / "m.safetensors"
    make_file(file, LARGE)
    with pytest.raises(error, match=message):
        polypath.load_file(
            file,
            device,
            context=context,
            framework="dlpack" if not more.get("framework") else more.pop("framework"),
            **more,
        )


def test_a_malformed_file_loads_nothing(context, tmp_path):
    good, bad = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    make_file(good, LARGE)
    make_file(bad, LARGE)
    os.truncate(bad, bad.stat().st_size - 1)
    before = context.counters()["transfers"]
    with pytest.raises(FileError, match="end at byte"):
        polypath.load_file([good, bad], 0, context=context)
    assert context.counters()["transfers"] == before
    bad.chmod(0)
    if os.geteuid() != 0:
        with pytest.raises(FileError, match="Permission denied"):
            polypath.load_file([good, bad], 0, context=context)


def test_a_file_that_is_truncated_meanwhile(context, tmp_path, monkeypatch):
    file = tmp_path / "m.safetensors"
    make_file(file, LARGE)
    read_async = Context.read_async

    def truncated(self, descriptor, *arguments, **named):
        os.truncate(file, 100_000)
        read_async(self, descriptor, *arguments, **named)

    monkeypatch.setattr(Context, "read_async", truncated)
    with pytest.raises(FileError, match="the file has 100000 bytes"):
        polypath.load_file(file, 0, context=context)


def test_several_loads_at_once(context, contents_of, tmp_path):
    """By threads: in virtual time they take turns."""
    files = [tmp_path / f"{n}.safetensors" for n in range(4)]
    expected = [make_file(file, LARGE, seed=n) for n, file in enumerate(files)]
    with ThreadPoolExecutor(4) as pool:
        loads = [
            pool.submit(polypath.load_file, file, n, context=context)
            for n, file in enumerate(files)
        ]
        tensors = [load.result() for load in loads]
    for loaded, of_file in zip(tensors, expected, strict=True):
        assert {name: contents_of(tensor) for name, tensor in loaded.items()} == of_file


def test_memory_goes_with_its_tensors(context, tmp_path):
    file = tmp_path / "m.safetensors"
    make_file(file, LARGE)

    def free_bytes() -> int:
        return context.devices()["devices"][0]["free_bytes"]

    polypath.load_file(file, 0, context=context)
    before = free_bytes()
    tensors = polypath.load_file(file, 0, context=context)
    assert free_bytes() < before
    last = tensors.pop("c")
    del tensors
    assert free_bytes() < before
    del last
    assert free_bytes() == before


def test_out_of_memory_is_the_drivers_error(context, tmp_path, monkeypatch):
    file = tmp_path / "m.safetensors"
    make_file(file, LARGE)

    def none_left(self, bytes):
        raise DriverError("cuMemAlloc_v2 failed: CUDA error 2")

    monkeypatch.setattr(Gpu, "allocate", none_left)
    with pytest.raises(DriverError, match="cuMemAlloc"):
        polypath.load_file(file, 0, context=context)


_FORK = """
import os, signal, sys
sys.path.insert(0, {here!r})
import polypath
from safetensors_files import make_file
from pathlib import Path

file = Path("m.safetensors")
make_file(file, {{"a": ("F32", (1 << 20,))}})
context = polypath.Context(node="narval", prepare="wait")
tensors = polypath.load_file(file, 0, context=context)
child = os.fork()
if child == 0:
    signal.alarm(60)
    del tensors  # the parent's
    try:
        polypath.load_file(file, 0, context=context)
    except polypath.PolypathError as error:
        os._exit(3)
    os._exit(4)
_, status = os.waitpid(child, 0)
assert os.WIFEXITED(status) and os.WEXITSTATUS(status) in (3, 4), status
polypath.load_file(file, 0, context=context)
print("loaded again")
"""


def test_a_forked_child_does_not_hang(polypath_program):
    here = str(Path(__file__).parent)
    done = polypath_program(_FORK.format(here=here))
    assert done.returncode == 0, done.stderr
    assert "loaded again" in done.stdout


_RANKS = """
import ctypes, os, sys
sys.path.insert(0, {here!r})
from pathlib import Path
import polypath
from polypath.comm import Communicator, on_all
from polypath.loading import load
from safetensors_files import make_file

load._RANK_PIECE = 8 << 20  # several pieces, by copy threads
file = Path("m.safetensors")
shapes = {{"a": ("BF16", (4, 5000, 2000)), "odd": ("U8", (3,)), "b": ("F32", (8, 70_000)),
          "c": ("F64", (5, 5))}}
expected = make_file(file, shapes)
context = polypath.Context(node="narval", prepare="wait", copy_threads=16)
driver = ctypes.CDLL(context.devices()["driver"]["library"])
ranks = Communicator.all(context, range(4))

def contents(tensor):
    primary = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(primary), tensor.gpu)
    driver.cuCtxSetCurrent(primary)
    actual = ctypes.create_string_buffer(b"\\xee" * tensor.nbytes, tensor.nbytes)
    assert driver.cuMemcpy(ctypes.c_uint64(ctypes.addressof(actual)),
                           ctypes.c_uint64(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes)) == 0
    assert driver.cuStreamSynchronize(None) == 0
    return actual.raw
"""

_WHOLE = (
    _RANKS
    + """
def everything(comm):
    seen = []
    tensors = polypath.load_sharded(file, comm, progress=lambda *each: seen.append(each))
    assert list(tensors) == list(shapes)
    for name, tensor in tensors.items():
        assert contents(tensor) == expected[name], name
        assert tensor.gpu == comm.gpu()
    size = sum(map(len, expected.values()))
    assert seen[-1] == (size, size), seen

    # Each its part, by dimension 0; the rest whole.
    split = lambda name, shape: 0 if name in ("a", "b") else None
    tensors = polypath.load_sharded([file], comm, split=split)
    for name, (_, shape) in shapes.items():
        whole = expected[name]
        if name in ("a", "b"):
            of_rank = len(whole) // 4
            assert contents(tensors[name]) == whole[comm.rank * of_rank:][:of_rank], name
            assert tensors[name].shape == (shape[0] // 4, *shape[1:])
        else:
            assert contents(tensors[name]) == whole, name

before = context.counters()["bytes"]
on_all(ranks, everything)
routes = context.counters()["routes"]
for n in range(4):
    assert any(each["src"] == "host0" and each["dst"] == f"gpu{{n}}" for each in routes)
print("all arrived")
"""
)


@pytest.mark.parametrize("mode", ["virtual", "functional"])
def test_ranks_get_all_or_their_part(polypath_program, mode):
    done = polypath_program_with(polypath_program, _WHOLE, mode)
    assert done.returncode == 0, done.stderr
    assert "all arrived" in done.stdout


_ORDER = (
    _RANKS
    + """
import threading
from polypath.gpu import Gpu

local = threading.local()

def noted(kind, method, streams):
    def call(self, *arguments, **named):
        if hasattr(local, "events"):
            local.events.append((kind, *streams(*arguments, **named)))
        return method(self, *arguments, **named)
    return call

Gpu.order = noted("order", Gpu.order, lambda before, after: (before, after))
polypath.Context.read_async = noted(
    "read", polypath.Context.read_async, lambda *_, stream, **__: (stream,))
Communicator.all_gather = noted(
    "gather", Communicator.all_gather, lambda *arguments: (arguments[4],))

def body(comm):
    local.events = []
    tensors = polypath.load_sharded(file, comm)
    assert all(contents(tensor) == expected[name] for name, tensor in tensors.items())
    return local.events

for events in on_all(ranks, body):
    gathers = [at for at, event in enumerate(events) if event[0] == "gather"]
    assert len(gathers) > 2
    for at in gathers:  # each waits for the read of its piece, and no rank waits on the host
        read, order, gather = events[at - 2 : at + 1]
        assert read[0] == "read" and order == ("order", read[1], gather[1]), events
    last = events[gathers[-1] + 1 :]
    assert any(event[:2] == ("order", events[gathers[-1]][1]) for event in last), events
    assert len({{event[1] for event in events if event[0] == "read"}}) == 2, "in turn"
print("in order")
"""
)


def test_an_all_gather_waits_for_its_piece(polypath_program):
    """By the calls: the simulated node's copies have ended by then, even if nothing waits."""
    done = polypath_program_with(polypath_program, _ORDER, "functional")
    assert done.returncode == 0, done.stderr
    assert "in order" in done.stdout


_FAILING = (
    _RANKS
    + """
read_async = polypath.Context.read_async
other = Path("other.safetensors")
make_file(other, {{"a": ("F32", (9,))}})



def refused(error, words, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except error as raised:
        assert words in str(raised), raised
    else:
        raise AssertionError(words)


import threading
local = threading.local()

def read_of_rank(self, descriptor, dst, **named):
    if local.rank == 2 and named["offset"] > 2_000_000:
        raise polypath.FileError("no luck")
    read_async(self, descriptor, dst, **named)

def body(comm):
    local.rank = comm.rank
    load_of = lambda path, **named: lambda: polypath.load_sharded(path, comm, **named)
    both = (polypath.FileError, polypath.CommunicatorError)
    missing = Path("none.safetensors") if comm.rank == 1 else file
    words = "No such file" if comm.rank == 1 else "rank 1 could not load"
    refused(both, words, load_of(missing))
    refused(polypath.InvalidArgument, "names other files", load_of(other if comm.rank else file))
    refused((polypath.InvalidArgument, polypath.CommunicatorError), "", load_of(
        file, split=lambda name, shape: 0))
    words = "no luck" if comm.rank == 2 else "rank 2 could not load"
    comm.exchange(b"x")
    polypath.Context.read_async = read_of_rank
    comm.exchange(b"x")
    refused(both, words, load_of(file))
    comm.exchange(b"x")
    polypath.Context.read_async = read_async
    comm.exchange(b"x")
    tensors = polypath.load_sharded(file, comm)  # it is usable still
    assert all(contents(tensor) == expected[name] for name, tensor in tensors.items())

on_all(ranks, body)
print("all refused")
"""
)


def test_failures_of_one_rank_are_those_of_all(polypath_program):
    done = polypath_program_with(polypath_program, _FAILING, "functional")
    assert done.returncode == 0, done.stderr
    assert "all refused" in done.stdout


_TORCH = (
    _RANKS
    + """
sys.path.insert(0, os.path.join({here!r}, "torch_standin"))
import numpy as np
import torch

library = context.devices()["driver"]["library"]
torch.cuda.use(library, 1)
make_file(file, {{"a": ("F32", (8, 70_000)), "flag": ("BOOL", ()), "odd": ("F16", (6, 5)),
                 "whole": ("I64", (3,))}}, seed=5)
plain = polypath.load_file(file, "cuda:1", context=context, framework="dlpack")

def bits(tensor):
    return tensor.numpy().tobytes()

tensors = polypath.load_file(file, torch.device("cuda", 1), context=context, framework="torch")
for name, tensor in tensors.items():
    assert bits(tensor) == contents(plain[name]), name
    assert tuple(tensor.shape) == plain[name].shape
    assert tensor.dtype.name == plain[name].dtype
    assert tensor.device.index == 1

torch.cuda.use(library, 1)
half = polypath.load_file(file, 1, context=context, framework="torch", dtype=torch.float16)
assert [tensor.dtype.name for tensor in half.values()] == ["float16", "bool", "float16", "int64"]
with np.errstate(all="ignore"):
    expected_half = tensors["a"].numpy().astype(np.float16)
assert bits(half["a"]) == expected_half.tobytes()
assert bits(half["odd"]) == bits(tensors["odd"])

strange = Path("strange.safetensors")
make_file(strange, {{"x": ("F8_E5M2", (4,))}})
try:
    polypath.load_file(strange, 1, context=context, framework="torch")
except polypath.NotSupported as error:
    assert "no tensor of F8_E5M2" in str(error)
else:
    raise AssertionError("the stand-in has no such type")

whole = tensors["a"].numpy()

def everything(comm):
    torch.cuda.use(library, comm.gpu())
    split = lambda name, shape: {{"a": 1, "whole": None}}.get(name)
    tensors = polypath.load_sharded(file, comm, split=split, framework="torch")
    part = whole[:, comm.rank * 17_500 : (comm.rank + 1) * 17_500]
    assert bits(tensors["a"]) == np.ascontiguousarray(part).tobytes()
    assert bits(tensors["odd"]) == contents(plain["odd"])

on_all(ranks, everything)
print("as PyTorch has them")
"""
)


def test_tensors_of_pytorch(polypath_program):
    """By a stand-in: no PyTorch works on a simulated GPU."""
    done = polypath_program_with(polypath_program, _TORCH, "functional")
    assert done.returncode == 0, done.stderr
    assert "as PyTorch has them" in done.stdout


def polypath_program_with(run, program: str, mode: str):
    here = str(Path(__file__).parent)
    text = f"import os\nos.environ['POLYPATH_SIM_MODE'] = {mode!r}\n" + program.format(here=here)
    return run(text)
