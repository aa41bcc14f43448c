"""Tutorial 04: collectives with the same bits. docs/tutorials/04-collectives.md explains the calls.

    python 04_collectives.py                          on this machine's GPUs
    POLYPATH_NODE=narval python 04_collectives.py     on a simulated node

Four ranks are four threads of this process; for processes: Communicator.from_environment.
"""

import numpy
import polypath
from polypath.comm import Communicator, on_all

from driver import Driver

COUNT = 4096
RANKS = 4


def main() -> None:
    with polypath.Context() as context:
        driver = Driver(context.devices()["driver"]["library"])
        random = numpy.random.default_rng(1)
        inputs = [random.standard_normal(COUNT).astype(numpy.float32) for _ in range(RANKS)]
        buffers = []
        for gpu, values in enumerate(inputs):
            buffers.append(driver.allocate(gpu, values.nbytes))
            driver.write(buffers[-1], values.tobytes())

        # One communicator a rank. Each rank's calls come from a thread of its own.
        ranks = Communicator.all(context, range(RANKS))

        def reduce(comm: Communicator) -> numpy.ndarray:
            buffer = buffers[comm.rank]
            driver.use(comm.rank)
            comm.allreduce(buffer, buffer, "float32", count=COUNT)
            comm.synchronize()
            return numpy.frombuffer(driver.read(buffer, COUNT * 4), dtype=numpy.float32)

        results = on_all(ranks, reduce)

        # The promise: the sum in rank order, bit by bit, on every rank.
        expected = inputs[0]
        for values in inputs[1:]:
            expected = expected + values
        for rank, result in enumerate(results):
            assert result.tobytes() == expected.tobytes(), f"rank {rank} has other bits"
        print(f"{RANKS} ranks have the bits of the sequential sum of {COUNT} elements")
        for comm in ranks:
            comm.close()


if __name__ == "__main__":
    main()
