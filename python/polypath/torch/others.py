"""The process groups of torch that carry what polypath does not: NCCL for GPU tensors, Gloo for
those in host memory. Each is made when it is first needed, which is in the same call on all ranks.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


class Others:
    def __init__(self, given: Any, options: Any) -> None:
        """``given``: torch's ``_DistributedBackendOptions``; ``options``: of the caller, of any
        backend."""
        self._given = given
        self._options = options
        self._made: dict[str, dist.ProcessGroup] = {}
        self._shut = False
        self.timeout: timedelta = given.timeout

    def nccl(self, part: str = "nccl") -> dist.ProcessGroup:
        """Raises `RuntimeError` where there is no NCCL. Groups of different ``part`` have nothing
        in common but their ranks."""
        if part not in self._made:
            if not dist.is_nccl_available():
                raise RuntimeError(
                    "polypath lacks this operation, type, operator or group of ranks, and PyTorch "
                    "was built without NCCL, which would have it"
                )
            backend = dist.ProcessGroupNCCL(self._store(part), *self._place(), self._nccl_options())
            backend._set_sequence_number_for_group()
            self._made[part] = self._group(part, "cuda", "NCCL", backend)
        return self._made[part]

    def pair(self, sender: int, receiver: int) -> dist.ProcessGroup:
        """NCCL for messages from one rank to another. Those to higher and to lower ranks have a
        group each, so that a pair of ranks whose sends come before their receives does not wait for
        itself: torch gathers such batches in one call for its own backends only."""
        return self.nccl("nccl/up" if sender < receiver else "nccl/down")

    def gloo(self) -> dist.ProcessGroup:
        if "gloo" not in self._made:
            backend = dist.ProcessGroupGloo(
                self._store("gloo"), *self._place(), timeout=self.timeout
            )
            self._made["gloo"] = self._group("gloo", "cpu", "GLOO", backend)
        return self._made["gloo"]

    def _group(self, part: str, device: str, kind: str, backend: Any) -> dist.ProcessGroup:
        """A group around a backend, which has more operations than the backend itself in Python."""
        made = dist.ProcessGroup(self._store(part), *self._place())
        type_of = getattr(dist.ProcessGroup.BackendType, kind)
        made._set_default_backend(type_of)
        made._register_backend(torch.device(device), type_of, backend)
        made._set_group_name(f"{self._given.group_id}/{part}")
        return made

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = timeout
        for made in self._made.values():
            made.set_timeout(timeout)

    def shutdown(self) -> None:
        self._shut = True
        while self._made:
            self._made.popitem()[1].shutdown()

    def abort(self) -> None:
        for made in self._made.values():
            made.abort()

    def _store(self, part: str) -> Any:
        if self._shut:
            raise RuntimeError("the process group was shut down")
        return dist.PrefixStore(f"{part}/", self._given.store)

    def _place(self) -> tuple[int, int]:
        return self._given.group_rank, self._given.group_size

    def _nccl_options(self) -> Any:
        options = dist.ProcessGroupNCCL.Options()
        options.is_high_priority_stream = getattr(self._options, "is_high_priority_stream", False)
        options._timeout = self.timeout
        options.global_ranks_in_group = self._given.global_ranks_in_group
        options.group_name = self._given.group_id
        return options
