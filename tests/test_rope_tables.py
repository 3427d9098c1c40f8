"""Rotary positions by tables against NumPy in float64, and against rope, which makes the tables itself."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests import test_rope
from tests.test_rope import ROUNDING, compare

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# Shapes of x, the cosines and the sines: the tensors that broadcast, and in which direction; no whole
# vectors, and several.
SHAPES = [
    ((2,), (2,), (2,)),
    ((3, 6), (6,), (3, 6)),
    ((2, 5, 3, 38), (1, 5, 1, 38), (5, 1, 38)),
    ((1, 8, 1, 64), (2, 1, 3, 64), (64,)),
    ((2, 2, 70, 128), (70, 128), (2, 1, 70, 128)),
]


def make(shapes, dtype):
    random = np.random.default_rng(0)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    return [random.normal(size=shape).astype(kind) for shape in shapes]


def right(x, cosines, sines, interleaved, backward=False):
    x, cosines, sines = (np.asarray(v).astype(np.float64) for v in (x, cosines, sines))

    def turn(z):
        turned = np.empty_like(z)
        half = z.shape[-1] // 2
        if interleaved:
            turned[..., ::2], turned[..., 1::2] = -z[..., 1::2], z[..., ::2]
        else:
            turned[..., :half], turned[..., half:] = -z[..., half:], z[..., :half]
        return turned

    return x * cosines + (-turn(x * sines) if backward else turn(x) * sines)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_value(backward, interleaved, shapes, dtype):
    given = make(shapes, dtype)
    y = raw_ops.metal_rope_tables(
        *map(tf.constant, given), interleaved=interleaved, backward=backward
    )
    compare(y, right(*given, interleaved, backward), dtype)


@pytest.mark.parametrize("interleaved", [False, True])
def test_backward_is_the_gradient(interleaved):
    """The gradient of a linear function: <f(x), d> is <x, f'(d)>, whatever the tables."""
    x, cosines, sines = make([(2, 5, 3, 38)] * 3, "float32")
    d = x[::-1, ::-1].copy()
    y, d_x = (
        raw_ops.metal_rope_tables(v, cosines, sines, interleaved=interleaved, backward=backward)
        for v, backward in ((x, False), (d, True))
    )
    products = (np.sum(np.multiply(a, b, dtype=np.float64)) for a, b in ((y, d), (x, d_x)))
    np.testing.assert_allclose(*products, rtol=1e-5)


@pytest.mark.parametrize("interleaved", [False, True])
def test_is_rope(interleaved):
    (x,) = make([(2, 3, 10, 16)], "float32")
    w = test_rope.angles(np.arange(10), 16)
    w = np.repeat(w, 2, -1) if interleaved else np.concatenate([w, w], -1)
    y = raw_ops.metal_rope_tables(
        x, np.cos(w).astype("f"), np.sin(w).astype("f"), interleaved=interleaved
    )
    np.testing.assert_allclose(y, metal_ops.rope(x, interleaved=interleaved), atol=1e-5)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 1, 4)], ids=str)
def test_empty(shape):
    x = np.zeros(shape, np.float32)
    assert raw_ops.metal_rope_tables(x, x, x).shape == shape


def test_shapes_in_graphs():
    table = tf.TensorSpec([None, 1, 8])

    @tf.function(input_signature=[tf.TensorSpec([2, None, 3, 8]), table, tf.TensorSpec(None)])
    def run(x, known, unknown):
        y = raw_ops.metal_rope_tables(x, known, known)
        assert y.shape.as_list() == [2, None, 3, 8]
        assert raw_ops.metal_rope_tables(x, known, unknown).shape.rank is None
        return y

    assert run(tf.ones([2, 5, 3, 8]), tf.ones([5, 1, 8]), tf.ones([8])).shape == [2, 5, 3, 8]


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(x=tf.ones([2, 3])), r"x must have an even last dimension, got \[2, 3\]"),
        (dict(x=tf.ones([])), r"x must have between one and four dimensions, got \[\]"),
        (dict(sines=tf.ones([1] * 4 + [4])), "sines must have between one and four dimensions"),
        (dict(cosines=tf.ones([1])), r"cosines must have x's last dimension, 4, got \[1\]"),
        (dict(sines=tf.ones([3, 4])), r"sines of shape \[3, 4\] does not broadcast"),
        (dict(sines=tf.ones([4], tf.float16)), "half"),
    ],
)
def test_bad_calls(change, words):
    given = dict(x=tf.ones([2, 4]), cosines=tf.ones([4]), sines=tf.ones([2, 4]))
    raw_ops.metal_rope_tables(**given)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        raw_ops.metal_rope_tables(**{**given, **change})
