"""Pools with windows of k and k + 1 rows and columns, and their gradients, against TensorFlow's on the CPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_ops import on_device, random

raw = tf.raw_ops
DTYPES = ["float32", "int64"]
# The CPU wants no more windows, and one more each way, than numbers.
IMAGES = [(1, 4, 4, 2), (2, 7, 9, 3), (1, 10, 5, 17), (3, 4, 25, 2)]
RATIOS = [(1.0, 1.0), (1.4, 1.73), (2.0, 1.2), (1.99, 2.0)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("pseudo_random", [False, True])
def test_pool_and_gradient(dtype, overlapping, pseudo_random):
    for shape, (rows, columns), seed in itertools.product(IMAGES, RATIOS, [(3, 4), (-1, 2**40)]):
        x = random(shape, dtype) // 9 if dtype.startswith("i") else random(shape, dtype)
        found = []
        for device in ("GPU:0", "CPU:0"):
            with tf.device(device):
                image = tf.identity(x)
                given = dict(
                    pooling_ratio=[1.0, rows, columns, 1.0], seed=seed[0], seed2=seed[1], deterministic=True,
                    overlapping=overlapping, pseudo_random=pseudo_random)  # fmt: skip
                pools = [raw.FractionalMaxPool(value=image, **given) for _ in range(2)]
                y, at_rows, at_columns = pools[0]
                assert y.device.endswith(device)
                slopes = tf.identity(random(y.shape, dtype, seed=7))
                back = raw.FractionalMaxPoolGrad(
                    orig_input=image, orig_output=y, out_backprop=slopes, row_pooling_sequence=at_rows,
                    col_pooling_sequence=at_columns, overlapping=overlapping)  # fmt: skip
                assert back.device.endswith(device)
                found.append([t.numpy() for t in (*pools[0], *pools[1], back)])
        for got, want in zip(*found, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


def test_gradient_by_name_and_without_a_seed():
    x = tf.constant(random((2, 8, 9, 3), "float32"))
    with tf.device("GPU:0"), tf.GradientTape() as tape:
        image = tf.identity(x)
        tape.watch(image)
        y, rows, _ = raw.FractionalMaxPool(value=image, pooling_ratio=[1.0, 1.6, 1.3, 1.0])
        loss = tf.reduce_sum(y)
    np.testing.assert_allclose(on_device(tape.gradient(loss, image)).sum(), y.shape.num_elements())
    assert y.shape == (2, 5, 6, 3) and rows.numpy()[-1] == 8
    borders = set()
    with tf.device("GPU:0"):
        for _ in range(20):
            _, rows, _ = raw.FractionalMaxPool(value=image, pooling_ratio=[1.0, 1.6, 1.3, 1.0])
            borders.add(tuple(rows.numpy()))
    assert len(borders) > 1


IMAGE = np.ones((2, 6, 7, 3), np.float32)


def pool(value=IMAGE, ratio=(1.0, 1.5, 1.5, 1.0), **given):
    return raw.FractionalMaxPool(value=value, pooling_ratio=ratio, **given)


def grad(**given):
    pooled = np.ones((2, 4, 4, 3), np.float32)
    made = dict(orig_input=IMAGE, orig_output=pooled, out_backprop=pooled, row_pooling_sequence=[0, 1, 2, 4, 6],
                col_pooling_sequence=[0, 2, 4, 5, 7])  # fmt: skip
    return raw.FractionalMaxPoolGrad(**made | given)


BAD = {
    "rank": lambda: pool(np.ones((2, 3), np.float32)),
    "ratio": lambda: pool(ratio=(1.0, 0.5, 1.5, 1.0)),
    "batch": lambda: pool(ratio=(1.5, 1.5, 1.5, 1.0)),
    "size": lambda: pool(ratio=(1.0, 9.0, 1.5, 1.0)),
    "seed": lambda: pool(seed=3),
    "empty": lambda: pool(IMAGE[:0]),
    "gradient, rank": lambda: grad(orig_input=IMAGE[0]),
    "gradient, empty": lambda: grad(orig_input=IMAGE[:0]),
    "gradient, pooled": lambda: grad(orig_output=IMAGE[0]),
    "gradient, nothing pooled": lambda: grad(orig_output=IMAGE[:0]),
    "gradient, vector": lambda: grad(row_pooling_sequence=[[0, 1]]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    """With TensorFlow's words, after the op's name."""
    said = []
    for device in ("CPU:0", "GPU:0"):
        with tf.device(device), pytest.raises(tf.errors.OpError) as error:
            BAD[name]()
        said.append(error.value.message.split("}} ", 1)[-1].rsplit(" [Op:", 1)[0].replace(" ", ""))
    assert said[0].split("Tensor<")[0] in said[1].replace("gotshape", "got"), said


@pytest.mark.parametrize(
    "rows", [[0, 1, 2, 4], [-3, 1, 3, 4, 6], [0, 1, 2, 4, 7], [0, 3, 2, 4, 6], [0, 2, 2, 4, 6]]
)
def test_windows_that_are_none(rows):
    """TensorFlow compares what they pool to; here they are refused before."""
    with (
        tf.device("GPU:0"),
        pytest.raises(tf.errors.InvalidArgumentError, match="row_pooling_sequence must be 5 num"),
    ):
        grad(row_pooling_sequence=rows)
    with (
        tf.device("GPU:0"),
        pytest.raises(tf.errors.InvalidArgumentError, match="must have one shape"),
    ):
        grad(out_backprop=np.ones((2, 4, 4, 2), np.float32))
