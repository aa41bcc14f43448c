from __future__ import annotations

from typing import Any


def allreduce_hook(process_group: Any, bucket: Any) -> Any:
    """As torch's."""
    return process_group.allreduce([bucket.buffer().div_(process_group.size())]).get_future()


def fp16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """But for the compression."""
    return allreduce_hook(process_group, bucket)
