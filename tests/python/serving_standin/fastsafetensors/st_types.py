import enum
from dataclasses import dataclass


class DeviceType(enum.Enum):
    CPU = "cpu"
    CUDA = "cuda"


class DType(enum.Enum):
    AUTO = "auto"
    F32 = "F32"


@dataclass
class Device:
    type: DeviceType
    index: int | None = None
