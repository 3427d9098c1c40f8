"""The gate of a language model's feed-forward block, SwiGLU, as a Metal kernel of its own, and its gradient as another.

    .venv/bin/python examples/fused_swiglu.py        (after `make metal`; METAL_OPS_DEVICE=1 runs it on the device)

Shazeer 2020, "GLU Variants Improve Transformer": silu(gate) * up. As stock ops that is several passes over memory and
a gradient of more of them; here each direction is one pass, and nothing but the inputs is kept for the gradient.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import metal_ops

# Any float dtype: T is the input's. Intermediate values are calculated in float32 and rounded once.
OF_THE_INPUT = {"T": lambda gate: gate.dtype}

swiglu_gradient = metal_ops.metal_kernel(
    "swiglu_gradient",
    inputs=["gate", "up", "d_out"],
    outputs=["d_gate", "d_up"],
    source="""
        float g = gate[i], s = 1 / (1 + exp(-g)), d = d_out[i];
        d_gate[i] = T(d * up[i] * s * (1 + g * (1 - s)));
        d_up[i] = T(d * g * s);
    """,
    template=OF_THE_INPUT,
)
swiglu = metal_ops.metal_kernel(
    "swiglu",
    inputs={"gate": "any", "up": "like gate"},
    outputs=["out"],
    source="""
        float g = gate[i];
        out[i] = T(g / (1 + exp(-g)) * up[i]);
    """,
    template=OF_THE_INPUT,
    vjp=swiglu_gradient,
)


def stock(gate: tf.Tensor, up: tf.Tensor) -> tf.Tensor:
    """The same as stock ops."""
    return tf.nn.silu(gate) * up


def with_gradients(
    function, gate: tf.Tensor, up: tf.Tensor, incoming: tf.Tensor
) -> list[tf.Tensor]:
    """The result, and the gradients of both inputs."""
    with tf.GradientTape() as tape:
        tape.watch([gate, up])
        out = function(gate, up)
    return [out, *tape.gradient(out, [gate, up], output_gradients=incoming)]


if __name__ == "__main__":
    random = np.random.default_rng(0)
    tensors = [tf.constant(random.normal(size=(64, 300)), tf.float32) for _ in range(3)]
    names = ("out", "gradient of gate", "gradient of up")
    ours, theirs = with_gradients(swiglu, *tensors), with_gradients(stock, *tensors)
    for name, a, b in zip(names, ours, theirs, strict=True):
        print(f"{name:16s} differs by {float(tf.reduce_max(tf.abs(a - b))):.1e}")
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)
