"""How far a residual network and its blocks are from float64, fused and not: run as a program, it prints JSON.

A program, as the library that computes the products (Eigen or oneDNN) is settled when TensorFlow is loaded. `mistakes`
are the errors of a wrong fusion; a bound on errors is worth something if these exceed it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops

MISTAKES = ("bias dropped", "activation swapped", "residual doubled")
WIDTH = 16


@contextlib.contextmanager
def fusing(on: bool) -> Iterator[None]:
    """Fusion on the CPU, or none."""
    with metal_ops.fusion.enabled(cpu=True) if on else metal_ops.fusion.disabled():
        yield


@dataclass
class Layer:
    """A convolution and the ops after it, from float64 values, in the dtype of its input."""

    w: np.ndarray
    vectors: np.ndarray  # [5, channels]: bias, scale, offset, mean, variance

    def __call__(
        self, x: Any, stage: str, residual: Any = None, activate: bool = True, mistake: str = ""
    ) -> Any:
        bias, scale, offset, mean, variance = (tf.constant(v, x.dtype) for v in self.vectors)
        y = tf.nn.conv2d(x, tf.constant(self.w, x.dtype), 1, "SAME")
        if "bias" in stage and mistake != "bias dropped":
            y = tf.nn.bias_add(y, bias)
        if "norm" in stage:
            training = stage.endswith("training")
            if y.dtype == tf.float32:
                more = dict(mean=mean[:0], variance=variance[:0])
                more = more if training else dict(mean=mean, variance=variance)
                y = tf.raw_ops.FusedBatchNormV3(
                    x=y, scale=scale, offset=offset, is_training=training, epsilon=1e-3, **more
                ).y
            else:  # the op has no float64
                if training:
                    mean, variance = tf.nn.moments(y, [0, 1, 2])
                y = (y - mean) * tf.math.rsqrt(variance + 1e-3) * scale + offset
        if residual is not None:
            y = y + (2 * residual if mistake == "residual doubled" else residual)
        if not activate:
            return y
        return tf.nn.elu(y) if mistake == "activation swapped" else tf.nn.relu(y)


def layer(random: np.random.Generator, inputs: int = WIDTH, gain: float = 1.0) -> Layer:
    """Weights that keep the size of their inputs."""
    w = random.normal(0, gain * np.sqrt(2 / (9 * inputs)), (3, 3, inputs, WIDTH))
    vectors = random.normal(0, 0.1, (5, WIDTH))
    vectors[[1, 4]] = random.uniform(0.5, 1.5, (2, WIDTH))
    return Layer(w, vectors)


# ---- blocks ---------------------------------------------------------------------------------------------------------

# Stage, with a residual, and whether it can be fused although gradients are taken: batch norm's read the tensor before.
BLOCKS = {
    "BiasAdd Relu": ("bias", False, True),
    "BiasAdd Add Relu": ("bias", True, True),
    "BatchNorm Relu": ("norm", False, False),
    "BatchNorm Add Relu": ("bias and norm", True, False),
}


def block(name: str) -> dict[str, float]:
    """Largest error of results and gradients, in units of the last place of the largest value."""
    stage, add, gradients = BLOCKS[name]
    random = np.random.default_rng(0)
    made = layer(random)
    x = random.normal(size=(2, 8, 8, WIDTH)).astype(np.float32)
    r = random.normal(size=x.shape).astype(np.float32)
    before = made(tf.constant(x, tf.float64), stage, r.astype(np.float64) if add else None, False)
    # Where rounding could decide ReLU's output, the block is not compared.
    clear = (np.abs(before.numpy()) > 1e-3).astype(np.float32)

    def run(dtype: str, fuse: bool, mistake: str = "") -> list[np.ndarray]:
        def fn(x: Any, r: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch([x, r])
                y = made(x, stage, r if add else None, mistake=mistake)
            sources = ([x, r] if add else [x]) if gradients else []
            return [
                y * tf.cast(clear, dtype),
                *tape.gradient(y, sources, tf.cast(clear, dtype)),
            ]

        status = metal_ops.fusion.status().fused
        with fusing(fuse):
            results = tf.function(fn, autograph=False)(tf.constant(x, dtype), tf.constant(r, dtype))
        assert metal_ops.fusion.status().fused - status == int(fuse), name
        return [y.numpy().astype(np.float64) for y in results]

    exact = run("float64", False)

    def ulps(got: list[np.ndarray]) -> float:
        return (
            max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(got, exact, strict=True))
            * 2.0**23
        )

    found = {"fused": ulps(run("float32", True)), "unfused": ulps(run("float32", False))}
    for mistake in MISTAKES:
        if ("bias" in stage or "bias" not in mistake) and (add or "residual" not in mistake):
            found[mistake] = ulps(run("float32", False, mistake))
    return found


# ---- a network ------------------------------------------------------------------------------------------------------

N_BLOCKS, N_BATCHES = 8, 6


def network(stage: str) -> Callable[..., Any]:
    """Logits of a residual network of 17 convolutions for [N, 16, 16, 3]; a mistake is made in its middle block."""
    random = np.random.default_rng(1)
    stem = layer(random, 3)
    layers = [(layer(random), layer(random, gain=0.5)) for _ in range(N_BLOCKS)]
    last = random.normal(0, 0.25, (WIDTH, 10))

    def fn(x: Any, mistake: str = "") -> Any:
        x = stem(x, stage)
        for i, (first, second) in enumerate(layers):
            x = second(first(x, stage), stage, x, mistake=mistake if i == N_BLOCKS // 2 else "")
            if i in (2, 5):
                x = tf.nn.avg_pool2d(x, 2, 2, "VALID")
        return tf.matmul(tf.reduce_mean(x, [1, 2]), tf.constant(last, x.dtype))

    return fn


# Only the bias can be fused where batch norm takes part in training, and the gradient of a norm with that of a ReLU
# that no residual parts from it.
STAGES = ("bias", "bias and norm, training")


def gradients(stage: str) -> dict[str, float]:
    """Median relative error of the gradients of all convolutions, over several batches."""
    random = np.random.default_rng(2)
    shape = (N_BATCHES, 8, 16, 16, 3)
    images, labels = random.normal(size=shape).astype(np.float32), random.integers(0, 10, shape[:2])
    logits = network(stage)

    def run(dtype: str, fuse: bool, mistake: str = "") -> list[np.ndarray]:
        def fn(x: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits(x, mistake))
            return tape.gradient(losses, x)

        function = tf.function(fn, autograph=False, jit_compile=False)
        status = metal_ops.fusion.status().fused
        with fusing(fuse):
            results = [
                function(tf.constant(x, dtype), y) for x, y in zip(images, labels, strict=True)
            ]
        fused = metal_ops.fusion.status().fused - status
        expected = 2 * N_BLOCKS + 1 + (N_BLOCKS + 1 if "norm" in stage else 0)
        assert fused == (expected if fuse else 0), fused
        return [y.numpy().astype(np.float64) for y in results]

    exact = run("float64", False)

    def error(got: list[np.ndarray]) -> float:
        a, b = (np.reshape(y, (N_BATCHES * 8, -1)) for y in (got, exact))
        return float(np.median(np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)))

    found = {
        "fused": error(run("float32", True)),
        "unfused": error(run("float32", False)),
    }
    for mistake in MISTAKES:
        if "norm" not in stage or "bias" not in mistake:  # batch norm takes the bias off again
            found[mistake] = error(run("float32", False, mistake))
    return found


if __name__ == "__main__":
    found = {name: block(name) for name in BLOCKS}
    print(json.dumps(found | {stage: gradients(stage) for stage in STAGES}))
