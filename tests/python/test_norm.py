"""Rows that are summed over ranks and normalised, in Python, on the simulated node."""

from __future__ import annotations

from test_comm import _BEGIN

_PROGRAM = (
    _BEGIN
    + """
import numpy as np

ranks = Communicator.all(context, range(4))
ROWS, HIDDEN, EPSILON = 5, 776, np.float32(1e-6)

def rounded(values):
    "To bfloat16 and back; no NaN."
    bits = values.astype(np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)

def stored(values, kind):
    if kind == "float16":
        return values.astype(np.float16).tobytes()
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16).tobytes()

def of_type(values, kind):
    return rounded(values) if kind == "bfloat16" else values.astype(np.float16).astype(np.float32)

def values(seed, shape, kind):
    generator = np.random.default_rng(seed)
    return of_type(generator.normal(size=shape).astype(np.float32), kind)

def squares(row):
    "In the documented order."
    units = -(-row.size // 384)
    padded = np.zeros(units * 384, np.float32)
    padded[: row.size] = row * row
    total = None
    for unit in padded.reshape(units, 3, 32, 4):
        lanes = np.zeros(32, np.float32)
        for part in unit:
            for element in range(4):
                lanes = lanes + part[:, element]
        while lanes.size > 1:
            half = lanes.size // 2
            lanes = lanes[:half] + lanes[half:]
        total = lanes[0] if total is None else total + lanes[0]
    return total

def expected(kind, rows):
    total = values(0, (ROWS, HIDDEN), kind)
    for rank in range(1, 4):
        total = total + values(rank, (ROWS, HIDDEN), kind)
    r = of_type(of_type(total, kind) + values(10, (ROWS, HIDDEN), kind), kind)
    weight, y = values(11, HIDDEN, kind), np.empty_like(r)
    for row in range(ROWS):
        mean = squares(r[row]) * (np.float32(1) / np.float32(HIDDEN))
        factor = np.float32(1) / np.sqrt(mean + EPSILON)
        y[row] = of_type(r[row] * factor * weight, kind)
    return r[:rows], y[:rows]

def write(address, data):
    data = ctypes.create_string_buffer(data, len(data))
    check(driver.cuMemcpy(ctypes.c_uint64(address), ctypes.c_uint64(ctypes.addressof(data)),
                          ctypes.c_size_t(len(data))))
    check(driver.cuStreamSynchronize(None))

def float8_values():
    exact = np.array([m * 2.0**-9 for m in range(8)]
                     + [(8 + m) * 2.0 ** (e - 10) for e in range(1, 16) for m in range(8)])
    return exact[:127]

def refused(words, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except polypath.InvalidArgument as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)

def everything(comm):
    gpu = Gpu(comm.gpu())
    size = 2 * ROWS * HIDDEN
    given, residual, r, y, weight = (comm.alloc(size) for _ in range(5))
    scale = comm.alloc(4)
    write(scale.address(), np.float32(0.01).tobytes())
    for kind in "float16", "bfloat16":
        every_r, every_y = expected(kind, ROWS)
        for rows in ROWS, 1:
            for scaled in False, True:
                write(given.address(), stored(values(comm.rank, (ROWS, HIDDEN), kind), kind))
                write(residual.address(), stored(values(10, (ROWS, HIDDEN), kind), kind))
                write(weight.address(), stored(values(11, HIDDEN, kind), kind))
                for poisoned in r, y:
                    write(poisoned.address(), bytes([0xEE]) * size)
                comm.exchange(b"")
                comm.all_reduce_norm(given, y, weight, kind, float(EPSILON), residual=residual,
                                     residual_out=r, rows=rows, hidden=HIDDEN,
                                     scale=scale if scaled else None, stream=gpu.stream)
                gpu.synchronize()
                comm.check()
                want_r, want_y = every_r[:rows], every_y[:rows]
                whole = stored(want_r, kind)
                assert gpu.read(r.address(), size) == whole + bytes([0xEE]) * (size - len(whole))
                if not scaled:
                    whole = stored(want_y, kind)
                else:
                    # Far from ties nearest is nearest, whatever breaks them.
                    want = want_y * (np.float32(1) / np.float32(0.01))
                    table = float8_values()
                    distance = np.abs(np.minimum(np.abs(want), 448)[..., None] - table)
                    found = np.frombuffer(gpu.read(y.address(), rows * HIDDEN), np.uint8)
                    found = found.reshape(want.shape)
                    assert np.array_equal(found >> 7, np.signbit(want))
                    of_found = np.take_along_axis(distance, (found & 127)[..., None], -1)[..., 0]
                    assert np.array_equal(of_found, distance.min(-1))
                    whole = found.tobytes()
                assert gpu.read(y.address(), size) == whole + bytes([0xEE]) * (size - len(whole))
                comm.exchange(b"")
    call = comm.all_reduce_norm
    more = {"residual_out": r, "residual": residual}
    refused("there is no type", call, given, y, weight, "bf16", **more)
    refused("rows of float32", call, given, y, weight, "float32", rows=1, hidden=8, **more)
    refused("hidden 12 is not a multiple", call, given, y, weight, "float16", rows=1, hidden=12,
            **more)
    refused("weight has no size", call, given, y, weight.address(), "float16", **more)
    refused("output has", call, given, polypath.buffers.Buffer(y.address(), 8), weight, "float16",
            rows=ROWS, hidden=HIDDEN, **more)
    report = comm.report()["norms"]
    assert report == {"fused": 8, "apart": 0}, report
    return comm.rank

assert on_all(ranks, everything) == [0, 1, 2, 3]
for one in ranks:
    one.close()
context.close()
print("all right")
"""
)


def test_rows_have_the_bits_of_the_documented_order(polypath_program):
    done = polypath_program(_PROGRAM)
    assert (done.stdout, done.returncode) == ("all right\n", 0), done.stderr
