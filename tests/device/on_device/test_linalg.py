"""Triangular systems and decompositions of matrices on the device, against NumPy and their definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_layers import run
from tests.device.test_loading import ON_GPU

raw = tf.raw_ops
SHAPES = [(1, 1), (2, 2), (5, 5), (3, 7, 7), (2, 2, 4, 4), (16, 16), (65, 65), (130, 130)]


def matrices(shape, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype == "complex64" else 0)
    return x.astype(dtype)


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def wide(x):
    return x.astype("complex128" if np.iscomplexobj(x) else "float64")


def near(got, want, error=1e-4):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    assert np.abs(got - want).max(initial=0) <= error * np.abs(want).max(initial=1e-30)


def well_conditioned(shape, dtype, seed=0):
    """Its triangles are well conditioned."""
    return (matrices(shape, dtype, seed) / shape[-1] + 2 * np.eye(shape[-1])).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_triangular_solve(dtype):
    for batch, side, n, k in [((), (), 1, 1), ((), (), 5, 3), ((2,), (2,), 7, 16), ((), (3,), 4, 17),
                              ((3, 1), (2,), 4, 2), ((), (), 65, 40), ((2,), (), 33, 1),
                              ((0,), (0,), 3, 2), ((), (), 3, 0)]:  # fmt: skip
        a, b = well_conditioned((*batch, n, n), dtype), matrices((*side, n, k), dtype, 1)
        for lower in (False, True):
            for conjugated in (False, True):
                (got,) = run(
                    raw.MatrixTriangularSolve,
                    dict(matrix=tf.constant(a), rhs=tf.constant(b)),
                    lower=lower,
                    adjoint=conjugated,
                )
                # The other side of the diagonal does not count.
                triangle = wide(np.tril(a) if lower else np.triu(a))
                triangle = adjoint(triangle) if conjugated else triangle
                near(got, np.linalg.solve(triangle, wide(b)), 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_cholesky(dtype):
    for shape in [*SHAPES, (0, 3, 3), (0, 0)]:
        half = matrices(shape, dtype)
        whole = (half @ adjoint(half) + np.eye(shape[-1])).astype(dtype)
        unread = np.triu(np.full(shape, 7), 1).astype(dtype)
        (got,) = run(raw.Cholesky, dict(input=tf.constant(np.tril(whole) + unread)))
        near(got, np.linalg.cholesky(wide(whole)), 2e-5)
    (got,) = run(raw.Cholesky, dict(input=tf.constant([[1.0, 2.0], [2.0, 1.0]])))
    assert np.isnan(got.numpy()[1, 1])


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("index", [tf.int32, tf.int64])
def test_lu(dtype, index):
    for shape in [*SHAPES, (0, 3, 3), (0, 0)]:
        x = matrices(shape, dtype)
        got, order = run(raw.Lu, dict(input=tf.constant(x)), output_idx_type=index)
        with tf.device("CPU:0"):
            want, places = raw.Lu(input=x, output_idx_type=index)
        np.testing.assert_array_equal(order, places)
        near(got, want, 1e-4)
        lower = np.tril(wide(got.numpy()), -1) + np.eye(shape[-1])
        rows = np.take_along_axis(x, order.numpy()[..., None], -2)
        near(lower @ np.triu(wide(got.numpy())), rows, 2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
@pytest.mark.parametrize("full", [False, True])
def test_qr(dtype, full):
    error = 4e-3 if dtype == "float16" else 2e-5
    for shape in [*SHAPES, (7, 3), (3, 7), (2, 9, 4), (100, 1), (1, 5), (0, 4, 2), (4, 0), (0, 4)]:
        x = matrices(shape, dtype)
        q, r = run(raw.Qr, dict(input=tf.constant(x)), full_matrices=full)
        rows, columns = shape[-2:]
        kept = rows if full else min(rows, columns)
        assert q.shape == (*shape[:-1], kept) and r.shape == (*shape[:-2], kept, columns)
        near(wide(q.numpy()) @ wide(r.numpy()), x, error)
        near(
            adjoint(wide(q.numpy())) @ wide(q.numpy()),
            np.broadcast_to(np.eye(kept), (*shape[:-2], kept, kept)),
            error,
        )
        np.testing.assert_array_equal(np.tril(r.numpy(), -1), 0)
        if 0 not in shape:
            with tf.device("CPU:0"):
                same = x.astype("f") if dtype == "float16" else x
                want = raw.Qr(input=tf.constant(same), full_matrices=full)
            near(r.numpy(), want.r, 1e-2 if dtype == "float16" else 1e-4)
    zeros = run(raw.Qr, dict(input=tf.zeros([3, 2], dtype)), full_matrices=full)
    near(zeros[0], np.eye(3)[:, : 3 if full else 2])


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("way", ["jacobi", "ql"])
def test_eigenvalues(way, dtype, monkeypatch):
    if way == "ql" and ON_GPU:
        pytest.skip("one thread a matrix: not compiled for GPUs")
    monkeypatch.setenv("METAL_OPS_EIGEN", way)
    large = [(3, 64, 64)] if dtype == "float32" else []
    for shape in [*SHAPES, *large, (0, 3, 3), (0, 0)]:
        x = matrices(shape, dtype)
        x = (x + adjoint(x)).astype(dtype)
        unread = np.triu(np.full(shape, 7), 1).astype(dtype)
        e, v = run(raw.SelfAdjointEigV2, dict(input=tf.constant(np.tril(x) + unread)))
        assert e.dtype == v.dtype == dtype
        near(e, np.linalg.eigvalsh(wide(x)), 1e-5)
        values, vectors = wide(e.numpy()), wide(v.numpy())
        near(vectors * values[..., None, :] @ adjoint(vectors), x, 2e-5)
        near(adjoint(vectors) @ vectors, np.broadcast_to(np.eye(shape[-1]), shape), 2e-5)
        alone, nothing = run(raw.SelfAdjointEigV2, dict(input=tf.constant(x)), compute_v=False)
        np.testing.assert_array_equal(alone, e)
        assert nothing.shape == (0,)
    turned = np.diag([1j, 1j, 1j], 1)  # off the diagonal there is nothing real
    for special in (
        np.zeros((4, 4)),
        np.eye(5),
        np.diag([3.0, 1, 2]),
        np.ones((6, 6)),
        np.eye(3) * 1e18,
        *([turned + adjoint(turned)] if dtype == "complex64" else []),
    ):
        e, v = run(raw.SelfAdjointEigV2, dict(input=tf.constant(special.astype(dtype))))
        near(e, np.linalg.eigvalsh(special), 2e-6)
        near(v.numpy() * e.numpy() @ adjoint(v.numpy()), special, 2e-6)


def test_eigenvalues_that_nobody_finds():
    """No steps without end, and an error that names the ways."""
    for value, dtype in itertools.product((np.nan, np.inf), ("float32", "complex64")):
        x = np.full((5, 5), value, dtype)
        e, _ = run(raw.SelfAdjointEigV2, dict(input=tf.constant(x)))
        assert not np.isfinite(e).any()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METAL_OPS_EIGEN", "best")
        with pytest.raises(tf.errors.InvalidArgumentError, match="'jacobi' or 'ql'"):
            run(raw.SelfAdjointEigV2, dict(input=tf.eye(3)))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", ["triangular_solve", "cholesky", "qr", "eigenvalues"])
def test_gradients(name, dtype):
    a = tf.constant(well_conditioned((2, 4, 4), dtype))
    b = tf.constant(matrices((2, 4, 3), dtype, seed=2))
    function = {
        "triangular_solve": tf.linalg.triangular_solve,
        "cholesky": lambda a, b: tf.linalg.cholesky(a @ tf.linalg.adjoint(a)) @ b,
        "qr": lambda a, b: tf.linalg.qr(a).r @ b,
        "eigenvalues": lambda a, b: tf.linalg.eigh(a @ tf.linalg.adjoint(a))[0][:, :, None] * b,
    }[name]
    found = []
    for device in ("CPU:0", "GPU:0"):
        with tf.device(device):
            theory, numbers = tf.test.compute_gradient(
                tf.function(function), [tf.identity(a), tf.identity(b)], delta=1e-2
            )
        for x, y in zip(theory, numbers, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-2)
        found.append(theory)
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "inputs", "says"),
    [
        (raw.Cholesky, dict(input=tf.ones([3])), "rank 2|at least 2"),
        (raw.Lu, dict(input=tf.ones([2, 3])), "must be equal|square"),
        (raw.SelfAdjointEigV2, dict(input=tf.ones([2, 3])), "must be equal|square"),
        (raw.Qr, dict(input=tf.ones([3])), "rank 2|at least 2"),
        (
            raw.MatrixTriangularSolve,
            dict(matrix=tf.ones([3, 3]), rhs=tf.ones([2, 1])),
            "as many rows",
        ),
        (
            raw.MatrixTriangularSolve,
            dict(matrix=tf.ones([2, 3, 3]), rhs=tf.ones([3, 3, 1])),
            r"\[2\] vs. \[3\]",
        ),
    ],
)
def test_bad(op, inputs, says):
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        run(op, inputs)
