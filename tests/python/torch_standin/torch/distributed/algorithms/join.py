"""`Join`, as far as a model's forward pass calls it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d


class Join:
    @staticmethod
    def notify_join_context(joinable: Any) -> Any:
        join = joinable._join_config
        if not join.enable or not join.is_first_joinable:
            return None
        present = torch.full((1,), 1, torch.int64, joinable.device)
        options = c10d.AllreduceOptions()
        options.asyncOp = True
        return joinable.process_group.allreduce([present], options)
