"""Keras' LSTM and GRU layers: `python -m benchmarks.device_keras` shows a step of training on TensorFlow's CPU, on the
device with the layer in one op each way, and there with `use_cudnn=False`, as a loop over its steps.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROUNDS = 7


def step(
    kind: str, sizes: tuple[int, int, int, int], device: str, **given: Any
) -> Callable[[], None]:
    """One step of plain gradient descent, ready to be timed."""
    import keras
    import tensorflow as tf

    batch, steps, inputs, cells = sizes
    random = np.random.default_rng(0)
    with tf.device(device):
        x = tf.identity(random.normal(size=(batch, steps, inputs)).astype(np.float32))
        layer = getattr(keras.layers, kind)(cells, **given)
        layer.build(x.shape)

        @tf.function
        def run() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(layer(x, training=True)))
            variables = [weights.value for weights in layer.trainable_variables]
            for variable, slope in zip(variables, tape.gradient(loss, variables), strict=True):
                variable.assign_sub(0.01 * slope)
            return loss

    def work() -> None:
        with tf.device(device):
            run().numpy()

    return work


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs=4,
        default=(32, 50, 64, 256),
        metavar=("batch", "steps", "inputs", "cells"),
    )
    options = parser.parse_args()
    from metal_ops import device

    device.load()
    print(
        f"ms a step of training, batch, steps, inputs, cells {tuple(options.sizes)}, medians of {ROUNDS}"
    )
    print(f"{'layer':8}{'CPU':>10}{'one op':>10}{'loop':>10}")
    for kind in ("LSTM", "GRU"):
        works = [
            step(kind, options.sizes, "CPU:0"),
            step(kind, options.sizes, "GPU:0"),
            step(kind, options.sizes, "GPU:0", use_cudnn=False),
        ]
        times: list[list[float]] = [[] for _ in works]
        for turn in range(ROUNDS + 1):
            for work, took in zip(works, times, strict=True):
                begin = time.perf_counter()
                work()
                if turn > 0:  # the first traces
                    took.append(1e3 * (time.perf_counter() - begin))
        print(f"{kind:8}" + "".join(f"{statistics.median(took):10.1f}" for took in times))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
