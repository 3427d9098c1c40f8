"""Results that are pieces of an argument: the same memory where that can be, and values of their own all the same."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import device
from tests.device.on_device.test_ops import on_device

raw = tf.raw_ops
ROWS, WIDTH = 48, 32  # rows of 128 bytes: each begins where a tensor may
VALUES = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)


def in_use() -> int:
    device.synchronize()
    return device.memory()["in_use"]


# By name: the op, NumPy's word for it, and whether nothing is copied.
PIECES = {
    "unstack": (tf.unstack, list, True),
    "unstack columns": (lambda x: tf.unstack(x, axis=1), lambda x: list(x.T), False),
    "split": (lambda x: tf.split(x, 4), lambda x: np.split(x, 4), True),
    "split into one": (lambda x: tf.split(x, 1, axis=1), lambda x: [x], True),
    "split columns": (lambda x: tf.split(x, 4, 1), lambda x: np.split(x, 4, 1), False),
    "split by sizes": (
        lambda x: tf.split(x, [1, 0, 40, 7]),
        lambda x: np.split(x, [1, 1, 41]),
        True,
    ),
    "slice": (lambda x: [tf.slice(x, [2, 0], [3, -1])], lambda x: [x[2:5]], True),
    "slice of all": (lambda x: [tf.slice(x, [0, 0], [-1, -1])], lambda x: [x], True),
    "slice of nothing": (lambda x: [tf.slice(x, [3, 0], [0, -1])], lambda x: [x[3:3]], True),
    "slice, not aligned": (lambda x: [x[3, 1:]], lambda x: [x[3, 1:]], False),
    "within a row": (lambda x: [x[3, 16:30]], lambda x: [x[3, 16:30]], True),
    "of each row": (lambda x: [x[:, :16]], lambda x: [x[:, :16]], False),
    "backwards": (lambda x: [x[::-1]], lambda x: [x[::-1]], False),
    "every other row": (lambda x: [x[::2]], lambda x: [x[::2]], False),
    "one row, with an axis": (lambda x: [x[5, tf.newaxis]], lambda x: [x[5, None]], True),
    "transposed axis of one": (
        lambda x: [tf.transpose(x[:1])],
        lambda x: [x[:1].T],
        True,
    ),
    "transposed": (lambda x: [tf.transpose(x)], lambda x: [x.T], False),
    "once in a row": (lambda x: [tf.tile(x, [1, 1])], lambda x: [x], True),
    "twice in a row": (lambda x: [tf.tile(x, [2, 1])], lambda x: [np.tile(x, [2, 1])], False),
    "broadcast to its own shape": (
        lambda x: [tf.broadcast_to(x, x.shape)],
        lambda x: [x],
        True,
    ),
    "broadcast": (
        lambda x: [tf.broadcast_to(x, [2, ROWS, WIDTH])],
        lambda x: [np.stack([x, x])],
        False,
    ),
    "stack of one": (lambda x: [tf.stack([x], axis=1)], lambda x: [x[:, None]], True),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces(name):
    function, numpys, shares = PIECES[name]
    with tf.device("GPU:0"):
        x = tf.identity(tf.constant(VALUES))
        before = in_use()
        results = function(x)
        taken = in_use() - before
        # Nothing has a few bytes, too.
        assert taken < 64 if shares else taken >= 4 * 31
        del x  # its memory stays
        squares = [tf.square(result) for result in results]
    wanted = numpys(VALUES)
    assert len(results) == len(wanted)
    for result, square, want in zip(results, squares, wanted, strict=True):
        np.testing.assert_array_equal(on_device(result), want)
        np.testing.assert_array_equal(on_device(square), np.square(want))


@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float64", "complex128", "int64"])
def test_dtypes(dtype):
    values = tf.cast(tf.constant(VALUES % 5), dtype)
    with tf.device("GPU:0"):
        pieces = tf.unstack(tf.identity(values))
    for piece, want in zip(pieces, values.numpy(), strict=True):
        np.testing.assert_array_equal(on_device(piece), want)


def test_variables_of_pieces_and_pieces_of_variables():
    """Writing a variable leaves alone the tensors that share its memory."""
    with tf.device("GPU:0"):
        x = tf.identity(tf.constant(VALUES))
        low, high = tf.split(x, 2)
        variable = tf.Variable(tf.zeros_like(low))
        variable.assign(low)
        variable.assign_add(high)
        variable[0].assign(tf.zeros([WIDTH]))
        for part, want in ((x, VALUES), (low, VALUES[:24]), (high, VALUES[24:])):
            np.testing.assert_array_equal(on_device(part + 0.0), want)
        want = VALUES[:24] + VALUES[24:]
        want[0] = 0
        # A part that is shared with nothing.
        lone = tf.Variable(tf.zeros_like(low))
        lone.assign(tf.split(x, 2)[1])
        lone.assign_add(low)
        np.testing.assert_array_equal(on_device(lone.read_value()), VALUES[:24] + VALUES[24:])
        # Not x itself, whose copy on the host TensorFlow keeps.
        np.testing.assert_array_equal(on_device(x + 0.0), VALUES)
        rows = variable[2:4]
        np.testing.assert_array_equal(on_device(rows), want[2:4])
        variable.assign_sub(tf.ones_like(low))
        variable.scatter_update(tf.IndexedSlices(tf.ones([1, WIDTH]), tf.constant([2])))
        np.testing.assert_array_equal(on_device(rows + 0.0), want[2:4])
        want -= 1
        want[2] = 1
        np.testing.assert_array_equal(on_device(variable.read_value()), want)


def test_pieces_in_functions():
    with tf.device("GPU:0"):

        @tf.function
        def together(x):
            first, second, third = tf.split(x * 1.0, 3)  # memory of the function's own
            negative = -first
            return negative, tf.nn.relu(second - 700.0), third, tf.exp(negative * 1e-3) + third

        for _ in range(2):
            x = tf.identity(tf.constant(VALUES))
            results = together(x)
            first, second, third = np.split(VALUES, 3)
            np.testing.assert_array_equal(on_device(results[0]), -first)
            np.testing.assert_array_equal(on_device(results[1]), np.maximum(second - 700, 0))
            np.testing.assert_array_equal(on_device(results[2]), third)
            np.testing.assert_allclose(on_device(results[3]), np.exp(-first * 1e-3) + third, 1e-6)
            np.testing.assert_array_equal(on_device(x + 0.0), VALUES)


def test_memory_goes_with_the_last_piece():
    with tf.device("GPU:0"):
        x = tf.identity(tf.constant(VALUES))
        whole = in_use()
        before = whole - VALUES.nbytes
        piece = x[1:]
        for _ in range(8):  # parts of parts
            piece = piece[1:]
        del x
        assert in_use() == whole
        np.testing.assert_array_equal(on_device(piece), VALUES[9:])
        del piece
        assert in_use() == before

        # However many have been one of the other.
        rows = tf.zeros([3000, 16])
        while len(rows) > 1:
            rows = rows[1:]
        del rows
        assert in_use() == before


# Elements of each size, sides of fewer than a tile, of several and a part, of more than a thread turns.
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex64", "complex128"])
def test_turned(dtype):
    for shape, perm in [
        ((7, 8), (1, 0)),
        ((8, 9), (1, 0)),
        ((67, 130), (1, 0)),
        ((1030, 515), (1, 0)),
        ((3, 200, 70), (0, 2, 1)),
        ((3, 40, 5, 70), (3, 1, 0, 2)),
    ]:
        x = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)
        with tf.device("GPU:0"):
            got = tf.raw_ops.Transpose(x=tf.identity(tf.constant(x)), perm=perm)
        np.testing.assert_array_equal(on_device(got), x.transpose(perm))
