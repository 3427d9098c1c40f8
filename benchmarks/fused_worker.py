"""A residual block, as stock ops and as one fused op, on the Metal device ("fused") or the CPU ("onednn", "eigen").

Run by benchmarks/peers.py in processes of their own: a loaded device takes the ops of the other rows, and TensorFlow
decides once per process whether it uses oneDNN.

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

from benchmarks.fusion_variants import Repeated, on_and_off  # noqa: E402
from benchmarks.peer_worker import serve  # noqa: E402


def block(x: Any, w: Any, bias: Any, residual: Any) -> Any:
    """Convolution, bias, residual, activation, as a ResNet has them."""
    import tensorflow as tf

    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "SAME"), bias) + residual)


def device_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    arrays = [inputs[f"a{i}"] for i in range(4)]
    fused, unfused = on_and_off(block, "GPU:0", arrays, settings["calls"], 1)
    return (
        "the same kernels through Objective-C and MSL, on hostmetal's CPU driver",
        {"fused": fused, "unfused": unfused},
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

    def variant(work: Callable[..., tf.Tensor]) -> Repeated:
        function = tf.function(work)

        def calls(count: int) -> tf.Tensor:
            for _ in range(count):
                y = function(*tensors)
            return y

        return Repeated(calls, settings["calls"])

    version = (
        f"tensorflow {tf.__version__}, TF_ENABLE_ONEDNN_OPTS={os.environ['TF_ENABLE_ONEDNN_OPTS']}"
    )
    return version, {"stock": variant(stock), "ours": variant(ours)}


if __name__ == "__main__":
    serve({"fused": device_variants, "onednn": cpu_variants, "eigen": cpu_variants}, ("output",))
