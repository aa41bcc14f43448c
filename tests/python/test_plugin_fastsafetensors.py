"""The copier of fastsafetensors on a simulated GPU: with the real package where it is installed,
else with a stand-in for its interface."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent

_PROGRAM = """
import ctypes, importlib.util, os, sys, types
sys.path.insert(0, {here!r})
try:
    from fastsafetensors.copier.base import CopierInterface
except ImportError:
    for name in [name for name in sys.modules if name.startswith("fastsafetensors")]:
        del sys.modules[name]
    sys.path.insert(0, os.path.join({here!r}, "serving_standin"))
from pathlib import Path
import fastsafetensors
import polypath
from polypath.gpu import Gpu
from polypath.plugins import fastsafetensors as plugin
from fastsafetensors.copier import create_copier_constructor
from fastsafetensors.copier.registry import _copier_registry
from fastsafetensors.st_types import Device, DeviceType, DType
from safetensors_files import make_file
from polypath.loading.header import read_header

print("version", fastsafetensors.__version__)
assert fastsafetensors.__version__ in plugin.VERSIONS
file = Path("m.safetensors")
expected = make_file(file, {{"a": ("F32", (1000, 6000)), "b": ("BF16", (7,))}})
context = polypath.Context(node="narval", prepare="wait", copy_threads=16)
gpu = Gpu(context, 1)
driver = ctypes.CDLL(context.devices()["driver"]["library"])
device = Device(DeviceType.CUDA, 1)
descriptor = os.open(file, os.O_RDONLY)
header = read_header(descriptor, "m")

class Block:
    def __init__(self, address):
        self.address = address
    def get_base_address(self):
        return self.address

class Framework:
    blocks = 0
    def get_name(self):
        return "a test"
    def alloc_tensor_memory(self, length, device):
        assert length == header.data_bytes
        self.blocks += 1
        return Block(gpu.allocate(length))
    def free_tensor_memory(self, block, device):
        self.blocks -= 1
        gpu.free(block.address)

def contents(address, count):
    gpu("cuCtxSetCurrent", gpu._primary)
    data = ctypes.create_string_buffer(b"\\xee" * count, count)
    to = ctypes.c_uint64(ctypes.addressof(data))
    assert driver.cuMemcpy(to, ctypes.c_uint64(address), ctypes.c_size_t(count)) == 0
    assert driver.cuStreamSynchronize(None) == 0
    return data.raw

class Metadata:
    src = str(file)
    header_length = header.data_offset
    size_bytes = header.data_offset + header.data_bytes
    def get_tensors(self, gbuf, device, copy_start_offset, dtype):
        assert copy_start_offset == self.header_length and dtype == DType.F32
        return {{entry.name: contents(gbuf.address + entry.begin, entry.bytes)
                for entry in reversed(header.entries)}}  # what comes last may be missing

framework = Framework()
construct = create_copier_constructor("polypath", device, context=context, bbuf_size_kb=1)
for block_size in (1 << 34, 10_000_000):
    before = context.counters()
    copier = construct(Metadata(), device, framework)
    block = copier.submit_io(True, block_size)
    assert copier.wait_io(block, DType.F32, False) == expected
    after = context.counters()
    assert after["files"] > before["files"]
assert any("via" in route["route"] for route in context.counters()["routes"])
assert framework.blocks == 2

# A file that is shorter meanwhile: the error is told, and the block is the framework's again.
os.truncate(file, Metadata.size_bytes - 1)
try:
    construct(Metadata(), device, framework).submit_io(True, 1 << 34)
except polypath.FileError as error:
    assert "bytes" in str(error)
else:
    raise AssertionError("it was read")
assert framework.blocks == 2

cpu = Device(DeviceType.CPU)
try:
    create_copier_constructor("polypath", cpu)
except polypath.NotSupported:
    pass
else:
    raise AssertionError("it copies to GPUs only")

plugin.install()
replaced = create_copier_constructor("nogds", device, context=context, max_threads=3)
assert isinstance(replaced(Metadata(), device, framework), plugin.PolypathCopier)
print("copied")
"""


def test_files_are_copied(polypath_program):
    done = polypath_program(_PROGRAM.format(here=str(_HERE)))
    assert done.returncode == 0, done.stderr
    assert "copied" in done.stdout


def test_without_the_package_its_name_is_in_the_error(polypath_program):
    done = polypath_program("import polypath.plugins.fastsafetensors")
    if done.returncode == 0:
        pytest.skip("fastsafetensors is installed")
    assert "No module named 'fastsafetensors'" in done.stderr
