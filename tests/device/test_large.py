"""Tensors of more than 2^31 elements are right to the last one; beyond 2^32 a sentence names the limit.

Half precision, so that one is 4 GiB. Every case is a process of its own, which gives its memory back.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.device.test_loading import run

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="on macOS the device is Apple's")
NEEDS = 10 << 30  # two tensors, and TensorFlow

# The function of x, its device, and the same in NumPy. Every element is looked at.
PROGRAM = """
    import numpy as np
    import tensorflow as tf
    import metal_ops
    if "{device}" == "GPU:0":
        metal_ops.device.load()
    tf.config.set_soft_device_placement(False)
    N = 2**31 + 77
    tail = np.arange(-8, 8, dtype=np.float16)  # beyond 2^31
    with tf.device("{device}"):
        x = tf.concat([tf.ones([N - 16], tf.half), tf.constant(tail)], 0)
        tf.slice(x, [0], [1]).numpy()  # by now what x was made of is free
        y = {op}
        del x
    assert y.device.endswith("{device}"), y.device
    y = y.numpy()
    if y.shape == ():
        print(float(y))
    else:
        x = np.append(np.float16([1]), tail)
        expected = {oracle}
        assert y.shape == (N,)
        print(
            all((y[i : min(i + 2**24, N - 16)] == expected[0]).all() for i in range(0, N - 16, 2**24)),
            (y[N - 16 :] == expected[1:]).all(),
        )
"""
SHRUNK = "np.sign(x) * np.maximum(np.abs(x) - np.float16(0.5), 0)"
CASES = {
    "an op on the CPU": ("CPU:0", "metal_ops.softshrink(x)", SHRUNK, "True True"),
    "an op on the device": ("GPU:0", "metal_ops.softshrink(x)", SHRUNK, "True True"),
    "a stock op on the device": ("GPU:0", "x + tf.constant(3, tf.half)", "x + 3", "True True"),
    "a reduction on the device": ("GPU:0", "tf.reduce_mean(x)", "None", "1.0"),
}


@pytest.fixture
def memory():
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) << 10
    if free < NEEDS:
        pytest.skip(f"{free / 2**30:.1f} GiB of memory are free, {NEEDS >> 30} are needed")


@pytest.mark.slow("tensors of more than 2^31 elements")
@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("name", CASES)
def test_more_than_two_to_the_31_elements(name):
    device, op, oracle, expected = CASES[name]
    assert run(PROGRAM.format(device=device, op=op, oracle=oracle)) == expected + "\n"


def test_more_than_one_grid_holds():
    """Told before anything is written: the memory is never touched."""
    out = run("""
        import tensorflow as tf
        import metal_ops
        metal_ops.device.load()
        tf.config.set_soft_device_placement(False)
        for shape in ([2**32 + 8], [2**16, 2**16 + 1]):
            try:
                print(tf.fill(shape, tf.constant(1, tf.uint8)).shape)
            except tf.errors.InvalidArgumentError as error:
                print(error.message.split("\\n")[0])
        print(tf.fill([3], tf.constant(1, tf.uint8)).numpy().tolist())
    """)
    *refused, after = out.splitlines()
    assert len(refused) == 2 and after == "[1, 1, 1]", out
    for sentence in refused:
        assert "would need a grid of" in sentence and "more than Metal's 2^32 - 1" in sentence, out
