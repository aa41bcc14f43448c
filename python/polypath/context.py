"""`Context`: the driver, the node's capacity graph and all resources for transfers."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import _api, _c_abi
from .buffers import as_buffer, covered
from .errors import InvalidArgument
from .handles import WarnsUnlessClosed
from .integers import array, checked_size, integer
from .streams import stream_handle
from .transfers import (
    Request,
    Transfer,
    as_transfer,
    block_arrays,
    checked_transfer,
    gpu_array,
    request_array,
    spread_arrays,
)

#: Called with steps done, steps in all, and what comes next.
Progress = Callable[[int, int, str], None]
TuneProgress = Callable[[int, int, float, str], bool | None]


class Context(WarnsUnlessClosed):
    """Copies over every path of a node, and tells how.

    ``Context()`` works on this machine's GPUs, ``Context(node="narval")`` on a simulated node, by
    its name (`polypath nodes` lists them) or node file. Every other keyword is a setting, named and
    ranged as `polypath info -c` says: ``Context(routes="direct,gpu", staging_size="128M")``; it
    overrides the environment variable of that name.

    Making one opens the CUDA driver, creates no CUDA context and allocates nothing on any GPU. It
    may be used from any number of threads at once.

    Use it in a ``with`` statement or call `close`, after the streams that carry its transfers have
    been synchronised. A context that is merely forgotten stays until the process ends, because
    transfers may still be using it.

    Raises `NoDevice` when there is no GPU and no node was named, `InvalidArgument` for a setting or
    node file that is not usable, `LibraryNotFound`.
    """

    def __init__(self, node: str | None = None, **settings: Any) -> None:
        self._handle: ctypes.c_void_p | None = None
        if node is not None:
            settings["node"] = node
        entries = [
            _c_abi.Setting(_api.encoded(name, "setting"), _api.encoded(_setting_text(value), name))
            for name, value in settings.items()
            if value is not None
        ]
        handle = ctypes.c_void_p()
        array = (_c_abi.Setting * len(entries))(*entries)
        _api.call("polypath_context_create", array, len(entries), ctypes.byref(handle))
        self._handle = handle

    def close(self) -> None:
        """Releases everything. Later calls do nothing. All transfers must have completed. In a
        child process that got it by `os.fork` it does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None and not self._is_inherited():
            _api.library().polypath_context_destroy(handle)

    # ---- Transfers -------------------------------------------------------------------------------

    def copy_async(self, dst: Any, src: Any, bytes: int | None = None, stream: Any = None) -> None:
        """Copies ``bytes`` from ``src`` to ``dst``, as asynchronously as ``cuMemcpyAsync`` and
        ordered on ``stream`` as it is.

        ``dst``, ``src``: device memory of any GPU of this process, or host memory, in any
        combination: anything that `polypath.buffers.as_buffer` takes. Shapes and element types play
        no part, but arrays have to be C-contiguous. The caller keeps both alive until the copy has
        completed.

        ``bytes``: how many, from the start of both; default all of them, when ``dst`` and ``src``
        are of one size, or only one of them has a size.

        ``stream``: anything that `polypath.streams.stream_handle` takes. None is the legacy default
        stream, not the current stream of any framework.

        Memory that is pageable or managed, a small message, a stream in capture: the native copy,
        on the same stream.

        Raises `InvalidArgument` for sizes that do not fit, a read-only destination, a null, unknown
        or freed address, overlapping ranges; `WrongType` for objects without memory; `DriverError`
        when a driver call failed after the first copy was issued: the contents of ``dst`` are then
        undefined.
        """
        transfer = checked_transfer(Transfer(dst, src, bytes, stream), "")
        _api.call(
            "polypath_copy_async",
            self._open(),
            transfer.dst,
            transfer.src,
            transfer.bytes,
            transfer.stream,
        )

    def group_copy_async(self, transfers: Iterable[Transfer | tuple[Any, ...]]) -> None:
        """Starts transfers that are planned together, so that their routes do not contend for
        links.

        Each is a `Transfer` or a tuple in its order, and is ordered on its own stream as by
        `copy_async`; between streams there is no order. All arguments are checked before anything
        is issued. Errors as in `copy_async`; the message names the index of the transfer.
        """
        checked = []
        for index, transfer in enumerate(transfers):
            where = f"transfers[{index}]: "
            checked.append(checked_transfer(as_transfer(transfer, where), where))
        array = (_c_abi.Transfer * len(checked))(*checked)
        _api.call("polypath_group_copy_async", self._open(), array, len(checked))

    def copy_batch_async(self, dst: Any, src: Any, bytes: Any = None, stream: Any = None) -> None:
        """Copies many blocks in one call: ``bytes[i]`` from ``src[i]`` to ``dst[i]``, after what
        ``stream`` holds and before what it is given next. Among each other they have no order.

        ``dst``, ``src``: arrays of 64-bit addresses in host memory (NumPy, PyTorch, `array.array`,
        ctypes), or sequences of anything that `polypath.buffers.as_buffer` takes. ``bytes``: one
        size for all blocks, or an array or sequence of sizes; default the size of each block, where
        one of its sides says it. ``stream``: as of `copy_async`.

        Between pinned host memory and a GPU, kernels of all GPUs copy a part each over their own
        host link. What they need is made in the background by the first batch; `prepare_batches`
        makes it now. Raises as `copy_async`; the message names the index of the block.
        """
        count, to, start, sizes = block_arrays(dst, src, bytes)
        _api.call(
            "polypath_copy_batch_async",
            *(self._open(), count, to, start, sizes, stream_handle(stream)),
        )

    def read_async(
        self,
        file: Any,
        dst: Any,
        bytes: int | None = None,
        offset: int = 0,
        stream: Any = None,
    ) -> None:
        """Copies a file to ``dst``, memory of a GPU, after what ``stream`` holds and before what it
        is given next. CPU threads read it, preferably from the page cache, and its chunks go over
        the links of all GPUs. Returns when all has been read; ``stream`` waits for the rest.

        ``file``: a descriptor, or an object with ``fileno``, open for reading; its position stays
        as it is. ``bytes``: from ``offset`` on; default as many as ``dst`` has. ``dst``,
        ``stream``: as of `copy_async`.

        Raises `FileError` when the file cannot be read or ends before; the contents of ``dst`` are
        undefined then, and nothing is under way. Else as `copy_async`, and `NotSupported` in a
        capture.
        """
        descriptor = file.fileno() if hasattr(file, "fileno") else file
        to, count = covered(dst, "dst", bytes, writes=True)
        _api.call(
            *("polypath_read_async", self._open(), descriptor, offset, to, count),
            stream_handle(stream),
        )

    def prepare_batches(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Makes ready, and waits for, all that batches between these memories can use::

        context.prepare_batches([("host0", "gpu0"), ("gpu0", "host0")])
        """
        array = request_array(Request(src, dst, 0) for src, dst in pairs)
        _api.call("polypath_prepare_batches", self._open(), array, len(array))

    def spread_async(
        self, dst: Sequence[Any], src: Any, bytes: int | None = None, streams: Any = None
    ) -> None:
        """Copies the same ``bytes`` from ``src`` to every buffer of ``dst``, each on a GPU of its
        own::

        context.spread_async([a, b, c, d], host, streams=[s0, s1, s2, s3])

        Each GPU fetches a part over its own link, and sends it on to the others. It is one
        operation on all its streams: nothing of it begins before all have come to it, and what any
        of them is given next waits for all of it.

        ``dst``, ``src``, ``bytes``: as of `copy_async`. ``streams``: one for each destination, or
        one for all. Pageable memory, a mapped file for one, has been read when the call returns.
        Where it gains nothing it is a copy for each destination. What it needs is made in the
        background by the first spread; `prepare_spread` makes it now. Raises as `copy_async`; the
        message names the index of the destination.
        """
        count, to, start, size, handles = spread_arrays(dst, src, bytes, streams)
        _api.call("polypath_spread_async", self._open(), count, to, start, size, handles)

    def prepare_spread(self, src: str, gpus: Sequence[int]) -> None:
        """Makes ready, and waits for, all that spreads from ``src`` to these GPUs can use::

        context.prepare_spread("host0", [0, 1, 2, 3])
        """
        numbers = gpu_array(gpus)
        _api.call(
            "polypath_prepare_spread",
            *(self._open(), _api.encoded(src, "src"), numbers, len(numbers)),
        )

    def plan_spread(self, src: str, gpus: Sequence[int], bytes: int | str) -> dict[str, Any]:
        """How a spread of pinned host memory, or a GPU's, would go, without running it: the
        ``parts`` with the GPU that fetches each, predicted and native times, the maximum flow."""
        numbers = gpu_array(gpus)
        return _api.call_json(
            "polypath_plan_spread",
            *(self._open(), _api.encoded(src, "src"), numbers, len(numbers), checked_size(bytes)),
        )

    def prepare(self, src: str, dst: str, bytes: int | str) -> None:
        """Makes ready, and waits for, all that transfers of up to this size between these memories
        can use: contexts on staging GPUs, streams, staging memory. Without it a background thread
        does so at the first transfer, and transfers go without the staged routes until then."""
        self.group_prepare([Request(src, dst, bytes)])

    def group_prepare(self, requests: Iterable[Request | tuple[str, str, int | str]]) -> None:
        """`prepare` for transfers that will be planned together."""
        array = request_array(requests)
        _api.call("polypath_prepare", self._open(), array, len(array))

    def share_mapping(self, memory: Any, bytes: int | None = None) -> None:
        """GPUs that transfers stage on may be given access to memory that was mapped by `cuMemMap`
        for its own GPU alone, from the next transfers on.

        ``memory``: an address with ``bytes``, or anything that `polypath.buffers.as_buffer` takes.
        The memory is of a GPU, and this process allocated it. Call `unshare_mapping` before it is
        unmapped. Raises `InvalidArgument` for other memory.
        """
        address, length = _range_of(memory, bytes)
        _api.call("polypath_share_mapping", self._open(), address, length)

    def unshare_mapping(self, memory: Any, bytes: int | None = None) -> None:
        """Before mapped memory is unmapped, or its access is set anew: no GPU is being given access
        when it returns. Arguments as of `share_mapping`."""
        address, length = _range_of(memory, bytes)
        _api.call("polypath_unshare_mapping", self._open(), address, length)

    # ---- Asking ----------------------------------------------------------------------------------

    def plan(self, src: str, dst: str, bytes: int | str) -> dict[str, Any]:
        """How a transfer would go, without running it::

            {"bytes", "predicted_us", "predicted_gbps", "native_us", "native_gbps", "limit_gbps",
             "transfers": [{"src", "dst", "bytes", "native", "reason", "copy_threads", "host_gbps",
                            "routes": [{"route", "kind", "via", "bytes", "share", "chunks",
                                        "chunk_bytes", "rate_gbps"}],
                            "excluded": [{"route", "reason"}]}]}

        ``native``: true for one native copy, and ``reason`` says why. ``share``: 0 to 1.
        A host memory may be "host0:pageable": then ``copy_threads`` copy by way of pinned slots, at
        ``host_gbps``.
        ``limit_gbps``: the maximum flow of the allowed routes. ``*_us``: microseconds; ``*_gbps``:
        1e9 bytes/s. Raises `InvalidArgument` for a memory that the node does not have.
        """
        return self.group_plan([Request(src, dst, bytes)])

    def group_plan(
        self, requests: Iterable[Request | tuple[str, str, int | str]]
    ) -> dict[str, Any]:
        """`plan` for transfers that start together; one entry of "transfers" for each, and the GB/s
        are sums."""
        array = request_array(requests)
        result: dict[str, Any] = _api.call_json("polypath_plan", self._open(), array, len(array))
        return result

    def plan_collective(
        self,
        op: str,
        bytes: int | str,
        *,
        type: str = "float32",
        operation: str = "sum",
        ranks: int | Sequence[int] | None = None,
        root: int = 0,
        nodes: int = 1,
        network_gbps: float = 0,
        algorithm: str | None = None,
        max_blocks: int = 0,
        compare: bool = False,
        order: str | None = None,
    ) -> dict[str, Any]:
        """How a collective of one rank a GPU would go, without running it; the same on all ranks.

        ``op``: allreduce, reduce_scatter, all_gather, broadcast, reduce or all_to_all. ``bytes``:
        of a rank's larger buffer. ``ranks``: how many, on the first GPUs, or the GPU of each; None:
        one for every GPU. ``nodes``: number of equal nodes, each with ``network_gbps`` to the
        others, one direction. ``algorithm``: this one instead of the one predicted to end first.
        ``max_blocks``: of a kernel on each GPU. ``compare``: also predict all others, and the ring
        over direct links. ``order``: of sums of floats, "rank" (the default) or "tree"::

            {"op", "type", "operator", "bytes", "count", "gpus", "root", "nodes", "network_gbps",
             "algorithm", "reason", "islands", "lanes", "ring", "order", "rank_order",
             "sum_order", "kernel": {"blocks", "slot_bytes", "lag", "stages"}, "host_bytes",
             "relays": [{"gpu", "gbps", "share"}], "chunks", "chunk_bytes",
             "stages": [{"stage", "moves", "links", "busiest_gbps", "us"}],
             "predicted_us", "bus_gbps", "limit_bus_gbps", "link_limit_bus_gbps", "unproven",
             "candidates": [{"algorithm", "us", "bus_gbps", "limit_bus_gbps", "reason"}],
             "times_ring": {algorithm: times}, "published_us"}

        ``host_bytes``: of a mixed plan, what goes through host memory next to the kernel.
        ``relays``: the idle GPUs that carry a part of the message each.
        ``order``: in which ranks are summed; ``rank_order``: whether that is the sequential sum.
        ``limit_bus_gbps``: what all trees over links and host memory carry at best,
        ``link_limit_bus_gbps``: those over links between GPUs. ``times_ring``, and ``published_us``
        (three stages with one leader an island and eight chunks, as published) come with
        ``compare``. ``reason`` of a candidate: why it was
        left out. What does not apply is None. Raises `InvalidArgument` for an unknown name, a GPU
        that the node lacks, an algorithm that cannot run it.
        """
        gpus, count = None, 0
        if hasattr(ranks, "__iter__"):
            gpus = array(list(ranks), ctypes.c_int, "ranks")
            count = len(gpus)
        elif ranks is not None:
            count = integer(ranks, ctypes.c_int, "ranks")
            if count < 1:
                raise InvalidArgument(f"ranks must be at least 1, not {ranks}")
        request = _c_abi.CollectiveRequest(
            _api.encoded(op, "op"),
            _api.encoded(type, "type"),
            _api.encoded(operation, "operation"),
            checked_size(bytes),
            gpus,
            count,
            root,
            nodes,
            network_gbps,
            None if algorithm is None else _api.encoded(algorithm, "algorithm"),
            max_blocks,
            int(compare),
            None if order is None else _api.encoded(order, "order"),
        )
        result: dict[str, Any] = _api.call_json(
            "polypath_plan_collective", self._open(), ctypes.byref(request)
        )
        return result

    def plan_backend(
        self, op: str, bytes: int | str, *, ranks: int | None = None, with_mpi: bool = False
    ) -> dict[str, Any]:
        """The UNICONN backend that AnyBackend would take on the first ``ranks`` GPUs (None:
        all), by what `polypath tune backend` measured; ``op``: post, allreduce, reduce, all_gather,
        all_to_all or broadcast. ``with_mpi``: in a program with MPI, whose ranks are MPI's::

            {"op", "ranks": class, "bytes", "backend", "reason", "entry": one of "comm" of `tuned`,
             "backends": [{"backend", "us", "serves", "why": "" or why not}]}

        ``entry``: of the nearest size, or None. Raises `InvalidArgument` for an unknown name, and a
        GPU that the node lacks.
        """
        result: dict[str, Any] = _api.call_json(
            "polypath_plan_backend",
            self._open(),
            _api.encoded(op, "op"),
            checked_size(bytes),
            None,
            ranks or 0,
            int(with_mpi),
        )
        return result

    def load(self) -> dict[str, Any]:
        """How loaded the links are now, as this process knows it and as others tell::

            {"time_us", "links": [{"from", "to", "gbps", "loaded": bool, "source", "pid",
                                   "wait_us", "processes": [{"pid", "busy_us"}]}]}

        A row stands for all links of one direction between a GPU and host memory. ``source``: the
        origin of the report that the link is loaded, or "free"; ``busy_us``: predicted time of all
        copies so far.
        """
        return _api.call_json("polypath_load", self._open())  # type: ignore[no-any-return]

    def topology(self) -> dict[str, Any]:
        """The capacity graph of the node::

            {"name", "title", "source", "simulated", "virtual_time", "fingerprint",
             "capacities": "node file" | "measured" | "defaults",
             "gpus": [{"id", "name", "pci", "uuid", "numa", "memory_bytes", "pcie_generation",
                       "pcie_width"}],
             "hosts": [{"id", "numa", "memory_bytes"}],
             "links": [{"from", "to", "type", "width", "gbps", "nominal_gbps", "ports": [name]}],
             "ports": [{"name", "gbps"}], "costs": {name: microseconds}}

        A link is one direction. ``numa``: the operating system's NUMA
        node; a GPU is nearest to the host memory with the same one.
        """
        return _api.call_json("polypath_topology", self._open())  # type: ignore[no-any-return]

    def measure(self, progress: Progress | None = None) -> None:
        """Measures the capacities of this node (a few seconds), uses them from now on, and keeps
        them as the node's profile. No other transfer of this context may be under way. An exception
        of ``progress`` is raised here after the measurement has ended."""
        raised: list[BaseException] = []

        def report(done: int, total: int, what: bytes, _user: int | None) -> None:
            if progress is None or raised:
                return
            try:
                progress(done, total, _api.decoded(what))
            except BaseException as error:  # it must not pass through the C library
                raised.append(error)

        _api.call("polypath_measure", self._open(), _c_abi.Progress(report), None)
        if raised:
            raise raised[0]

    def settings(self) -> list[dict[str, Any]]:
        """Every setting of this context: ``[{"name", "environment", "value", "origin", "default",
        "allowed", "meaning"}]``."""
        return _api.call_json("polypath_settings", self._open())  # type: ignore[no-any-return]

    def devices(self) -> dict[str, Any]:
        """The driver and its devices::

        {"driver": {"library", "cuda_version", "driver_version"}, "simulated", "nvml", "library",
         "version", "profile": {"file", "file_hex", "state"},
         "graphs": {"supported", "cache_size", "counts"},
         "devices": [{"id", "name", "memory_bytes", "free_bytes" or None, "context_active"}],
         "staging": [{"memory", "allowed", "reason", "bytes"}]}
        """
        return _api.call_json("polypath_device_info", self._open())  # type: ignore[no-any-return]

    def profile_file(self) -> str:
        """The file of the node's profile, "" without one; as `os.fsdecode` gives it, also where its
        name is no UTF-8."""
        return os.fsdecode(bytes.fromhex(self.devices()["profile"]["file_hex"]))

    def counters(self) -> dict[str, Any]:
        """What has been done since the context was made, or since `reset_counters`::

        {"transfers", "split", "followed", "pageable", "files", "native", "failed", "bytes",
         "copies",
         "changed_by_load",
         "native_by_reason": {reason: count}, "left_out_by_reason": {reason: count},
         "routes": [{"src", "dst", "route", "transfers", "bytes"}],
         "links": [{"from", "to", "bytes", "copies"}],
         "graphs": {"launches", "hits", "patches", "patched_nodes", "builds", "evictions",
                    "failed", "busy", "cached"},
         "pinned": {"bytes", "limit_bytes"}, "shared_mappings": {"granted", "refused"},
         "staging": [{"memory", "bytes"}]}

        "graphs": ``hits`` were launched with the addresses that they held, ``patches`` got others
        first; ``failed`` and ``busy`` transfers went by streams instead.
        """
        return _api.call_json("polypath_counters", self._open())  # type: ignore[no-any-return]

    def reset_counters(self) -> None:
        """Sets all counts, but not the staging sizes, to zero."""
        _api.call("polypath_counters_reset", self._open())

    def bench(
        self,
        requests: Iterable[Request | tuple[str, str, int | str]],
        iterations: int = 20,
        warmup: int = 3,
        window: int = 1,
        compare_executors: bool = False,
    ) -> dict[str, Any]:
        """Runs transfers together, as native copies and by polypath in alternating pairs, on
        buffers of its own with random contents, and compares every byte::

            {"bytes", "window", "native_us", "polypath_us", "native_gbps", "polypath_gbps",
             "speedup", "limit_gbps", "limit_from": "flow" | "measured", "verified", "executor",
             "issue_us", "native_issue_us", "copies",
             "routes": [{"src", "dst", "route", "share", "chunks", "bytes"}],
             "counted": {"split", "graphs", "native_share",
                         "routes": [{"src", "dst", "route", "share"}]},
             "native", "reason", "executors"}

        "routes" is the plan, of a window that of its first transfer; "counted" is how the transfers
        of all runs really went, as shares of all bytes. ``bytes`` counts a transfer, GB/s are sums
        of the group; times are medians of the group, in microseconds. ``warmup``: untimed pairs
        first, at least 1; ``iterations``: timed pairs, at least 1. ``window``, 1 to 64: number of
        groups issued at once, each on buffers and streams of its own, before the first wait; GB/s
        then are sums over the window. ``compare_executors``: also the plan as streams against the
        same as graphs, in pairs: "executors" then is {"stream_us", "graph_us", "stream_issue_us",
        "graph_issue_us"}, else None. Raises `InternalError` when bytes differ.
        """
        array = request_array(requests)
        request = _c_abi.BenchRequest(
            array, len(array), warmup, iterations, window, compare_executors
        )
        result: dict[str, Any] = _api.call_json(
            "polypath_bench", self._open(), ctypes.byref(request)
        )
        return result

    def bench_blocks(
        self,
        src: str,
        dst: str,
        block_bytes: int,
        count: int,
        iterations: int = 10,
        warmup: int = 2,
    ) -> dict[str, Any]:
        """Copies a batch of equal blocks between random places, by the driver's batch and by
        `copy_batch_async` in alternating pairs, on buffers of its own with random contents, and
        compares every byte::

            {"src", "dst", "block_bytes", "count", "bytes", "native": "batch" | "copies",
             "native_us", "polypath_us", "native_gbps", "polypath_gbps", "speedup",
             "native_issue_us", "issue_us" (CPU time of a call), "native_share",
             "routes": [{"route", "share"}], "verified",
             "queued": {"native_gbps", "polypath_gbps"} or None}

        Times are from the call to the end of the copies, medians; "queued" is measured on a stream
        that holds work when the call begins (None on simulated nodes). "native_share" and "routes"
        say how polypath's bytes went. Raises `InternalError` when bytes differ.
        """
        request = _c_abi.BenchBlocksRequest(
            *(_api.encoded(src, "src"), _api.encoded(dst, "dst")),
            *(block_bytes, count, warmup, iterations, 0),
        )
        result: dict[str, Any] = _api.call_json(
            *("polypath_bench_blocks", self._open(), ctypes.byref(request)),
            *(_c_abi.TrafficSwitch(), None),
        )
        return result

    def bench_file(
        self,
        dst: str,
        file: str | os.PathLike[str] | None = None,
        bytes: int = 0,
        iterations: int = 10,
        warmup: int = 2,
    ) -> dict[str, Any]:
        """Reads a file to a GPU, by a mapping that the driver copies and by `read_async` in
        alternating pairs, and compares every byte with the file::

            {"src": "file", "dst", "bytes", "native": "mmap", "native_us", "polypath_us",
             "native_gbps", "polypath_gbps", "speedup", "threads", "native_share",
             "routes": [{"route", "share"}], "verified"}

        ``file``: None makes one with random contents in the temporary folder. ``bytes``: its first
        ones; 0: all of it. Times are from the call to the end of the copies, medians. Raises
        `InternalError` when bytes differ.
        """
        request = _c_abi.BenchFileRequest(
            _api.encoded(dst, "dst"),
            None if file is None else _api.encoded(os.fspath(file), "file"),
            *(checked_size(bytes), warmup, iterations, 0),
        )
        result: dict[str, Any] = _api.call_json(
            *("polypath_bench_file", self._open(), ctypes.byref(request)),
            *(_c_abi.TrafficSwitch(), None),
        )
        return result

    def bench_spread(
        self,
        src: str,
        gpus: Sequence[int],
        bytes: int | str,
        pageable: bool = False,
        iterations: int = 10,
        warmup: int = 2,
    ) -> dict[str, Any]:
        """Copies the same bytes to a buffer on each of these GPUs, as a native copy for each and by
        `spread_async` in alternating pairs, on buffers of its own with random contents, and
        compares every byte::

            {"src", "gpus", "bytes", "native_us", "polypath_us", "native_gbps", "polypath_gbps",
             "speedup", "limit_gbps", "native_issue_us", "issue_us", "calls", "native_calls",
             "parts": [{"gpu", "share"}], "verified"}

        GB/s are what each GPU receives; times are medians, until the last GPU has all. "parts" are
        what each GPU fetched itself. Raises `InternalError` when bytes differ.
        """
        numbers = gpu_array(gpus)
        request = _c_abi.BenchSpreadRequest(
            *(_api.encoded(src, "src"), numbers, len(numbers), checked_size(bytes)),
            *(pageable, warmup, iterations, 0),
        )
        result: dict[str, Any] = _api.call_json(
            *("polypath_bench_spread", self._open(), ctypes.byref(request)),
            *(_c_abi.TrafficSwitch(), None),
        )
        return result

    def tune(
        self,
        pairs: Iterable[tuple[str, str]] | None = None,
        sizes: Iterable[int | str] | None = None,
        budget_s: float = 60.0,
        exhaustive: bool = False,
        again: bool = False,
        progress: TuneProgress | None = None,
    ) -> dict[str, Any]:
        """Searches, by measurement, the best routes, shares, chunks, slots and executor for each
        class of pairs, size and pattern (one way, both ways, a window of 16), uses what it finds
        from now on, and keeps it in the node's profile.

        ``pairs``: one of each class to tune; default all classes. ``sizes``: bytes; default 4 MiB
        to 512 MiB in steps of 2. ``budget_s``: seconds in all. ``exhaustive``: the whole grid
        instead of a local search around the planner's prediction. ``again``: also what the profile
        holds already, but never an edited entry. ``progress(done, total, seconds_left,
        what)`` is called between measurements; when it returns False the search stops, and a later
        one goes on from there. An exception of ``progress`` stops the search and is raised here.

        Returns what `tuned` does, and "stopped" (bool) and "seconds". No other transfer of this
        context may be under way.
        """
        report, raised = progress_callback(progress)
        requests = None if pairs is None else request_array((src, dst, 0) for src, dst in pairs)
        counts = None
        if sizes is not None:
            values = [checked_size(size, "sizes") for size in sizes]
            counts = (ctypes.c_size_t * len(values))(*values)
        request = _c_abi.TuneRequest(
            requests,
            0 if requests is None else len(requests),
            counts,
            0 if counts is None else len(counts),
            budget_s,
            exhaustive,
            again,
        )
        result: dict[str, Any] = _api.call_json(
            "polypath_tune", self._open(), ctypes.byref(request), report, None
        )
        if raised:
            raise raised[0]
        return result

    def tuned(self) -> dict[str, Any]:
        """What was tuned on this node::

            {"profile": file, "choices": [{"pattern": "one way" | "both ways" | "window", "pair",
             "bytes", "executor", "routes": [{"route": "direct" | "gpu" | "host", "share",
             "chunks"}], "slots", "native_gbps", "predicted_gbps", "measured_gbps", "tried",
             "edited"}],
             "collectives": [{"op", "ranks", "bytes", "algorithm", "stages", "blocks",
             "tile_bytes", "lag", "lanes", "chunk_bytes", "planned_us", "us", "tried", "edited"}],
             "comm": [{"op", "ranks", "bytes", "backend", "times": [{"backend", "us"}], "pairs",
             "edited"}]}

        ``pair``: the class of pairs. GB/s are those of the whole group or window. Of collectives
        ``ranks`` is the class of sets of GPUs, ``bytes`` of a rank's larger buffer, ``planned_us``
        a call as the cost model plans it, and ``us`` as it was tuned; of comm ``backend`` is the
        choice among UNICONN's, and ``times`` what was measured of each.
        """
        name = "polypath_tuning_results"
        return _api.call_json(name, self._open())  # type: ignore[no-any-return]

    def graph_phases(
        self, src: str, dst: str, bytes: int | str, nodes: int, iterations: int = 20
    ) -> dict[str, Any]:
        """What each phase of a CUDA graph costs for one transfer in ``nodes`` copies: half as many
        chunks, each carried to a staging memory and on from there::

            {"bytes", "nodes", "via", "create_us", "construct_us", "instantiate_us",
             "first_launch_us", "launch_us", "patch_us", "destroy_us", "first_latency_us",
             "latency_us", "patched_latency_us", "stream_issue_us", "stream_latency_us",
             "gpu_bytes" or None, "verified"}

        CPU time of the calls; ``*_latency_us``: from an iteration's first call to the end of its
        bytes. Microseconds, medians over ``iterations`` graphs. ``launch_us`` is that of a graph
        launched before; ``patch_us`` gives every node other addresses; ``stream_*``: the same
        copies by streams and events; ``gpu_bytes``: what a graph takes on the GPUs.

        It runs on buffers of its own with random contents, and compares every byte. Raises
        `InvalidArgument` for an odd number of nodes or one not in 2 to 256, and for memories that
        have no third one to stage in; `NotSupported` for a driver without graphs; `InternalError`
        when bytes differ.
        """
        (transfer,) = request_array([Request(src, dst, bytes)])
        request = _c_abi.GraphPhasesRequest(
            transfer.src, transfer.dst, transfer.bytes, nodes, iterations
        )
        result: dict[str, Any] = _api.call_json(
            "polypath_graph_phases", self._open(), ctypes.byref(request)
        )
        return result

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise InvalidArgument("the context is closed")
        return self._handle


def progress_callback(progress: TuneProgress | None) -> tuple[Any, list[BaseException]]:
    """What a tuner of the C API calls, to be kept as long as that runs; and where an exception of
    ``progress`` is then, which stops the tuner."""
    raised: list[BaseException] = []

    def report(done: int, total: int, left: float, what: bytes, _user: int | None) -> int:
        if progress is None:
            return 0
        try:
            return 1 if progress(done, total, left, _api.decoded(what)) is False else 0
        except BaseException as error:  # it must not pass through the C library
            raised.append(error)
            return 1

    return _c_abi.TuneProgress(report), raised


@functools.cache
def _context_of(_process: int) -> Context:
    return Context()


def shared_context() -> Context:
    """One on this machine's GPUs for all of the process that asks for none of its own. It stays
    open as long as the process runs."""
    return _context_of(os.getpid())


def settings() -> list[dict[str, Any]]:
    """Every setting, as a new context would have it; needs no GPU. Shape: `Context.settings`."""
    return _api.call_json("polypath_settings", None)  # type: ignore[no-any-return]


def _range_of(memory: Any, bytes: int | None) -> tuple[int, int]:
    """Address and length of what `as_buffer` takes, or of an address with ``bytes``."""
    buffer = as_buffer(memory)
    length = buffer.bytes if bytes is None else checked_size(bytes, "bytes")
    if length is None:
        raise InvalidArgument("bytes is missing: memory is an address, which does not say it")
    return buffer.address, length


def _setting_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)
