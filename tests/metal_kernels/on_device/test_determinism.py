"""Table gradients under op determinism: exact to the bit, whatever the order of the device's threads."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import cases, test_hash_encode
from tests.metal_kernels.on_device.test_hash_encode import CASE, OPS, TABLE_GRADIENTS, call, run

tf.config.experimental.enable_op_determinism()


@pytest.mark.parametrize("op", TABLE_GRADIENTS)
@pytest.mark.parametrize("case", cases.HASH_ENCODE_CASES, ids=str)
def test_sweep(case: cases.Case, op: str) -> None:
    names, formula, _ = OPS[op]
    expected, bound = formula(*(case.arrays[name] for name in names), case.oracle_grid)
    actual = run(op, case, "GPU:0")
    assert actual.device.endswith("GPU:0")
    cases.assert_close(actual.numpy(), expected, bound, case.dtype)


@pytest.mark.parametrize("op", TABLE_GRADIENTS)
def test_the_order_of_the_points_does_not_matter(op: str) -> None:
    # Stronger than running twice: atomic float adds fail this even where threads happen to come in the same order.
    first = call(op, "GPU:0").numpy()
    assert np.count_nonzero(first) > 1000
    order = np.random.default_rng(1).permutation(CASE.n_points)
    shuffled = {name: CASE.arrays[name][order] for name in ("g", "points", "v")}
    np.testing.assert_array_equal(call(op, "GPU:0", **shuffled).numpy(), first)


@pytest.mark.parametrize("op", ["HashEncodeGrad", "HashEncodeJvpGrad"])
def test_unaligned_tensors(op: str) -> None:
    base = test_hash_encode.BASE
    arrays = dict(base.arrays)
    with tf.device("GPU:0"):
        expected = test_hash_encode.run(op, arrays, base.grid)
        assert expected.device.endswith("GPU:0") and np.count_nonzero(expected) > 50
        for offset in (1, 3):
            result = test_hash_encode.run(op, test_hash_encode.unaligned(arrays, offset), base.grid)
            np.testing.assert_array_equal(result.numpy(), expected.numpy())


# Three points at the origin of a level of 4 x 4 rows: position 0.5, so each of the four corners gets a quarter of g.
EXTREMES: dict[str, tuple[list[float], float]] = {
    "inf": ([np.inf, 1.0, 2.0], np.inf),
    "-inf": ([-np.inf, 1.0, 2.0], -np.inf),
    "inf - inf": ([np.inf, 1.0, -np.inf], np.nan),
    "nan": ([np.nan, 1.0, 2.0], np.nan),
    "cancels": ([1e38, 2e38, -3e38], 0.0),
    "no overflow on the way": ([3e38, 3e38, -3e38], 3e38),
    "subnormal": ([1e-39, 1e-39, 0.0], 2e-39),
    "too small beside 1": ([1.0, 1e-30, -1.0], 0.0),
    "signs": ([-1.5, -2.5, 1.0], -3.0),
}


@pytest.mark.parametrize(("g", "expected"), EXTREMES.values(), ids=EXTREMES)
def test_extreme_sums(g: list[float], expected: float) -> None:
    with tf.device("GPU:0"):
        gradient = raw_ops.hash_encode_grad(
            tf.constant(np.array(g, np.float32)[:, None]),
            tf.constant(np.zeros((3, 2), np.float32)),
            tf.constant(np.zeros((16, 1), np.float32)),
            tf.constant([0, 16]),
            log2_per_level_scale=0.0,
            resolution_coarsest=4,
        ).numpy()
    # Rounded once; float32 could lose 1e-7 of the largest term.
    tolerance = 1e-7 * np.max(np.abs(g)) if np.isfinite(g).all() else 0.0
    np.testing.assert_allclose(gradient[0] * 4, expected, rtol=1e-6, atol=tolerance)
