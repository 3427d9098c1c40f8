"""Conv2D and its gradients by the shaders of four simdgroups together, beside TensorFlow's on the CPU in float64."""

from __future__ import annotations

import ctypes

import pytest
import tensorflow as tf

import metal_ops.device

from .test_nn import both, random, raw

# Images, window, filters, strides, dilations, padding.
CASES = [
    ((2, 9, 7, 16), (3, 3), 72, (1, 1), (1, 1), "SAME"),
    ((2, 9, 10, 8), (3, 3), 24, (2, 2), (1, 1), "SAME"),
    ((3, 6, 5, 72), (1, 1), 16, (2, 3), (1, 1), "VALID"),
    ((3, 6, 5, 24), (1, 1), 16, (1, 1), (1, 1), "VALID"),
    ((1, 9, 12, 8), (2, 3), 8, (1, 2), (2, 1), "SAME"),
    ((24, 5, 5, 8), (3, 3), 8, (1, 1), (1, 1), "SAME"),  # a filter's gradient in parts
]
# Not by these shaders: channels or filters that are no multiple of 8, and other orders of the dimensions.
OTHERS = [
    ((2, 5, 6, 12), (3, 3), 16, (1, 1), (1, 1), "SAME"),
    ((2, 5, 6, 8), (3, 3), 12, (1, 1), (1, 1), "SAME"),
]


def launches() -> set[str]:
    """The places that launched shaders in this process."""
    ask = ctypes.CDLL(str(metal_ops.device.PLUGIN)).metal_kernels_launches
    ask.restype = ctypes.c_char_p
    return {line.rsplit(":", 1)[0] for line in ask().decode().splitlines()}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_conv_and_gradients(monkeypatch, dtype):
    monkeypatch.setenv("METAL_OPS_GEMM", "warpgroups")
    for shape, window, filters, strides, dilations, padding in CASES + OTHERS:
        given = dict(strides=[1, *strides, 1], dilations=[1, *dilations, 1], padding=padding)
        x, w = random(shape, dtype), random((*window, shape[3], filters), dtype, 1)
        out = check(raw.Conv2D, dict(input=x, filter=w), dtype, **given)
        if dilations != (1, 1):
            continue  # TensorFlow's CPU has no gradients of these
        d = random(out, dtype, 2)
        sizes = dict(input_sizes=tf.constant(shape), filter=w, out_backprop=d)
        check(raw.Conv2DBackpropInput, sizes, dtype, host=("input_sizes",), **given)
        sizes = dict(input=x, filter_sizes=tf.constant(w.shape), out_backprop=d)
        check(raw.Conv2DBackpropFilter, sizes, dtype, host=("filter_sizes",), **given)
    places = {"kernels/gemm/conv_warpgroups.mm", "device/kernels/nn/conv_grad_warpgroups.mm"}
    assert places <= launches()


def check(op, inputs: dict, dtype: str, host: tuple[str, ...] = (), **given) -> tf.TensorShape:
    """To the rounding of the result, and float32's of the sums; the shape."""
    (want,), (got,) = both(op, inputs, host, **given)
    assert got.device.endswith("GPU:0")
    want, got = want.numpy(), tf.cast(got, tf.float64).numpy()
    step = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    wrong = abs(got - want) > 1.01 * step * abs(want) + 1e-5 * abs(want).max()
    assert not wrong.any(), f"{op.__name__} {given}: {got[wrong][:5]}, expected {want[wrong][:5]}"
    return want.shape
