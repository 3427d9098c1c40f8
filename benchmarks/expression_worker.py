"""What the fusion pass finds by pattern, with the pass on and off, on the Metal device ("device") or the CPU ("cpu").

Run by benchmarks/peers.py in processes of their own: a loaded device takes the ops of the other rows. Times are the
processor's, of all threads: what is done is the same on a machine that does other work besides.

settings: graph, a name in GRAPHS; fuses, whether the pass is expected to make one node of it there; calls, how many are
timed in a row. inputs: a0, a1, ... as the graph takes them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peer_worker import serve  # noqa: E402


def graphs() -> dict[str, Callable[..., Any]]:
    """As users write them."""
    import keras
    import tensorflow as tf

    def layer_norm(x: Any, scale: Any, offset: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-5)

    def rms_norm(x: Any, scale: Any) -> Any:
        return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-5) * scale

    def swiglu_of_halves(x: Any) -> Any:
        gate, up = tf.split(x, 2, -1)
        return tf.nn.silu(gate) * up

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = tf.matmul(q, k, transpose_b=True) * 0.125
        return tf.matmul(tf.nn.softmax(scores), v)

    def pad_conv(x: Any, w: Any) -> Any:
        return tf.nn.relu(tf.nn.conv2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), w, 1, "VALID"))

    return {
        "layer_norm": layer_norm,
        "rms_norm": rms_norm,
        "swiglu": lambda gate, up: tf.nn.silu(gate) * up,
        "swiglu_of_halves": swiglu_of_halves,
        "attention": attention,
        "pad_conv": pad_conv,
        "mish": lambda x, w: keras.activations.mish(tf.matmul(x, w)),
    }


def variants(
    place: str, inputs: dict[str, np.ndarray], settings: dict[str, Any]
) -> tuple[str, dict[str, Callable[[], Any]]]:
    import tensorflow as tf

    import metal_ops
    from metal_ops import device

    if place == "GPU:0":
        device.load()
        # What has no kernel on the device must not run elsewhere.
        tf.config.set_soft_device_placement(False)
    body = graphs()[settings["graph"]]
    with tf.device(place):
        tensors = [tf.identity(tf.constant(inputs[f"a{i}"])) for i in range(len(inputs))]

    def on_place(*values: tf.Tensor) -> tf.Tensor:
        with tf.device(place):
            return body(*values)

    def variant(context: Any, nodes: int) -> _Variant:
        function = tf.function(on_place)
        with context:
            before = metal_ops.fusion.status().fused
            function(*tensors)
            fused = metal_ops.fusion.status().fused - before
        if fused != nodes:
            raise RuntimeError(f"{fused} nodes were fused, expected {nodes}")

        def work(calls: int) -> tf.Tensor:
            for _ in range(calls):
                y = function(*tensors)
            if place == "GPU:0":
                device.synchronize()
            return y

        return _Variant(work, settings["calls"])

    where = "hostmetal's CPU driver" if place == "GPU:0" else "the CPU"
    return (
        f"on {where}",
        {
            "on": variant(metal_ops.fusion.enabled(cpu=True), 1 if settings["fuses"] else 0),
            "off": variant(metal_ops.fusion.disabled(), 0),
        },
    )


class _Variant:
    """Work that is timed several calls in a row, and whose results are copied only when somebody compares them."""

    def __init__(self, work: Callable[[int], Any], calls: int) -> None:
        self._work, self._calls = work, calls

    def __call__(self) -> None:
        self._work(self._calls)

    def results(self) -> list[np.ndarray]:
        return [self._work(1).numpy()]


if __name__ == "__main__":
    serve(
        {
            "device": lambda inputs, settings: variants("GPU:0", inputs, settings),
            "cpu": lambda inputs, settings: variants("CPU:0", inputs, settings),
        },
        ("output",),
        time.process_time,
    )
