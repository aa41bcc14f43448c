"""The process group: which library carries a call, and how polypath is called.

The choice is the same on all ranks, because it follows from what ranks give alike: the operation,
types, operators, sizes. Semantics follow torch's NCCL backend: a call that is not
asynchronous runs on the current stream; an asynchronous one on a stream of the group, and
``wait()`` makes the current stream wait for it.
"""

from __future__ import annotations

import ctypes
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed import Work

from .. import _c_abi
from ..integers import array
from . import comm_creation, dtypes
from .checks import require_like, require_parts, require_rows, require_usable
from .connection import BLOCKS_BESIDE, Arrived, Connection
from .fallback_groups import Others
from .p2p import Message, Messages

_log = logging.getLogger("polypath.torch")

#: The kind of device that polypath serves.
GPU = "cuda"


class ProcessGroupPolypath(dist.ProcessGroup):
    """What ``torch.distributed.init_process_group("cpu:gloo,cuda:polypath")`` and ``new_group``
    make. Its communicator comes with the first collective on a GPU tensor: that GPU is this rank's
    from then on. ``timeout`` is how long a rank waits for another one. After that, and when a rank
    has ended, calls and ``wait`` raise `CommunicatorError`; `destroy_process_group` raises it if no
    call did before.

    ``pg_options``: the options for the NCCL backend; only ``is_high_priority_stream`` counts.
    """

    @classmethod
    def create(cls, backend_options: Any, options: Any = None) -> ProcessGroupPolypath:
        """For `torch.distributed.Backend.register_backend`. Collective over the store."""
        # torch has made the backends of other devices before, and drops them for this group, which
        # has its own. All ranks come here before one drops what others are still connecting to.
        store, rank, size = (
            backend_options.store,
            backend_options.group_rank,
            backend_options.group_size,
        )
        store.set(f"polypath/came/{rank}", "1")
        store.wait(
            [f"polypath/came/{other}" for other in range(size)], _delta(backend_options.timeout)
        )
        return cls(backend_options, options)

    def __init__(self, backend_options: Any, options: Any = None) -> None:
        super().__init__(backend_options.group_rank, backend_options.group_size)
        backend_options.timeout = _delta(backend_options.timeout)
        self._given = backend_options
        self._options = options
        self._name: str = backend_options.group_id
        self._description = ""
        self._others = Others(backend_options, options)
        self._messages = Messages(backend_options.group_rank, lambda peer: self._others.pair(peer))
        self._connection: Connection | None = None
        self._reason: str | None = None  # why there is none
        self._elsewhere: Counter[str] = Counter()

    # ---- Collectives -----------------------------------------------------------------------------
    # As `torch.distributed` and torch's own C++ call them, with options, and in the short forms
    # that ProcessGroup has besides.

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work:
        if not isinstance(opts, c10d.AllreduceOptions):
            tensors, opts = _in_list(tensors), _opts(c10d.AllreduceOptions, opts, "reduceOp")
        return self._combine("allreduce", tensors, opts)

    def allreduce_beside(self, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        """`allreduce` by fewer thread blocks, next to kernels of the program. On all ranks, or on
        none."""
        return self._combine("allreduce", tensors, opts, BLOCKS_BESIDE)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Work:
        opts = _opts(c10d.AllreduceCoalescedOptions, opts, "reduceOp")
        return self._combine("allreduce_coalesced", tensors, opts)

    def _combine(
        self, name: str, tensors: Sequence[torch.Tensor], opts: Any, blocks: int = 0
    ) -> Work:
        on = self._on(tensors[0].device)
        numbers = dtypes.combined(tensors, opts) if on else None
        if on is None or numbers is None:
            return self._pass_on(name, tensors[0].device, tensors, opts)
        for tensor in tensors:
            require_usable(name, "tensor", tensor, on)
        function = on.library.polypath_all_reduce

        def body(stream: int) -> None:
            for tensor in tensors:
                flat = dtypes.real(tensor)
                address = flat.data_ptr()
                on.call(function, address, address, flat.numel(), *numbers, stream)

        return on.run(opts.asyncOp, body, tensors, tensors, blocks=blocks)

    def all_reduce_norm(
        self,
        input: torch.Tensor,
        weight: torch.Tensor,
        epsilon: float,
        *,
        residual: torch.Tensor | None = None,
        residual_out: torch.Tensor | None = None,
        output: torch.Tensor | None = None,
        scale: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The output and ``residual_out``, which are made where they are not given, on the current
        stream. As `polypath.comm.Communicator.all_reduce_norm`; the last dimension is a row.
        Raises `RuntimeError` where the group has no communicator, as no other library has it."""
        name = "all_reduce_norm"
        on = self._on(input.device)
        if on is None:
            reason = self._reason or f"{input.device} is no GPU"
            raise RuntimeError(f"rank {self.rank()}: {name} needs polypath, and {reason}")
        if residual_out is None:
            residual_out = torch.empty_like(input)
        if output is None:
            kind = input.dtype if scale is None else torch.float8_e4m3fn
            output = torch.empty_like(input, dtype=kind)
        like = {"residual": residual, "residual_out": residual_out, "output": output}
        require_rows(name, on, input, weight, scale, like)
        call = _c_abi.Norm(
            *(input.numel() // weight.numel(), weight.numel()),
            *(dtypes.moved(input.dtype)[0], epsilon),
            *(None if residual is None else residual.data_ptr(), residual_out.data_ptr()),
            *(weight.data_ptr(), None if scale is None else _float_at(scale.data_ptr())),
        )
        function, to = on.library.polypath_all_reduce_norm, output.data_ptr()

        def body(stream: int) -> None:
            on.call(function, input.data_ptr(), to, ctypes.byref(call), stream)

        on.run(False, body, [], [])
        return output, residual_out

    def broadcast(
        self, tensors: Any, opts: Any = None, timeout: Any = None, *, root: int | None = None
    ) -> Work:
        tensors = _in_list(tensors)
        opts = _opts(c10d.BroadcastOptions, opts if root is None else root, "rootRank")
        on = self._on(tensors[0].device)
        if on is None:
            return self._pass_on("broadcast", tensors[0].device, tensors, opts)
        tensor = tensors[0]
        require_usable("broadcast", "tensor", tensor, on)
        kind, width = dtypes.moved(tensor.dtype)
        function, root = on.library.polypath_broadcast, opts.rootRank

        def body(stream: int) -> None:
            address = tensor.data_ptr()
            send = address if root == on.rank else None
            on.call(function, send, address, tensor.numel() * width, kind, root, stream)

        return on.run(opts.asyncOp, body, tensors, tensors)

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None, **more: Any
    ) -> Work:
        tensors = _in_list(tensors)
        opts = _opts(c10d.ReduceOptions, more.get("root", opts), "rootRank")
        if op is not None:
            opts.reduceOp = op
        on = self._on(tensors[0].device)
        numbers = dtypes.combined(tensors, opts) if on else None
        if on is None or numbers is None:
            return self._pass_on("reduce", tensors[0].device, tensors, opts)
        require_usable("reduce", "tensor", tensors[0], on)
        function, root = on.library.polypath_reduce, opts.rootRank
        flat = dtypes.real(tensors[0])

        def body(stream: int) -> None:
            address = flat.data_ptr()
            recv = address if root == on.rank else None
            on.call(function, address, recv, flat.numel(), *numbers, root, stream)

        return on.run(opts.asyncOp, body, tensors, tensors)

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Work:
        opts = opts or c10d.AllgatherOptions()
        return self._gather("_allgather_base", [output], [input], (output, input, opts))

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Work:
        opts = opts or c10d.AllgatherOptions()
        name = "allgather_into_tensor_coalesced"
        return self._gather(name, outputs, inputs, (outputs, inputs, opts))

    def _gather(
        self,
        name: str,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        arguments: tuple[Any, ...],
    ) -> Work:
        on = self._on(inputs[0].device)
        if on is None:
            return self._pass_on(name, inputs[0].device, *arguments)
        for output, input in zip(outputs, inputs, strict=True):
            require_usable(name, "output", output, on)
            require_usable(name, "input", input, on)
            require_parts(name, on, ("output", output), ("input", input))
        function = on.library.polypath_all_gather

        def body(stream: int) -> None:
            for output, input in zip(outputs, inputs, strict=True):
                kind, width = dtypes.moved(input.dtype)
                count = input.numel() * width
                on.call(function, input.data_ptr(), output.data_ptr(), count, kind, stream)

        return on.run(arguments[-1].asyncOp, body, [*outputs, *inputs], list(outputs))

    def allgather(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> Work:
        if isinstance(input_tensors, torch.Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        opts = opts if isinstance(opts, c10d.AllgatherOptions) else c10d.AllgatherOptions()
        input, outputs = input_tensors[0], output_tensors[0]
        on = self._on(input.device)
        if on is None or not _alike(outputs, on.size):
            if on is not None and self._has_uneven(on, outputs):
                return self._gather_uneven(on, outputs, input, opts)
            return self._pass_on("allgather", input.device, output_tensors, input_tensors, opts)
        require_usable("all_gather", "input", input, on)
        require_like("all_gather", on, ("input", input), ("outputs", outputs[0]))
        function = on.library.polypath_all_gather
        kind, width = dtypes.moved(input.dtype)

        def body(stream: int) -> None:
            whole = torch.empty((on.size, input.numel()), dtype=input.dtype, device=input.device)
            send = input.contiguous()
            count = send.numel() * width
            on.call(function, send.data_ptr(), whole.data_ptr(), count, kind, stream)
            for output, part in zip(outputs, whole, strict=True):
                output.copy_(part.view(output.shape))

        return on.run(opts.asyncOp, body, [*outputs, input], outputs)

    def _has_uneven(self, on: Connection, listed: Sequence[torch.Tensor]) -> bool:
        """Whether polypath can carry a call whose list has a tensor of each rank, of different
        sizes: the list is alike on all ranks. The first such call loads kernels, not in capture."""
        if len(listed) != on.size or any(other.dtype != listed[0].dtype for other in listed):
            return False
        return on.has_uneven or not torch.cuda.is_current_stream_capturing()

    def _gather_uneven(
        self, on: Connection, outputs: Sequence[torch.Tensor], input: torch.Tensor, opts: Any
    ) -> Work:
        require_usable("all_gather", "input", input, on)
        require_like("all_gather", on, ("input", input), ("outputs", outputs[on.rank]))
        function = on.library.polypath_all_gatherv
        kind, width = dtypes.moved(input.dtype)
        lengths = [output.numel() for output in outputs]
        counts = array([length * width for length in lengths], ctypes.c_size_t, "counts")

        def body(stream: int) -> None:
            whole = torch.empty(sum(lengths), dtype=input.dtype, device=input.device)
            send = input.contiguous()
            on.call(function, send.data_ptr(), whole.data_ptr(), counts, kind, stream)
            begin = 0
            for output, length in zip(outputs, lengths, strict=True):
                output.copy_(whole[begin : begin + length].view(output.shape))
                begin += length

        on.has_uneven = True
        return on.run(opts.asyncOp, body, [*outputs, input], outputs)

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> Work:
        opts = opts or c10d.ReduceScatterOptions()
        return self._scatter("_reduce_scatter_base", [output], [input], opts, (output, input))

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Work:
        opts = opts or c10d.ReduceScatterOptions()
        name = "reduce_scatter_tensor_coalesced"
        return self._scatter(name, outputs, inputs, opts, (outputs, inputs))

    def _scatter(
        self,
        name: str,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        opts: Any,
        arguments: tuple[Any, Any],
    ) -> Work:
        on = self._on(inputs[0].device)
        pairs = list(zip(outputs, inputs, strict=True))
        numbers = dtypes.combined(inputs, opts) if on else None
        if on is None or numbers is None:
            return self._pass_on(name, inputs[0].device, *arguments, opts)
        for output, input in pairs:
            require_usable(name, "output", output, on)
            require_usable(name, "input", input, on)
            require_parts(name, on, ("input", input), ("output", output))
        function = on.library.polypath_reduce_scatter

        def body(stream: int) -> None:
            for output, input in pairs:
                recv = dtypes.real(output)
                count = recv.numel()
                on.call(function, input.data_ptr(), recv.data_ptr(), count, *numbers, stream)

        return on.run(opts.asyncOp, body, [*outputs, *inputs], list(outputs))

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, **more: Any
    ) -> Work:
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = _opts(c10d.ReduceScatterOptions, more.get("op", opts), "reduceOp")
        output, parts = outputs[0], inputs[0]
        on = self._on(output.device)
        numbers = dtypes.combined(outputs, opts) if on else None
        if on is None or numbers is None or not _alike(parts, on.size):
            if on is not None and numbers is not None and self._has_uneven(on, parts):
                return self._scatter_uneven(on, output, parts, numbers, opts)
            return self._pass_on("reduce_scatter", output.device, outputs, inputs, opts)
        require_usable("reduce_scatter", "output", output, on)
        require_like("reduce_scatter", on, ("output", output), ("inputs", parts[0]))
        function = on.library.polypath_reduce_scatter

        def body(stream: int) -> None:
            # In the order of indices, for any layout (channels_last).
            whole = torch.stack(tuple(part.contiguous() for part in parts)).contiguous()
            own = output.contiguous()  # the output itself where it is so
            recv = dtypes.real(own)
            on.call(function, whole.data_ptr(), recv.data_ptr(), recv.numel(), *numbers, stream)
            if own is not output:
                output.copy_(own)

        return on.run(opts.asyncOp, body, [output, *parts], outputs)

    def _scatter_uneven(
        self,
        on: Connection,
        output: torch.Tensor,
        parts: Sequence[torch.Tensor],
        numbers: tuple[int, int],
        opts: Any,
    ) -> Work:
        require_usable("reduce_scatter", "output", output, on)
        require_like("reduce_scatter", on, ("output", output), ("inputs", parts[on.rank]))
        function = on.library.polypath_reduce_scatterv
        lengths = [dtypes.real(part).numel() for part in parts]
        counts = array(lengths, ctypes.c_size_t, "counts")

        def body(stream: int) -> None:
            # In the order of indices, for any layout (channels_last).
            flat = (dtypes.real(part.contiguous()) for part in parts)
            whole = torch.cat(tuple(part.view((part.numel(),)) for part in flat))
            own = output.contiguous()  # the output itself where it is so
            recv = dtypes.real(own)
            on.call(function, whole.data_ptr(), recv.data_ptr(), counts, *numbers, stream)
            if own is not output:
                output.copy_(own)

        on.has_uneven = True
        return on.run(opts.asyncOp, body, [output, *parts], [output])

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """With sizes of splits always by NCCL: one rank's may be even where another's are not."""
        opts = opts if isinstance(opts, c10d.AllToAllOptions) else c10d.AllToAllOptions()
        on = self._on(input.device)
        if on is None or output_split_sizes or input_split_sizes:
            splits = (output_split_sizes, input_split_sizes)
            return self._pass_on("alltoall_base", input.device, output, input, *splits, opts)
        require_usable("all_to_all", "output", output, on)
        require_usable("all_to_all", "input", input, on)
        if output.numel() != input.numel() or output.dtype != input.dtype:
            raise ValueError(f"rank {on.rank}: all_to_all_single: output is not as input")
        if input.dim() and input.shape[0] % on.size:
            raise ValueError(
                f"rank {on.rank}: all_to_all_single: the first dimension of input, "
                f"{input.shape[0]}, is no multiple of {on.size} ranks"
            )
        function = on.library.polypath_all_to_all
        kind, width = dtypes.moved(input.dtype)
        count = input.numel() * width // on.size

        def body(stream: int) -> None:
            on.call(function, input.data_ptr(), output.data_ptr(), count, kind, stream)

        return on.run(opts.asyncOp, body, [output, input], [output])

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:
        """`wait` of what it returns, and `torch.distributed.barrier`, end on the host when all
        ranks have come."""
        opts = opts if isinstance(opts, c10d.BarrierOptions) else c10d.BarrierOptions()
        # torch names the host where a group has a backend for it. On the GPU it waits for more.
        on, device = self._connection, opts.device
        if on is None:
            if device is None or (device.type == GPU and device.index is None):
                numbers = opts.device_ids or [torch.cuda.current_device()]
                device = torch.device(GPU, numbers[0])
            on = self._on(device)
        if on is None:
            return self._pass_on("barrier", device, opts)
        function = on.library.polypath_all_reduce
        numbers = dtypes.combined([on.token], c10d.AllreduceOptions())
        assert numbers is not None
        address = on.token.data_ptr()

        def body(stream: int) -> None:
            on.call(function, address, address, on.token.numel(), *numbers, stream)

        return on.run(True, body, [], [], Arrived)

    # ---- What polypath does not have -------------------------------------------------------------

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Work:
        return self._pass_on("send", tensors[0].device, tensors, dst, tag)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Work:
        return self._pass_on("recv", tensors[0].device, tensors, src, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        return self._pass_on("recv_anysource", tensors[0].device, tensors, tag)

    def exchange(self, messages: Sequence[Message]) -> Work:
        """A batch of messages: `torch.distributed.batch_isend_irecv`."""
        work = self._messages.exchange(messages)
        for message in messages:
            self._elsewhere["nccl send" if message.sends else "nccl recv"] += 1
        return work

    def gather(self, outputs: Any, inputs: Any, *more: Any, **named: Any) -> Work:
        return self._pass_on("gather", _first(inputs).device, outputs, inputs, *more, **named)

    def scatter(self, outputs: Any, inputs: Any, *more: Any, **named: Any) -> Work:
        return self._pass_on("scatter", _first(outputs).device, outputs, inputs, *more, **named)

    def alltoall(self, outputs: Any, inputs: Any, *more: Any, **named: Any) -> Work:
        """By NCCL: the tensors of a rank may be of one size where those of others are not."""
        return self._pass_on("alltoall", _first(inputs).device, outputs, inputs, *more, **named)

    def allgather_coalesced(self, outputs: Any, inputs: Any, *more: Any, **named: Any) -> Work:
        return self._pass_on(
            "allgather_coalesced", _first(inputs).device, outputs, inputs, *more, **named
        )

    def monitored_barrier(self, *arguments: Any, **named: Any) -> None:
        self._others.gloo().monitored_barrier(*arguments, **named)

    def _start_coalescing(self, device: torch.device) -> None:
        self._others.nccl()._start_coalescing(device)

    def _end_coalescing(self, device: torch.device) -> Work:
        return self._others.nccl()._end_coalescing(device)

    def _pass_on(self, name: str, device: torch.device, *arguments: Any, **named: Any) -> Work:
        if device.type != GPU:
            return getattr(self._others.gloo(), name)(*arguments, **named)
        self._elsewhere[f"nccl {name}"] += 1
        return getattr(self._others.nccl(), name)(*arguments, **named)

    # ---- The group -------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Which library carried how many calls of this rank: ``{"polypath", "elsewhere",
        "reason"}``: `Communicator.report`, or None without a communicator; the others by library
        and operation; why the ranks have no communicator, or None."""
        return {
            "polypath": self._connection.comm.report() if self._connection else None,
            "elsewhere": dict(self._elsewhere),
            "reason": self._reason,
        }

    # torch's C++ asks by these names; its own answers are those of backends that were registered.

    def getBackendName(self) -> str:
        return "polypath"

    name = _get_backend_name = getBackendName

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device(GPU)]

    def _get_backend(self, device: torch.device) -> Any:
        return self._others.gloo() if torch.device(device).type == "cpu" else self

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False

    def _set_sequence_number_for_group(self) -> None:
        pass

    def set_timeout(self, timeout: timedelta) -> None:
        """For communicators, made with the first collective, only before that."""
        self._given.timeout = timeout
        self._others.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def abort(self) -> None:
        """Ends all waits of all ranks; the group is unusable then."""
        if self._connection:
            self._connection.comm.abort(f"rank {self.rank()} aborted its process group")
        self._others.abort()

    def shutdown(self) -> None:
        """Waits for all work, on the host, and for the other ranks to shut down. Raises
        `CommunicatorError` when a rank failed and no call has raised it."""
        connection, self._connection = self._connection, None
        self._reason = "the group was shut down"
        try:
            if connection:
                connection.close()
        finally:
            self._others.shutdown()

    def _on(self, device: torch.device) -> Connection | None:
        """The communicator for tensors there; None: another library has to carry the call."""
        if device.type != GPU:
            return None
        if self._connection is None and self._reason is None:
            self._connect(device)
        return self._connection

    def _connect(self, device: torch.device) -> None:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"rank {self.rank()}: the first collective of a group must not be in stream "
                "capture: call any, on a tensor of one element for example, before"
            )
        backend_options = self._given
        result = comm_creation.connect(
            *(
                backend_options.store,
                backend_options.group_rank,
                backend_options.group_size,
                device,
            ),
            backend_options.timeout,
        )
        if isinstance(result, str):
            self._reason = result
            if backend_options.group_rank == 0:
                _log.warning("group %s goes over NCCL: %s", backend_options.group_id, result)
            return
        high_priority = getattr(self._options, "is_high_priority_stream", False)
        self._connection = Connection(result, device, high_priority)


def _delta(timeout: Any) -> timedelta:
    return timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)


def _float_at(address: int) -> Any:
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_float))


def _in_list(tensors: Any) -> Any:
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def _first(tensors: Any) -> Any:
    while not isinstance(tensors, torch.Tensor):
        tensors = tensors[0]
    return tensors


def _opts(kind: type, value: Any, field: str) -> Any:
    """Options of this kind, or the one value that short forms give in their place."""
    if isinstance(value, kind):
        return value
    options = kind()
    if value is not None:
        setattr(options, field, value)
    return options


def _alike(tensors: Sequence[torch.Tensor], size: int) -> bool:
    """Whether each rank has one, of the same size and type; own tensors may differ by rank."""
    first = tensors[0]
    return len(tensors) == size and all(
        other.shape == first.shape and other.dtype == first.dtype for other in tensors
    )
