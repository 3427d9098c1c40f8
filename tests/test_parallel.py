"""Loops of CPU kernels on TensorFlow's threads: several at once, and the state they leave
behind."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import metal_ops

pytestmark = pytest.mark.ops


def products(seed: int) -> tuple[tf.Tensor, metal_ops.QuantizedWeights]:
    """Work that is worth several threads."""
    x = tf.random.stateless_normal([1, 512], [seed, 1])
    return x, metal_ops.quantize(tf.random.stateless_normal([512, 2816], [seed, 2]))


def test_loops_at_once():
    """One has the threads that stay, the others do without, and none gets another's work."""
    inputs = [products(seed) for seed in range(4)]
    right = [metal_ops.quantized_matmul(*one).numpy() for one in inputs]
    wrong, begin = [], threading.Barrier(len(inputs))

    def run(i: int) -> None:
        begin.wait()
        for _ in range(300):
            if not np.array_equal(metal_ops.quantized_matmul(*inputs[i]), right[i]):
                wrong.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_with_pauses():
    """Threads that have gone come again."""
    one = products(5)
    right = metal_ops.quantized_matmul(*one).numpy()
    # Around the time for which they stay.
    for pause in np.linspace(0, 2e-4, 400):
        time.sleep(pause)
        np.testing.assert_array_equal(metal_ops.quantized_matmul(*one), right)


def test_threads_leave():
    one = products(6)
    for _ in range(10):
        metal_ops.quantized_matmul(*one)
    time.sleep(0.05)
    begin = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - begin < 0.1
