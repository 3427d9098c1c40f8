"""`tf.data`'s copies to the device happen while it works on what came before."""

from __future__ import annotations

import threading

import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops import profiler


@tf.function
def long_step(w: tf.Tensor) -> tf.Tensor:
    for _ in range(300):
        w = tf.tanh(w @ w)
    return w


def test_the_next_batch_is_copied_during_the_step() -> None:
    """It is made only when the step has been called, and is there before the step has ended."""
    called = threading.Event()

    def batches():
        for number in range(2):
            if number == 1:
                called.wait(60)
            yield np.full(2**20, number, np.float32)

    signature = tf.TensorSpec([2**20], tf.float32)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    dataset = dataset.apply(tf.data.experimental.prefetch_to_device("GPU:0", 2))
    w = tf.random.stateless_normal([512, 512], [1, 2])
    long_step(w)  # traced, its shaders compiled
    metal_ops.device.synchronize()
    iterator = iter(dataset)
    first = next(iterator)
    assert "GPU:0" in first.device
    with profiler.trace() as profile:
        result = long_step(w)
        called.set()
        second = next(iterator)
        np.testing.assert_array_equal(second[:2].numpy(), [1, 1])
        result.numpy()
    events = profile.events
    copies = events[
        (events["kind"] == profile.kinds.index("copy to the device")) & (events["bytes"] == 2**22)
    ]
    shaders = events[events["kind"] == profile.kinds.index("shader")]
    assert len(copies) == 1 and len(shaders) >= 600
    assert (shaders["end"] > copies["end"]).any(), "the copy waited for the step"
