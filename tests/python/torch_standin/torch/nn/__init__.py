from . import parallel

__all__ = ["parallel"]
