"""The expressions that the fusion pass finds by pattern, with the pass on and off, on the Metal device ("device") or
the CPU ("cpu").

Run by benchmarks/peers.py in processes of their own: a loaded device takes the ops of the other rows. Times are the
processor's, of all threads: the work is the same on a machine that does other work besides.

settings: graph, a name in GRAPHS; fuses, whether the pass is expected to make one node of it there; calls, how many are
timed in a row. inputs: a0, a1, ... as the graph takes them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.fusion_variants import on_and_off  # noqa: E402
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

    def bias_grad(gradients: Any, features: Any) -> Any:
        backprops = tf.raw_ops.ReluGrad(gradients=gradients, features=features)
        return tf.raw_ops.BiasAddGrad(out_backprop=backprops)

    def batch_norm_grad(gradients: Any, features: Any, x: Any, channels: Any) -> Any:
        return tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=tf.raw_ops.ReluGrad(gradients=gradients, features=features),
            x=x,
            scale=channels,
            reserve_space_1=channels,
            reserve_space_2=tf.square(channels),
            reserve_space_3=channels,
        ).x_backprop

    def rope(x: Any, cos: Any, sin: Any) -> Any:
        x1, x2 = tf.split(x, 2, -1)
        return x * cos + tf.concat([-x2, x1], -1) * sin

    def gradients(function: Callable[..., Any], d: Any, *sources: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(sources)
            y = function(*sources)
        return tape.gradient(y, sources, d)

    def of_bias(activation: Callable[..., Any], d: Any, x: Any) -> Any:
        (backprops,) = gradients(activation, d, x)
        return tf.raw_ops.BiasAddGrad(out_backprop=backprops)

    return {
        "bias_grad_nchw": lambda d, y: tf.raw_ops.BiasAddGrad(
            out_backprop=tf.raw_ops.ReluGrad(gradients=d, features=y), data_format="NCHW"
        ),
        "gelu_grad": partial(of_bias, partial(tf.nn.gelu, approximate=True)),
        "gelu_exact_grad": partial(of_bias, partial(tf.nn.gelu, approximate=False)),
        "silu_grad": partial(of_bias, tf.nn.silu),
        "swiglu_grad": lambda *given: tf.add_n(
            gradients(lambda gate, up: tf.nn.silu(gate) * up, *given)
        ),
        "rope_grad": lambda d, x, cos, sin: gradients(lambda x: rope(x, cos, sin), d, x)[0],
        "layer_norm": layer_norm,
        "rms_norm": rms_norm,
        "swiglu": lambda gate, up: tf.nn.silu(gate) * up,
        "swiglu_of_halves": swiglu_of_halves,
        "attention": attention,
        "pad_conv": pad_conv,
        "bias_grad": bias_grad,
        "batch_norm_grad": batch_norm_grad,
        "rope": rope,
        "mish": lambda x, w: keras.activations.mish(tf.matmul(x, w)),
    }


def variants(
    place: str, inputs: dict[str, np.ndarray], settings: dict[str, Any]
) -> tuple[str, dict[str, Callable[[], Any]]]:
    arrays = [inputs[f"a{i}"] for i in range(len(inputs))]
    body = graphs()[settings["graph"]]
    nodes = 1 if settings["fuses"] else 0
    on, off = on_and_off(body, place, arrays, settings["calls"], nodes)
    where = "hostmetal's CPU driver" if place == "GPU:0" else "the CPU"
    return f"on {where}", {"on": on, "off": off}


if __name__ == "__main__":
    serve(
        {
            "device": lambda inputs, settings: variants("GPU:0", inputs, settings),
            "cpu": lambda inputs, settings: variants("CPU:0", inputs, settings),
        },
        ("output",),
        time.process_time,
    )
