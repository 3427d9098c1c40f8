"""A residual block, as stock ops and as one fused op, on the Metal device ("fused") or the CPU ("onednn", "eigen").

Run by benchmarks/peers.py in processes of their own: a loaded device takes the ops of the other rows, and TensorFlow
decides once a process whether it uses oneDNN.

settings: calls, how many of them are timed in a row. inputs: a0 the image, a1 the filter, a2 the bias, a3 the residual.
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


def block(x: Any, w: Any, bias: Any, residual: Any) -> Any:
    """Convolution, bias, residual, activation, as a ResNet has them."""
    import tensorflow as tf

    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "SAME"), bias) + residual)


def device_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import tensorflow as tf

    import metal_ops
    from metal_ops import device

    device.load()
    # What has no kernel on the device must not run elsewhere.
    tf.config.set_soft_device_placement(False)
    with tf.device("GPU:0"):
        tensors = [tf.identity(tf.constant(inputs[f"a{i}"])) for i in range(4)]

    def on_device(*values: tf.Tensor) -> tf.Tensor:
        with tf.device("GPU:0"):
            return block(*values)

    def variant(context: Any, nodes: int) -> Callable[[], None]:
        function = tf.function(on_device)
        with context:
            before = metal_ops.fusion.status().fused
            function(*tensors)
            fused = metal_ops.fusion.status().fused - before
        if fused != nodes:
            raise RuntimeError(f"{fused} nodes were fused, expected {nodes}")

        def work(calls: int) -> tf.Tensor:
            for _ in range(calls):
                y = function(*tensors)
            device.synchronize()
            return y

        return _Variant(work, settings["calls"])

    return (
        "the same kernels through Objective-C and MSL, on hostmetal's CPU driver",
        {
            "fused": variant(metal_ops.fusion.enabled(), 1),
            "unfused": variant(metal_ops.fusion.disabled(), 0),
        },
    )


def cpu_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    """TensorFlow's own kernels, as its graph optimizer arranges them, and our CPU kernel."""
    import tensorflow as tf

    import metal_ops

    tensors = [tf.constant(inputs[f"a{i}"]) for i in range(4)]

    def stock(*values: tf.Tensor) -> tf.Tensor:
        return block(*values)

    def ours(x: tf.Tensor, w: tf.Tensor, bias: tf.Tensor, residual: tf.Tensor) -> tf.Tensor:
        return metal_ops.fused_conv2d(
            x, w, 1, "SAME", bias=bias, residual=residual, activation="relu"
        )

    def variant(work: Callable[..., tf.Tensor]) -> _Variant:
        function = tf.function(work)

        def calls(count: int) -> tf.Tensor:
            for _ in range(count):
                y = function(*tensors)
            return y

        return _Variant(calls, settings["calls"])

    version = (
        f"tensorflow {tf.__version__}, TF_ENABLE_ONEDNN_OPTS={os.environ['TF_ENABLE_ONEDNN_OPTS']}"
    )
    return version, {"stock": variant(stock), "ours": variant(ours)}


class _Variant:
    """Work that is timed several calls in a row, and whose results are copied only when somebody compares them."""

    def __init__(self, work: Callable[[int], Any], calls: int) -> None:
        self._work, self._calls = work, calls

    def __call__(self) -> None:
        self._work(self._calls)

    def results(self) -> list[np.ndarray]:
        return [self._work(1).numpy()]


if __name__ == "__main__":
    serve({"fused": device_variants, "onednn": cpu_variants, "eigen": cpu_variants}, ("output",))
