"""The process groups of torch that carry what polypath does not: NCCL for GPU tensors, Gloo for
those in host memory. Each is made when it is first needed, which is in the same call on all its
ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


class Others:
    def __init__(self, backend_options: Any, options: Any) -> None:
        """``backend_options``: torch's ``_DistributedBackendOptions``; ``options``: of the caller,
        of any backend."""
        self._given = backend_options
        self._options = options
        self._made: dict[str, dist.ProcessGroup] = {}
        self._shut = False
        self.timeout: timedelta = backend_options.timeout

    def nccl(self) -> dist.ProcessGroup:
        """Raises `RuntimeError` where there is no NCCL."""
        if "nccl" not in self._made:
            self._made["nccl"] = self._nccl("nccl", range(self._given.group_size))
        return self._made["nccl"]

    def pair(self, peer: int) -> dist.ProcessGroup:
        """One more by NCCL, of this rank and another one alone; each has to make it once. Raises as
        `nccl`. On any thread."""
        ranks = sorted({self._given.group_rank, peer})
        part = "nccl/" + "-".join(map(str, ranks))
        group = self._made[part] = self._nccl(part, ranks)
        return group

    def _nccl(self, part: str, ranks: Sequence[int]) -> dist.ProcessGroup:
        if not dist.is_nccl_available():
            raise RuntimeError(
                "polypath lacks this operation, type, operator or group of ranks, and PyTorch "
                "was built without NCCL, which would have it"
            )
        place = ranks.index(self._given.group_rank), len(ranks)
        options = self._nccl_options(ranks)
        backend = dist.ProcessGroupNCCL(self._store(part), *place, options)
        backend._set_sequence_number_for_group()
        return self._group(part, place, "cuda", "NCCL", backend)

    def gloo(self) -> dist.ProcessGroup:
        if "gloo" not in self._made:
            place = self._given.group_rank, self._given.group_size
            backend = dist.ProcessGroupGloo(self._store("gloo"), *place, timeout=self.timeout)
            self._made["gloo"] = self._group("gloo", place, "cpu", "GLOO", backend)
        return self._made["gloo"]

    def _group(
        self, part: str, place: tuple[int, int], device: str, kind: str, backend: Any
    ) -> dist.ProcessGroup:
        """A group around a backend, which has more operations than the backend itself in Python."""
        group = dist.ProcessGroup(self._store(part), *place)
        type_of = getattr(dist.ProcessGroup.BackendType, kind)
        group._set_default_backend(type_of)
        group._register_backend(torch.device(device), type_of, backend)
        group._set_group_name(f"{self._given.group_id}/{part}")
        return group

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = timeout
        for group in self._made.values():
            group.set_timeout(timeout)

    def shutdown(self) -> None:
        self._shut = True
        while self._made:  # in the same order on all ranks
            self._made.pop(min(self._made)).shutdown()

    def abort(self) -> None:
        for group in self._made.values():
            group.abort()

    def _store(self, part: str) -> Any:
        if self._shut:
            raise RuntimeError("the process group was shut down")
        return dist.PrefixStore(f"{part}/", self._given.store)

    def _nccl_options(self, ranks: Sequence[int]) -> Any:
        options = dist.ProcessGroupNCCL.Options()
        options.is_high_priority_stream = getattr(self._options, "is_high_priority_stream", False)
        options._timeout = self.timeout
        every = self._given.global_ranks_in_group  # none for the default group
        options.global_ranks_in_group = [every[rank] if every else rank for rank in ranks]
        options.group_name = self._given.group_id
        return options
