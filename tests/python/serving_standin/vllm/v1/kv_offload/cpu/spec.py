from .gpu_worker import CPUOffloadingWorker


class CPUOffloadingSpec:
    def __init__(self, config):
        self.replicated_layout = config["replicated_layout"]
        self.swap = config["swap"]

    def create_worker(self, kv_caches):
        return CPUOffloadingWorker(self.swap)
