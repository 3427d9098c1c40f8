"""A residual block on the Metal device, as stock ops and as the op that the fusion pass makes of them; run by
benchmarks/peers.py in a process of its own, as a loaded device takes the ops of the other rows.

settings: nothing. inputs: a0 the image, a1 the filter, a2 the bias, a3 the residual.
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
    import tensorflow as tf

    import metal_ops
    from metal_ops import device

    del settings
    device.load()
    # What has no kernel on the device must not run elsewhere.
    tf.config.set_soft_device_placement(False)
    with tf.device("GPU:0"):
        tensors = [tf.identity(tf.constant(inputs[f"a{i}"])) for i in range(4)]

    def block(x: tf.Tensor, w: tf.Tensor, bias: tf.Tensor, residual: tf.Tensor) -> tf.Tensor:
        with tf.device("GPU:0"):
            y = tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "SAME"), bias)
            return tf.nn.relu(y + residual)

    def variant(context: Any, nodes: int) -> Callable[[], list[np.ndarray]]:
        function = tf.function(block)
        with context:
            before = metal_ops.fusion.status().fused
            function(*tensors)
            fused = metal_ops.fusion.status().fused - before
        if fused != nodes:
            raise RuntimeError(f"{fused} nodes were fused, expected {nodes}")

        def work() -> list[np.ndarray]:
            # One value is asked for, so that the work is waited for and no copy is measured.
            y = function(*tensors)
            y[0, 0, 0, 0].numpy()
            return [y]

        return _Variant(work)

    return (
        "the same kernels through Objective-C and MSL, on hostmetal's CPU driver",
        {
            "fused": variant(metal_ops.fusion.enabled(), 1),
            "unfused": variant(metal_ops.fusion.disabled(), 0),
        },
    )


class _Variant:
    """Work whose results are copied only when somebody compares them."""

    def __init__(self, work: Callable[[], list[Any]]) -> None:
        self._work = work

    def __call__(self) -> None:
        self._work()

    def results(self) -> list[np.ndarray]:
        return [value.numpy() for value in self._work()]


if __name__ == "__main__":
    serve({"fused": variants}, ("output",))
