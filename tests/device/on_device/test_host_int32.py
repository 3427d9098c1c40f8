"""int32 of the ops that shapes are made with: in host memory, as on TensorFlow's other GPUs, and the CPU's results.

TensorFlow's own functions that calculate shapes run in `tf.device("GPU:0")` with soft placement off then.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_moves import same

raw = tf.raw_ops
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (2, 3, 4), (1, 5, 1, 2)]


def numbers(shape) -> np.ndarray:
    """All sizes, so that sums and products pass 2^31."""
    return np.random.default_rng(7).integers(-(2**31), 2**31, shape, np.int64).astype(np.int32)


@pytest.mark.parametrize("shape", SHAPES)
def test_reductions(shape):
    x = numbers(shape)
    rank = len(shape)
    for axes in ([], list(range(rank)), [-1] if rank else [], [0] if rank else []):
        for op in (raw.Sum, raw.Prod):
            for keep_dims in (False, True):
                same(op, {"input": x}, axis=axes, keep_dims=keep_dims)
    for op in (raw.Sum, raw.Prod):
        with tf.device("GPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match="dimension"):
            op(input=x, axis=[rank])


@pytest.mark.parametrize("shape", SHAPES)
def test_pack(shape):
    for count in (1, 3):
        for axis in range(-len(shape) - 1, len(shape) + 1):
            values = [tf.constant(numbers(shape) + i) for i in range(count)]
            wanted = np.stack([v.numpy() for v in values], axis)
            with tf.device("GPU:0"):
                got = raw.Pack(values=values, axis=axis)
            assert got.device.endswith("GPU:0")
            np.testing.assert_array_equal(got, wanted)
    with tf.device("GPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match="axis = 9"):
        raw.Pack(values=[numbers(shape)], axis=9)


@pytest.mark.parametrize("shape", SHAPES)
def test_pads(shape):
    x = numbers(shape)
    rank = len(shape)
    for before, after in ((0, 0), (2, 1), (0, 3)):
        paddings = np.full((rank, 2), (before, after), np.int32).reshape(rank, 2)
        same(raw.Pad, {"input": x}, paddings=paddings)
        same(raw.PadV2, {"input": x}, paddings=paddings, constant_values=tf.constant(-9))
    for mode in ("REFLECT", "SYMMETRIC") if 0 not in shape else ():  # the CPU refuses such
        most = [max(size - (mode == "REFLECT"), 0) for size in shape]
        paddings = np.array([(most, 0) for most in most], np.int32).reshape(rank, 2)
        same(raw.MirrorPad, {"input": x}, paddings=paddings, mode=mode)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_repeated_and_turned(shape):
    x = numbers(shape)
    rank = len(shape)
    for multiples in (1, 2, 0):
        same(raw.Tile, {"input": x}, multiples=[multiples] * rank)
    same(raw.BroadcastTo, {"input": x}, shape=[2, 1, *(3 if size == 1 else size for size in shape)])
    for perm in (range(rank), reversed(range(rank)), np.roll(range(rank), 1)):
        same(raw.Transpose, {"x": x}, perm=np.array(list(perm), np.int32))


def test_slices():
    x = numbers((5, 6, 7))
    for key in (
        {"begin": [1, 0, 2], "end": [4, 6, 7], "strides": [1, 2, 3]},
        {"begin": [4, 5, 6], "end": [0, 0, 0], "strides": [-1, -2, -3], "end_mask": 1},
        {"begin": [2], "end": [3], "strides": [1], "shrink_axis_mask": 1},
        {"begin": [0, 0, 0], "end": [0, 6, 7], "strides": [1, 1, 1]},
        {"begin": [0, 0, 1], "end": [0, 0, 5], "strides": [1, 1, 1], "ellipsis_mask": 1, "new_axis_mask": 2},
        {"begin": [0], "end": [5], "strides": [1]},
    ):  # fmt: skip
        same(raw.StridedSlice, {"input": x}, **key)
        part = raw.StridedSlice(input=x, **key).numpy()
        same(raw.StridedSliceGrad, {"dy": part}, shape=[5, 6, 7], **key)
        same(raw.TensorStridedSliceUpdate, {"input": x, "value": part + 1}, **key)
        same(raw.TensorStridedSliceUpdate, {"input": x, "value": np.int32(3)}, **key)


def test_an_input_that_others_read_stays_as_it_is():
    with tf.device("GPU:0"):
        x = tf.constant([1, 2, 3, 4])
        changed = raw.TensorStridedSliceUpdate(input=x, begin=[1], end=[3], strides=[1], value=9)
    assert x.numpy().tolist() == [1, 2, 3, 4]
    assert changed.numpy().tolist() == [1, 9, 9, 4]


@pytest.mark.parametrize("traced", [False, True])
def test_functions_that_calculate_shapes(traced):
    """With soft placement off; a control that it is."""
    values = np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32)

    def calls(x):
        size = tf.shape(x)
        rows, columns = tf.unstack(size)
        return [
            tf.reshape(x, tf.stack([rows * columns, 1])),
            tf.reshape(x, tf.reduce_prod(size)[None]),
            tf.ones(tf.pad(size[:1], [[1, 1]], constant_values=2)),
            tf.sort(x),
            tf.argsort(x, direction="DESCENDING"),
            tf.boolean_mask(x, x > 0),
            tf.repeat(x, [1, 0, 2, 1, 3], 0),
            tf.math.real(tf.signal.stft(tf.reshape(x, [-1]), 8, 4)),
            tf.tensordot(x, x, [[1], [1]]),
            tf.meshgrid(tf.range(rows), tf.range(columns))[0],
        ]

    def run(x):
        return (tf.function(calls) if traced else calls)(x)

    with tf.device("CPU:0"):
        wanted = run(tf.constant(values))
    with tf.device("GPU:0"):
        got = run(tf.constant(values))
        with pytest.raises(tf.errors.InvalidArgumentError, match="enable_soft_placement=0"):
            tf.linalg.inv(tf.eye(2))
    for i, (result, want) in enumerate(zip(got, wanted, strict=True)):
        assert result.device.endswith("GPU:0"), i
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5, err_msg=str(i))
