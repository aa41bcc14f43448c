from abc import ABC, abstractmethod


class CopierInterface(ABC):
    @abstractmethod
    def submit_io(self, use_buf_register, max_copy_block_size): ...

    @abstractmethod
    def wait_io(self, gbuf, dtype, noalign=False): ...
