"""Tutorial 02: copies from Python. docs/tutorials/02-copies-python.md explains the calls.

python 02_copies.py                          on this machine's GPUs
POLYPATH_NODE=narval python 02_copies.py     on a simulated node
"""

import os

import polypath

from driver import Driver

BYTES = 16 << 20


def main() -> None:
    with polypath.Context() as context:
        # 1. Ask what would happen.
        plan = context.plan("gpu0", "gpu1", BYTES)
        for route in plan["transfers"][0]["routes"]:
            print(f"{route['route']:12} {100 * route['share']:5.1f} % in {route['chunks']} chunks")

        # 2. Memory. With PyTorch: two tensors. Here: addresses from the driver.
        driver = Driver(context.devices()["driver"]["library"])
        dst = driver.allocate(1, BYTES)
        src = driver.allocate(0, BYTES)
        sent = os.urandom(BYTES)
        driver.write(src, sent)

        # 3. Copy. prepare() is optional: without it the first copies lack the staged routes.
        context.prepare("gpu0", "gpu1", BYTES)
        context.copy_async(dst, src, BYTES)
        driver("cuCtxSynchronize")
        assert driver.read(dst, BYTES) == sent, "the bytes differ"

        # 4. See how it went.
        counters = context.counters()
        print(f"split copies: {counters['split']}")
        print(f"{BYTES} bytes copied and compared")


if __name__ == "__main__":
    main()
