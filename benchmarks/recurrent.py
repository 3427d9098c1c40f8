"""Recurrent layers on the CPU: `python -m benchmarks.recurrent` shows a step of training and the forward pass of ours,
without and with layer norm, Keras' loop and that loop compiled by XLA, in turns, beside the time of the products of
matrices alone.

The least CPU time of all threads counts, which other processes on the machine disturb less than the wall's; the least
of that stands behind it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROUNDS = 7


def steps_of(layer: Any, x: Any, d_y: Any, xla: bool) -> list[Callable[[], Any]]:
    """The forward pass, and with the gradients of weights and x."""
    import tensorflow as tf

    @tf.function(jit_compile=xla)
    def forward(x: tf.Tensor) -> tf.Tensor:
        return layer(x)

    @tf.function(jit_compile=xla)
    def train(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        sources = [x, *(v.value for v in layer.trainable_variables)]
        return tape.gradient(y, sources, output_gradients=d_y)

    return [lambda: forward(x), lambda: train(x)]


def products(sizes: tuple[int, int, int, int], gates: int) -> list[Callable[[], Any]]:
    """TensorFlow's products of the same sizes, those with the state as if all steps were one."""
    import tensorflow as tf

    batch, steps, features, units = sizes
    x, h, d = (tf.random.normal([batch * steps, n]) for n in (features, units, gates * units))
    w, r = tf.random.normal([features, gates * units]), tf.random.normal([units, gates * units])

    def forward() -> list[tf.Tensor]:
        return [x @ w, h @ r]

    def train() -> list[tf.Tensor]:
        backward = [tf.matmul(d, v, transpose_b=True) for v in (w, r)]
        return forward() + backward + [tf.matmul(v, d, transpose_a=True) for v in (x, h)]

    return [forward, train]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs=4,
        default=(128, 100, 256, 256),
        metavar=("batch", "steps", "features", "units"),
    )
    parser.add_argument("--dtype", default="float32", help="a policy of Keras'")
    parser.add_argument("--without-xla", action="store_true")
    options = parser.parse_args()
    import keras
    import tensorflow as tf

    from metal_ops import layers

    batch, steps, features, units = sizes = tuple(options.sizes)
    random = np.random.default_rng(0)
    dtype = keras.DTypePolicy(options.dtype).compute_dtype
    x = tf.cast(random.normal(size=(batch, steps, features)), dtype)
    d_y = tf.cast(random.normal(size=(batch, steps, units)), dtype)
    print(
        f"ms of CPU time, of the wall in brackets: batch, steps, features, units {sizes}, "
        f"{options.dtype}, least of {ROUNDS}"
    )
    print(f"{'layer':8}{'':12}{'forward':>20}{'training':>20}")
    for kind, gates in (("LSTM", 4), ("GRU", 3)):
        given = {"return_sequences": True, "dtype": options.dtype}
        ours, theirs = (getattr(of, kind)(units, **given) for of in (layers, keras.layers))
        normed = getattr(layers, kind)(units, layer_norm=True, **given)
        works = {
            "ours": steps_of(ours, x, d_y, False),
            "ours, norm": steps_of(normed, x, d_y, False),
            "Keras": steps_of(theirs, x, d_y, False),
        }
        if not options.without_xla:
            works["Keras, XLA"] = steps_of(theirs, x, d_y, True)
        works["products"] = products(sizes, gates)
        for layer in (ours, normed, theirs):
            layer.build(x.shape)
        best = {(name, i): (np.inf, np.inf) for name in works for i in (0, 1)}
        for turn in range(ROUNDS + 1):
            for name, pair in works.items():
                for i, work in enumerate(pair):
                    wall, cpu = time.perf_counter(), time.process_time()
                    tf.nest.map_structure(lambda v: v.device, work())
                    took = time.process_time() - cpu, time.perf_counter() - wall
                    if turn > 0:  # the first traces
                        best[name, i] = tuple(np.minimum(best[name, i], took))
        for name in works:
            cells = [f"{1e3 * best[name, i][0]:.0f} ({1e3 * best[name, i][1]:.0f})" for i in (0, 1)]
            print(f"{kind:8}{name:12}{cells[0]:>20}{cells[1]:>20}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
