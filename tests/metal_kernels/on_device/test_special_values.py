"""Zeros, subnormals, extremes, infinities and NaN of this library's ops, in pairs, on the CPU and on the device.

The oracles are the ops' formulas in float64, with their limits at infinities.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.device.on_device.test_special_values import (
    FIRST,
    LARGEST,
    NUMBERS,
    SECOND,
    TINY,
    Row,
    off,
)


def silu(x: np.ndarray) -> np.ndarray:
    """NaN for -infinity, as TensorFlow has it."""
    return x * sigmoid(x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


def no_subnormal(x: np.ndarray) -> np.ndarray:
    return (x == 0) | ~(np.abs(x) < 4 * TINY)


def softshrink(x: np.ndarray) -> np.ndarray:
    return x - np.clip(x, -0.5, 0.5)


def robust(alpha: float):
    def loss(x: np.ndarray) -> np.ndarray:
        z, b = x * x, abs(alpha - 2)
        if alpha == 2:
            return z / 2
        if np.isinf(alpha):
            return np.expm1(z / 2) if alpha > 0 else -np.expm1(-z / 2)
        return (
            b * np.log1p(z / b) / 2
            if alpha == 0
            else b / alpha * np.expm1(alpha / 2 * np.log1p(z / b))
        )

    return loss


def robust_slope(alpha: float):
    def slope(x: np.ndarray) -> np.ndarray:
        b = abs(alpha - 2)
        # x / (1 + x^2 / b)^(1 - alpha / 2), with one power of x where that is larger than 1.
        size = np.hypot(1, x / np.sqrt(b))
        return np.where(np.isinf(x), np.copysign(ENDS[alpha], x), x / size * size ** (alpha - 1))

    return slope


ENDS = {1.0: 1.0, 0.0: 0.0, -2.0: 0.0}


def slope_of_robust_loss(alpha: float):
    def slope(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = metal_ops.robust_loss(x, alpha, 1.0)
        return tape.gradient(loss, x)

    return slope


def cross_entropy(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The first of two classes, log(1 + e^(b - a)). NaN for an infinite logit, as TensorFlow has it."""
    return np.where(np.isposinf(np.maximum(a, b)), np.nan, np.logaddexp(0, b - a))


def focal(x: np.ndarray) -> np.ndarray:
    """For a target of 1, alpha 1/4 and gamma 2. log(1 + e^x) - x, which is NaN at infinity, as TensorFlow has
    it."""
    q = sigmoid(-x)
    return np.where(np.isposinf(x), np.nan, 0.25 * q * q * np.logaddexp(0, -x))


SLOPES_OF_SWIGLU = (
    lambda gate, up: up * sigmoid(gate) * (1 + gate * sigmoid(-gate)),
    lambda gate, up: silu(gate),
)


# The function, its oracle, arguments, and the row.
OURS = {
    "softshrink": (metal_ops.softshrink, softshrink, [NUMBERS], Row()),
    "softshrink_grad": (
        lambda g, x: raw_ops.softshrink_grad(g, x, lambd=0.5),
        lambda g, x: np.where(np.abs(x) <= 0.5, 0, g), [FIRST, SECOND], Row(signs=False)),
    "null_op": (lambda x: metal_ops.null_op(x, 0.75), lambda x: 0.75 * x, [NUMBERS], Row()),
    "swiglu": (metal_ops.swiglu, lambda gate, up: silu(gate) * up, [FIRST, SECOND],
        Row(signs=False, only=(lambda gate, up: no_subnormal(gate) & no_subnormal(up) & (gate != -100),
                               "subnormals, and silu(-100), may be taken for 0"))),
    **{f"swiglu_grad {k}": (
        lambda gate, up, k=k: raw_ops.swiglu_grad(tf.ones_like(gate), gate, up)[k], oracle, [FIRST, SECOND],
        Row(16, signs=False, only=(
            lambda gate, up: no_subnormal(gate) & no_subnormal(up) & (gate != -100), "as above")))
       for k, oracle in enumerate(SLOPES_OF_SWIGLU)},
    **{f"robust_loss {alpha}": (
        lambda x, alpha=alpha: metal_ops.robust_loss(x, alpha, 1.0), robust(alpha), [NUMBERS],
        Row(16, signs=False, only=(lambda x: np.abs(x) != np.float32(LARGEST), "rounded up, by alpha 1, it is none")))
       for alpha in (2.0, 1.0, 0.0, -2.0, 3.0, -np.inf, np.inf)},
    **{f"robust_loss' {alpha}": (
        slope_of_robust_loss(alpha), robust_slope(alpha), [NUMBERS], Row(64, signs=False)) for alpha in ENDS},
    "focal_loss": (lambda x: metal_ops.focal_loss(x, tf.ones_like(x)), focal, [NUMBERS], Row(32)),
    "softmax_cross_entropy": (
        lambda a, b: metal_ops.softmax_cross_entropy(tf.stack([a, b], 1), tf.zeros([len(a)], tf.int32)),
        cross_entropy, [FIRST, SECOND], Row(beside=2, signs=False)),
}  # fmt: skip


@np.errstate(all="ignore")
@pytest.mark.parametrize("place", ["CPU:0", "GPU:0"])
@pytest.mark.parametrize("name", OURS)
def test_values(name, place):
    function, oracle, arguments, row = OURS[name]
    with tf.device(place):
        got = function(*(tf.constant(x) for x in arguments))
        assert got.device.endswith(place)
        got = got.numpy()
    exact = [x.astype("float64") for x in arguments]
    want = oracle(*exact)
    bad = np.nonzero(off(got, want, row) & (row.only[0](*exact) if row.only else True))[0]
    shown = [(*(float(x[i]) for x in arguments), got[i], want[i]) for i in bad[:8]]
    assert not len(bad), f"{name}: {len(bad)} of {len(got)}, as (arguments, result, right): {shown}"


# Functions without a row, by why. Whole names: a new op has none of these reasons yet.
ELSEWHERE = {
    "sums of products, which tests of layers have": "fused_mlp fused_mlp_grad metal_dynamic_mat_mul "
    "metal_fused_batch_norm_grad metal_fused_bias_grad metal_fused_conv2d metal_fused_mat_mul metal_lookup_mat_mul "
    "metal_quantized_mat_mul recurrent_sequence recurrent_sequence_grad row_norm row_norm_grad rope metal_rope_tables "
    "scaled_dot_product_attention scaled_dot_product_attention_grad scaled_dot_product_attention_bias_grad",
    "robust_loss, focal_loss and the products above are made of them": "scale_slope scale_slope_sum",
    "the public functions focal_loss and softmax_cross_entropy": "sigmoid_focal_loss softmax_focal_loss",
    "moves or counts numbers": "hamming_distance metal_dequantize metal_lookup_weights pack_occupancy pack_ray_indices "
    "resource_cache_rows zero_out",
    "samples along rays, which their own tests have": "distortion_loss packed_prod_grad packed_scan ray_march "
    "render_weights render_weights_grad scale_rays volume_render volume_render_grad",
    "of coordinates, which their own tests have": "frequency_encode frequency_encode_grad hash_encode hash_encode_grad "
    "hash_encode_jvp hash_encode_jvp_grad hash_encode_jvp_point_grad hash_encode_point_grad sh_encode sh_encode_grad",
    "steps of optimizers": "resource_adagrad_step resource_adam_step resource_fused_adam resource_fused_sgd "
    "resource_rmsprop_step",
    "shaders of users": "metal_kernel metal_kernel_by_handle",
}


def test_every_op_has_a_row_or_a_reason():
    ops = {
        name
        for name in dir(raw_ops)
        if not name.startswith("_") and callable(getattr(raw_ops, name))
    }
    elsewhere = [name for names in ELSEWHERE.values() for name in names.split()]
    assert len(elsewhere) == len(set(elsewhere))
    rows = {re.match(r"\w+", name)[0] for name in OURS}
    assert rows - {"focal_loss", "softmax_cross_entropy"} <= ops
    assert ops - rows == set(elsewhere)
