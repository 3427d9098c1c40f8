"""hamming_distance and hamming_top_k against NumPy's bits."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.calls import Call

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

DTYPES = ("uint8", "uint16", "uint32", "uint64", "bool")


def make(*shape, dtype="uint8", seed=0):
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    found = random.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    # Some are equal, so that bytes that differ are not all.
    return np.where(random.integers(0, 3, shape) == 0, np.asarray(7, dtype), found)


CALLS = {
    "hamming_distance": Call(
        metal_ops.hamming_distance, lambda: {"a": make(301, 1, 33), "b": make(103, 33, seed=1)}, ()
    ),
    "hamming_top_k": Call(
        lambda queries, rows: metal_ops.hamming_top_k(queries, rows, 5),
        lambda: {"queries": make(30, 33), "rows": make(203, 33, seed=1)},
        (),
    ),
}


def right(a, b, elements=False):
    if a.dtype == bool or elements:
        return np.sum(a != b, -1, dtype=np.int32)
    return np.sum(np.bitwise_count(a ^ b), -1, dtype=np.int32)


@pytest.mark.parametrize("elements", [False, True])
@pytest.mark.parametrize(
    "n", [0, 1, 3, 4, 7, 8, 12, 16, 32, 33, 64, 127, 128, 131, 256, 320, 1000, 4104]
)
def test_lengths(n, elements):
    """Words, vectors and the remainders of both, from every place in memory."""
    a, b = make(5, n), make(5, n, seed=1)
    a[0], b[0] = 255, 0
    found = metal_ops.hamming_distance(a, b, elements)
    assert found.dtype == tf.int32 and found[0] == n * (1 if elements else 8)
    np.testing.assert_array_equal(found, right(a, b, elements))
    found = metal_ops.hamming_distance(tf.constant(a)[1:, :], tf.constant(b)[:-1], elements)
    np.testing.assert_array_equal(found, right(a[1:], b[:-1], elements))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype):
    a, b = make(7, 1, 13, dtype=dtype), make(5, 13, dtype=dtype, seed=1)
    np.testing.assert_array_equal(metal_ops.hamming_distance(a, b), right(a, b))


SHAPES = [
    ((9,), (9,)),
    ((4, 9), (9,)),
    ((9,), (4, 9)),
    ((70, 1, 32), (130, 32)),  # several tiles each way
    ((1, 130, 32), (70, 1, 32)),
    ((70, 600, 8), (600, 8)),
    ((2, 3, 4, 9), (2, 3, 4, 9)),
    ((2, 1, 4, 9), (3, 1, 9)),
    ((2, 3, 1, 1, 9), (2, 3, 5, 4, 9)),
    ((2, 1, 2, 1, 2, 1, 2, 1, 9), (1, 2, 1, 2, 1, 2, 1, 2, 9)),
    ((1, 1, 9), (1, 9)),
    ((0, 1, 9), (3, 9)),
    ((3, 1, 0), (2, 0)),
]


@pytest.mark.parametrize("a, b", SHAPES, ids=str)
def test_batches_are_broadcast(a, b):
    a, b = make(*a), make(*b, seed=1)
    found = metal_ops.hamming_distance(a, b)
    expected = right(a, b)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_rows_of_many_bytes():
    a, b = np.zeros((2, 1 << 20), np.uint8), np.full((1, 1 << 20), 255, np.uint8)
    assert metal_ops.hamming_distance(a, b).numpy().tolist() == [1 << 23] * 2


@pytest.mark.parametrize(
    "a, b, known",
    [
        ([None, 8], [None, 8], [None]),
        ([None, 1, 8], [3, 8], [None, 3]),
        ([5, 1, None], [None, 8], [5, None]),
        ([None, 8], [4, 8], [4]),
        (None, [3, 8], None),
    ],
    ids=str,
)
def test_shapes_in_graphs(a, b, known):
    @tf.function(input_signature=[tf.TensorSpec(a, tf.uint8), tf.TensorSpec(b, tf.uint8)])
    def run(a, b):
        y = metal_ops.hamming_distance(a, b)
        assert y.shape.rank is None if known is None else y.shape.as_list() == known
        return y

    given = [
        make(*(size or 4 for size in (shape if shape is not None else [2, 1, 8])), seed=i)
        for i, shape in enumerate((a, b))
    ]
    given = [x[..., :1].repeat(8, -1) if x.shape[-1] != 8 else x for x in given]
    np.testing.assert_array_equal(run(*given), right(*given))


def test_there_is_no_gradient():
    x = tf.constant(make(3, 8))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = metal_ops.hamming_distance(x, x[::-1])
    assert tape.gradient(y, x) is None


# ---- the nearest ----------------------------------------------------------------------------------------------------


def nearest(queries, rows, k, elements):
    distances = right(queries[..., None, :], rows, elements)
    order = np.argsort(distances, -1, kind="stable")[..., :k]
    return np.take_along_axis(distances, order, -1), order


@pytest.mark.parametrize("elements", [False, True])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("at_once", [1 << 24, 200])
def test_top_k(shape, elements, at_once, monkeypatch):
    """Rows of one byte have many at the same distance; 200 distances at once are two queries."""
    monkeypatch.setattr(sys.modules["metal_ops.ops.hamming_distance"], "_AT_ONCE", at_once)
    queries, rows = make(*shape, 1), make(100, 1, seed=1)
    for k in (1, 7, 100):
        found = metal_ops.hamming_top_k(queries, rows, k, elements=elements)
        for one, expected in zip(found, nearest(queries, rows, k, elements), strict=True):
            assert one.dtype == tf.int32 and one.shape == (*shape, k)
            np.testing.assert_array_equal(one, expected)


def test_top_k_in_a_graph_of_unknown_sizes():
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.uint64)] * 2)
    def run(queries, rows):
        distances, indices = metal_ops.hamming_top_k(queries, rows, 3)
        assert indices.shape.as_list() == distances.shape.as_list() == [None, 3]
        return distances, indices

    queries, rows = make(4, 3, dtype="uint64"), make(50, 3, dtype="uint64", seed=1)
    for one, expected in zip(run(queries, rows), nearest(queries, rows, 3, False), strict=True):
        np.testing.assert_array_equal(one, expected)


# ---- what is refused ------------------------------------------------------------------------------------------------

X = np.ones((3, 4), np.uint8)


@pytest.mark.parametrize(
    "run, error, words",
    [
        (lambda: metal_ops.hamming_distance(X, X[:, :3]), tf.errors.InvalidArgumentError,
         r"hamming_distance: a and b must have the same last dimension, got \[3, 4\] and \[3, 3\]"),
        (lambda: metal_ops.hamming_distance(X, X[:2]), tf.errors.InvalidArgumentError,
         r"before the last must be equal or 1, got \[3, 4\] and \[2, 4\]"),
        (lambda: metal_ops.hamming_distance(X[0, 0], X[0, 0]), tf.errors.InvalidArgumentError,
         r"must have a last dimension"),
        (lambda: metal_ops.hamming_distance(make(*[2, 1] * 5, 9), make(*[1, 2] * 5, 9)),
         tf.errors.InvalidArgumentError, r"at most 8 dimensions can be broadcast in turns, got 10.*tf.broadcast_to"),
        (lambda: metal_ops.hamming_distance(X, X.astype(np.uint16)), TypeError, r"b: expected dtype uint8 as of a"),
        (lambda: metal_ops.hamming_distance(X.astype(np.int32), X), TypeError, r"\[hamming_distance\] a: expected"),
        (lambda: metal_ops.hamming_distance(X.astype(np.uint16), X.astype(np.uint16), True),
         tf.errors.InvalidArgumentError, r"counted in uint8 and bool, got a type of 2 bytes"),
        (lambda: metal_ops.hamming_top_k(X, X[0]), ValueError, r"\[hamming_top_k\] rows: expected shape \[m, n\]"),
        (lambda: metal_ops.hamming_top_k(X, X, 4), ValueError, r"\[hamming_top_k\] k: .* 3, got 4"),
        (lambda: metal_ops.hamming_top_k(X, X, 0), ValueError, r"k: .* got 0"),
        (lambda: metal_ops.hamming_top_k(X[0, 0], X), ValueError, r"queries: expected shape"),
        (lambda: metal_ops.hamming_top_k(X, X.astype(np.int8)), TypeError, r"\[hamming_top_k\] rows: expected dtype"),
    ],
)  # fmt: skip
def test_bad_calls(run, error, words):
    with pytest.raises(error, match=words):
        run()


def test_eight_alternating_dimensions_are_the_most():
    a, b = make(*[2, 1] * 4, 9), make(*[1, 2] * 4, 9)
    np.testing.assert_array_equal(raw_ops.hamming_distance(a, b), right(a, b))
