"""`tf.data` copies to the device while it works on earlier batches."""

from __future__ import annotations

import threading

import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops import profiler
from tests.processes import VALIDATION

TRIES = 5


@tf.function
def long_step(w: tf.Tensor) -> tf.Tensor:
    for _ in range(300):
        w = tf.tanh(w @ w)
    return w


def test_the_next_batch_is_copied_during_the_step() -> None:
    """It is made when the step has begun, and is there before its end: seldom not, where others have the cores."""
    may_be_made = threading.Semaphore(1)

    def batches():
        for number in range(TRIES + 1):
            may_be_made.acquire(timeout=600)  # longer than any step: one that it is in has one copy
            yield np.full(2**20, number, np.float32)

    signature = tf.TensorSpec([2**20], tf.float32)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    dataset = dataset.apply(tf.data.experimental.prefetch_to_device("GPU:0", 2))
    size = 64 if VALIDATION else 512  # a step takes a good part of a second
    w = tf.random.stateless_normal([size, size], [1, 2])
    long_step(w)  # traced, its shaders compiled
    metal_ops.device.synchronize()
    iterator = iter(dataset)
    assert "GPU:0" in next(iterator).device
    for number in range(1, TRIES + 1):
        with profiler.trace() as profile:
            # The step takes several times as long.
            threading.Timer(0.05, may_be_made.release).start()
            result = long_step(w)
            batch = next(iterator)
            np.testing.assert_array_equal(batch[:2].numpy(), [number, number])
            result.numpy()
        events = profile.events
        copies = events[
            (events["kind"] == profile.kinds.index("copy to the device"))
            & (events["bytes"] == 2**22)
        ]
        shaders = events[events["kind"] == profile.kinds.index("shader")]
        assert len(copies) == 1 and len(shaders) >= 600
        first, last = shaders["start"].min(), shaders["end"].max()
        during = first < copies["start"][0] and copies["end"][0] < last
        if during:
            break
    may_be_made.release(TRIES)  # none waits for a batch that is never taken
    assert during, "each copy waited for the step"
