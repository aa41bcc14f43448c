"""vLLM's offloading of KV caches by polypath: on a simulated GPU, over the part of vLLM's interface
that the plug-in is written for. Where vLLM is installed, its own classes are compared with that
part."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

_HERE = Path(__file__).parent

_PROGRAM = """
import array, ctypes, os, random, sys
sys.path[:0] = [os.path.join({here!r}, "serving_standin"), os.path.join({here!r}, "torch_standin")]
import polypath
import torch
from polypath.gpu import Gpu
from polypath.plugins import vllm as plugin

context = polypath.Context(node="narval", prepare="wait")
plugin.shared_context = lambda: context
gpu = Gpu(context, 0)
library = context.devices()["driver"]["library"]
driver = ctypes.CDLL(library)
torch.cuda.use(library, 0)
PAGE, COUNT = 4096, 600
pinned = ctypes.c_void_p()
assert driver.cuMemHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(PAGE * COUNT), 1) == 0
device = gpu.allocate(PAGE * COUNT)
order = list(range(COUNT))
random.Random(1).shuffle(order)

def stock(src, dst, sizes, is_src_access_order_any=False):
    stock.calls.append(is_src_access_order_any)

stock.calls = []
spec = plugin.PolypathOffloadingSpec({{"replicated_layout": False, "swap": stock}})
worker = spec.create_worker(None)
stream = torch.cuda.Stream()

def words(values):
    return array.array("q", values)

sizes = words([PAGE] * COUNT)
host = words(pinned.value + PAGE * place for place in order)
blocks = words(device + PAGE * at for at in range(COUNT))
contents = random.Random(2).randbytes(PAGE * COUNT)
ctypes.memmove(pinned, contents, len(contents))
assert worker._load_handler.transfer_async(host, blocks, sizes, stream)
driver.cuStreamSynchronize(ctypes.c_void_p(stream.cuda_stream))
ctypes.memset(pinned, 0xEE, len(contents))
# Back, to the places where they came from.
assert worker._store_handler.transfer_async(blocks, host, sizes, stream)
assert driver.cuStreamSynchronize(ctypes.c_void_p(stream.cuda_stream)) == 0
assert ctypes.string_at(pinned, len(contents)) == contents
batches = context.counters()["batches"]
assert batches["calls"] == 2 and stock.calls == [], (batches, stock.calls)

# What polypath refuses is vLLM's.
wrong = words([0] * COUNT)
worker._expedited_load_handler.transfer_async(wrong, blocks, sizes, stream)
worker._store_handler.transfer_async(blocks, wrong, sizes, stream)
assert stock.calls == [True, False]

# The hook of replicated layouts.
class Spread(plugin.PolypathOffloadingSpec):
    def copier(self, context, stock, gpu_to_cpu):
        if self.replicated_layout and not gpu_to_cpu:
            return "all together"
        return super().copier(context, stock, gpu_to_cpu)

worker = Spread({{"replicated_layout": True, "swap": stock}}).create_worker(None)
assert worker._load_handler._swap_blocks_batch == "all together"
assert isinstance(worker._store_handler._swap_blocks_batch, plugin.BlockCopier)

# No GPU of polypath's: the worker is vLLM's as it is.
def none():
    raise polypath.NoDevice("none here")

plugin.shared_context = none
worker = spec.create_worker(None)
assert worker._load_handler._swap_blocks_batch is stock

# A worker that is not of this version.
plugin.shared_context = lambda: context
from vllm.v1.kv_offload.cpu import spec as stock_spec

class Other:
    def __init__(self, swap):
        self.is_shut_down = False
        others.append(self)
    def shutdown(self):
        self.is_shut_down = True

others = []
stock_spec.CPUOffloadingWorker = Other
try:
    spec.create_worker(None)
except polypath.NotSupported as error:
    assert "0.33.0" in str(error)
else:
    raise AssertionError("it has other handlers")
assert others[0].is_shut_down
print("offloaded")
"""


def test_blocks_go_by_polypath(polypath_program):
    done = polypath_program(_PROGRAM.format(here=str(_HERE)))
    assert done.returncode == 0, done.stderr
    assert "offloaded" in done.stdout


def test_vllm_has_what_the_plug_in_replaces():
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    from polypath.plugins import vllm as plugin

    assert importlib.metadata.version("vllm") in plugin.VERSIONS
    source = Path(importlib.util.find_spec("vllm").origin).parent / "v1/kv_offload/cpu"
    worker = (source / "gpu_worker.py").read_text()
    for name in (*plugin._HANDLERS, "_swap_blocks_batch", "gpu_to_cpu"):
        assert f"self.{name}" in worker
    assert "def create_worker(" in (source / "spec.py").read_text()
