"""Sparse matrices by dense ones, and unique elements, on the device against the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_layers import check, run

raw = tf.raw_ops


def sparse(rows, columns, n, index="int64"):
    rng = np.random.default_rng(n)
    places = np.stack([rng.integers(0, max(rows, 1), n), rng.integers(0, max(columns, 1), n)], 1)
    return {
        "a_indices": tf.constant(places.astype(index).reshape(-1, 2)),
        "a_values": tf.constant(rng.normal(size=n).astype("f")),
        "a_shape": tf.constant([rows, columns], tf.int64),
    }


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("adjoint_a", [False, True])
@pytest.mark.parametrize("adjoint_b", [False, True])
def test_sparse_by_dense(index, adjoint_a, adjoint_b):
    for rows, inner, columns, n in [
        (1, 1, 1, 1),
        (3, 4, 5, 6),
        (40, 30, 33, 200),
        (4, 5, 300, 9),
        (7, 5, 16, 0),
        (3, 2, 0, 2),
        (5, 0, 3, 0),
    ]:
        a = sparse(*((inner, rows) if adjoint_a else (rows, inner)), n, index)
        b = np.random.default_rng(1).normal(
            size=(columns, inner) if adjoint_b else (inner, columns)
        )
        inputs = a | {"b": tf.constant(b.astype("f"))}
        check(
            raw.SparseTensorDenseMatMul,
            inputs,
            host=["a_shape"],
            adjoint_a=adjoint_a,
            adjoint_b=adjoint_b,
        )


def test_gradients_of_sparse_by_dense():
    a = sparse(4, 3, 7)
    b = tf.constant(np.random.default_rng(1).normal(size=(3, 5)).astype("f"))

    def product(values, b):
        return tf.sparse.sparse_dense_matmul(tf.SparseTensor(a["a_indices"], values, [4, 3]), b)

    with tf.device("GPU:0"):
        theory, numbers = tf.test.compute_gradient(product, [a["a_values"], b], delta=1e-2)
    for x, y in zip(theory, numbers, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-3)


def test_bad_products():
    a = sparse(4, 3, 7)
    for change, says in [
        (dict(b=tf.ones([4, 2])), "inner dimension"),
        (dict(b=tf.ones([3])), "rank 2|2 dimensions"),
        (dict(b=tf.ones([3, 2]), a_values=tf.ones([3])), r"\[n, 2\]|must be equal"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=says):
            run(raw.SparseTensorDenseMatMul, a | change, host=["a_shape"])


@pytest.mark.parametrize(
    "types",
    [("float32", "float32"), ("float32", "bfloat16"), ("bfloat16", "float32"), ("bfloat16",) * 2],
)
def test_products_of_many_zeros(types):
    rng = np.random.default_rng(6)
    for rows, inner, columns in [(1, 1, 1), (3, 5, 7), (33, 65, 17), (2, 0, 3), (0, 2, 3)]:
        for transpose_a in (False, True):
            for transpose_b in (False, True):
                a = rng.normal(size=(inner, rows) if transpose_a else (rows, inner))
                b = rng.normal(size=(columns, inner) if transpose_b else (inner, columns))
                a, b = (
                    tf.cast(tf.constant(x * (rng.random(x.shape) < 0.5)), t)
                    for x, t in zip((a, b), types, strict=True)
                )
                flags = dict(transpose_a=transpose_a, transpose_b=transpose_b)
                (got,) = run(raw.SparseMatMul, dict(a=a, b=b), **flags)
                want = tf.matmul(tf.cast(a, tf.float64), tf.cast(b, tf.float64), **flags)
                assert got.dtype == tf.float32
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="SparseMatMul|must be equal"):
        run(raw.SparseMatMul, dict(a=tf.ones([2, 3]), b=tf.ones([2, 3])))


TYPES = [
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint64",
]


@pytest.mark.parametrize("dtype", TYPES)
def test_unique(dtype):
    for n in (0, 1, 7, 1000):
        x = tf.cast(tf.constant(np.random.default_rng(n).integers(0, 20, n)), dtype)
        for index in (tf.int32, tf.int64):
            check(raw.UniqueWithCounts, dict(x=x), error=0, widen=False, out_idx=index)
            for op in (raw.UniqueV2, raw.UniqueWithCountsV2):
                check(
                    op, dict(x=x, axis=tf.zeros([0], tf.int64)), error=0, widen=False, out_idx=index
                )
    rows = tf.cast(tf.constant(np.random.default_rng(3).integers(0, 2, (9, 3, 2))), dtype)
    for axis in (0, 1, 2, -1):
        for op in (raw.UniqueV2, raw.UniqueWithCountsV2):
            check(op, dict(x=rows, axis=tf.constant([axis])), error=0, widen=False)


@pytest.mark.parametrize("dtype", ["int8", "float16", "int32", "float32", "int64"])
def test_unique_of_many(dtype):
    rng = np.random.default_rng(5)
    x = tf.cast(tf.constant(rng.integers(-20000, 20000, 40000)), dtype)
    check(raw.UniqueWithCounts, dict(x=x), error=0, widen=False)
    rows = tf.cast(tf.constant(rng.integers(0, 100, (6000, 2))), dtype)
    check(raw.UniqueV2, dict(x=rows, axis=tf.constant([0])), error=0, widen=False)


def test_unique_of_zeros_and_nan():
    x = tf.constant([0.0, -0.0, np.nan, 1.0, np.nan, np.inf, 0.0])
    check(raw.UniqueWithCounts, dict(x=x), error=0)
    for name in ("float16", "bfloat16", "float64"):
        y, where, counts = run(raw.UniqueWithCounts, dict(x=tf.cast(x, name)))
        np.testing.assert_array_equal(where, [0, 0, 1, 2, 3, 4, 0])
        np.testing.assert_array_equal(counts, [3, 1, 1, 1, 1])
        np.testing.assert_array_equal(tf.cast(y, tf.float32), [0, np.nan, 1, np.nan, np.inf])


def test_unique_in_functions():
    @tf.function
    def counted(x):
        y, where, counts = tf.unique_with_counts(x * 2.0)
        return tf.gather(y * tf.cast(counts, tf.float32), where)

    with tf.device("GPU:0"):
        got = counted(tf.identity(tf.constant([1.0, 3.0, 1.0])))
    np.testing.assert_array_equal(got, [4, 6, 4])


@pytest.mark.parametrize(
    ("x", "axis"), [(tf.ones([2, 2]), []), (tf.ones([2, 2]), [2]), (tf.ones([2, 2]), [0, 1])]
)
def test_bad_unique(x, axis):
    with pytest.raises(tf.errors.InvalidArgumentError, match="axis|vector|1D"):
        run(raw.UniqueV2, dict(x=x, axis=tf.constant(axis, tf.int64)))
