"""Handlers and worker: their transfers end in a call of ``_swap_blocks_batch``."""

import torch


class SingleDirectionOffloadingHandler:
    def __init__(self, gpu_to_cpu, swap):
        self.gpu_to_cpu = gpu_to_cpu
        self._swap_blocks_batch = swap

    def transfer_async(self, src, dst, sizes, stream):
        with torch.cuda.stream(stream):
            self._swap_blocks_batch(src, dst, sizes, is_src_access_order_any=not self.gpu_to_cpu)
        return True


class CPUOffloadingWorker:
    def __init__(self, swap):
        self._store_handler = SingleDirectionOffloadingHandler(True, swap)
        self._load_handler = SingleDirectionOffloadingHandler(False, swap)
        self._expedited_load_handler = SingleDirectionOffloadingHandler(False, swap)
        self.is_shut_down = False

    def shutdown(self):
        self.is_shut_down = True
