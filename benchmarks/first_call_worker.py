"""First calls of functions on the Metal device, with the fusion pass on and off; run by benchmarks/peers.py in a
process of its own, as a loaded device takes the ops of the other rows.

settings: model, a name in keras.applications; pixels; training, whether the function is a step's loss and gradients.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peer_worker import serve  # noqa: E402


def variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import keras
    import tensorflow as tf

    import metal_ops
    from metal_ops import device

    del inputs
    device.load()
    keras.utils.set_random_seed(0)
    shape = (settings["pixels"], settings["pixels"], 3)
    make = getattr(keras.applications, settings["model"])
    model = make(weights=None, input_shape=shape, classes=10)
    images = tf.constant(np.random.default_rng(1).uniform(-1, 1, (2, *shape)), tf.float32)

    def infer() -> list[tf.Tensor]:
        return [model(images, training=False)]

    def train() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(images, training=True)))
        return [loss, *tape.gradient(loss, model.trainable_weights)]

    body = train if settings["training"] else infer

    def variant(switched: Callable[[], Any], fuses: bool) -> Callable[[], list[np.ndarray]]:
        def work() -> list[np.ndarray]:
            before = metal_ops.fusion.status().fused
            with switched():
                # A new function each time: it is traced, optimized and run once.
                values = [value.numpy() for value in tf.function(body)()]
            fused = metal_ops.fusion.status().fused - before
            if (fused > 0) != fuses:
                raise RuntimeError(f"{fused} nodes were fused")
            return values[:1]

        return work

    return (
        "traced, optimized and run once",
        {
            "on": variant(metal_ops.fusion.enabled, True),
            "off": variant(metal_ops.fusion.disabled, False),
        },
    )


if __name__ == "__main__":
    serve({"first-call": variants}, ("output",))
