"""`DistributedDataParallel` with one bucket of gradients, that the caller gives. What its reducer
does in C++ is as in PyTorch 2.11 (torch/csrc/distributed/c10d/reducer.cpp)."""

from __future__ import annotations

import copy
import inspect
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join

#: The default group of a rank, which is a thread here.
here = threading.local()


class Reducer:
    def __init__(self, group: Any) -> None:
        self.group, self.hook = group, None
        self.refused = 0  # hooks, of which the real one tells its logger
        self.present: Any = None  # how many ranks are, of `_set_forward_pass_work_handle`

    def register(self, hook: Any) -> None:
        if self.hook is not None:
            self.refused += 1
            raise RuntimeError(
                "register_comm_hook or register_builtin_comm_hook can only be called once."
            )
        self.hook = hook

    def _run_comm_hook(self, bucket: Any) -> Any:
        if self.hook is not None:
            return self.hook(bucket)
        return self.group.allreduce([bucket.buffer()]).get_future()

    def reduce(self, gradients: Any) -> None:
        """One backward pass."""
        bucket = dist.GradBucket(gradients)
        factor = self.present() if self.present else self.group.size()  # learnt for hooks too
        if self.hook is None:
            gradients.div_(factor)
        self._run_comm_hook(bucket).wait()


class Logger:
    def __init__(self) -> None:
        self.strings: dict[str, str] = {}

    def _set_comm_hook_name(self, name: str) -> None:
        self.strings["comm_hook"] = name


class _DDPJoinHook:
    def __init__(self, ddp: Any, divide_by_initial_world_size: bool) -> None:
        self.ddp = ddp
        ddp._divide_by_initial_world_size = divide_by_initial_world_size

    def main_hook(self) -> None:
        nothing = torch.zeros(self.ddp.count, torch.float32, self.ddp.device)
        self.ddp.reducer._run_comm_hook(dist.GradBucket(nothing)).wait()


class DistributedDataParallel:
    def __init__(
        self,
        count: int,
        process_group: Any = None,
        mixed_precision: Any = None,
        device_type: str = "cuda",
        python_reducer: bool = False,
    ) -> None:
        self.count = count
        self.process_group = process_group or here.group
        self.device_type = device_type
        self._use_python_reducer = python_reducer
        self._join_config = SimpleNamespace(enable=False, is_first_joinable=False)
        self._ddp_init_helper()
        self._comm_hooks: list[tuple[Any, Any]] = []
        if mixed_precision is not None:
            self.register_comm_hook(None, mixed_precision)
        self._lazy_init_ran = False

    @property
    def device(self) -> Any:
        return torch.device("cuda", torch.cuda.current_device())

    def _ddp_init_helper(self) -> None:
        self.reducer, self.logger = Reducer(self.process_group), Logger()

    def __getstate__(self) -> dict[str, Any]:
        attributes = copy.copy(self.__dict__)
        for name in ("process_group", "reducer", "logger"):
            del attributes[name]
        return attributes

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.process_group = here.group
        self.__dict__.update(state)
        self._ddp_init_helper()

    def _lazy_init(self) -> None:
        self._lazy_init_ran = True

    def forward(self) -> None:
        if self._use_python_reducer:
            return
        if not self._lazy_init_ran:
            self._lazy_init()
        work = Join.notify_join_context(self)
        if work is not None and not self._divide_by_initial_world_size:
            # The reducer, in C++, keeps the C++ part of a Work alone.
            held = weakref.ref(work)

            def count() -> float:
                work = held()
                assert work is not None, "its wait is that of the base class, which nobody ends"
                work.wait()
                return float(work.result()[0].numpy()[0])

            self.reducer.present = count

    def join_hook(self, **kwargs: Any) -> _DDPJoinHook:
        return _DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    def _check_comm_hook(self, hook: Any) -> None:
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        inspect.signature(hook).parameters["bucket"]

    def register_comm_hook(self, state: object, hook: Any) -> None:
        self._check_comm_hook(hook)
        self.logger._set_comm_hook_name(hook.__qualname__)
        self._comm_hooks.append((hook, state))
        dist._register_comm_hook(self.reducer, state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        self.logger._set_comm_hook_name(str(comm_hook_type))
        dist._register_builtin_comm_hook(self.reducer, comm_hook_type)

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return dict(self.logger.strings)
