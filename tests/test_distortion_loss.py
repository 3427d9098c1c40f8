"""distortion_loss against the double sum of equation 15, and its gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import metal_ops
from tests.calls import Call, samples
from tests.oracles import numeric, rays

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# Running sums in double; t_end - t_start is rounded once in float32.
TOLERANCE = 1e-6


def make(counts, seed=0, offset=0.0):
    random = np.random.default_rng(seed)
    n = int(np.sum(counts))
    t = np.concatenate([np.sort(random.uniform(0, 4, c)) for c in counts] + [[]]) + offset
    length = random.uniform(0.0, 0.05, n)
    return {
        "weights": random.uniform(0, 1, n).astype(np.float32),
        "t_starts": t.astype(np.float32),
        "t_ends": (t + length).astype(np.float32),
        "packed_info": rays.pack(counts).astype(np.int32).reshape(-1, 2),
    }


def in_order(case):
    """Intervals of different lengths may have their middles out of order; the oracle does not mind, the op does."""
    for start, count in case["packed_info"]:
        ray = slice(start, start + count)
        middle = case["t_starts"][ray].astype(np.float64) + case["t_ends"][ray]
        order = np.argsort(middle, kind="stable") + start
        for name in ("weights", "t_starts", "t_ends"):
            case[name][ray] = case[name][order]
    return case


@pytest.mark.parametrize("counts", [[], [0], [1], [0, 2, 0, 9, 1], [64, 65, 300]], ids=str)
def test_value(counts):
    case = in_order(make(counts))
    actual = metal_ops.distortion_loss(**case)
    expected = rays.distortion(**case)
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE)


def test_one_interval_and_identities():
    """One interval: a third of its length. Doubling the weights: four times. Moving the ray: nothing."""
    assert metal_ops.distortion_loss([[1.0]], [[2.0]], [[5.0]]).numpy() == 1.0
    case = in_order(make([50]))
    loss = metal_ops.distortion_loss(**case)
    twice = metal_ops.distortion_loss(**{**case, "weights": 2 * case["weights"]})
    np.testing.assert_array_equal(4 * loss, twice)
    moved = {name: case[name] + np.float32(1024) for name in ("t_starts", "t_ends")}
    back = {name: moved[name] - np.float32(1024) for name in moved}
    np.testing.assert_array_equal(
        metal_ops.distortion_loss(**{**case, **moved}),
        metal_ops.distortion_loss(**{**case, **back}),
    )


def test_dense_and_indices():
    case = in_order(make([20] * 5))
    packed = metal_ops.distortion_loss(**case)
    info = case.pop("packed_info")
    by_index = metal_ops.distortion_loss(**case, ray_indices=np.repeat(np.arange(5), 20), n_rays=5)
    dense = metal_ops.distortion_loss(**{k: v.reshape(5, 20) for k, v in case.items()})
    np.testing.assert_array_equal(packed, by_index)
    np.testing.assert_array_equal(packed, dense)
    info[4, 1] += 1
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"packed_info\[4\] must be"):
        metal_ops.distortion_loss(**case, packed_info=info)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_gradients(dense, graph):
    counts = [21, 21] if dense else [7, 0, 1, 12, 33]
    case = in_order(make(counts, seed=1))
    info = case.pop("packed_info")
    mix = np.random.default_rng(0).normal(size=len(counts)) + 0.5
    shape = [2, 21] if dense else [sum(counts)]

    def gradients(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = metal_ops.distortion_loss(
                **values, packed_info=None if dense else info, t_gradients=True
            )
            total = tf.reduce_sum(loss * tf.cast(mix, tf.float32))
        return tape.gradient(total, values)

    values = {name: tf.reshape(value, shape) for name, value in case.items()}
    actual = (tf.function(gradients) if graph else gradients)(values)
    for name in case:
        expected = numeric.gradient(
            lambda v, name=name: mix @ rays.distortion(**{**case, name: v}, packed_info=info),
            case[name],
        )
        numeric.assert_gradient(tf.reshape(actual[name], [-1]), expected, 3e-6, name)


def test_a_hundred_thousand_samples():
    """O(n): the double sum would have 10^10 terms. Equal weights over [0, 1] give n^2 w^2 / 3."""
    n = 100_000
    t = np.linspace(0, 1, n + 1, dtype=np.float32)
    weights = tf.fill([1, n], np.float32(1 / n))
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = metal_ops.distortion_loss(weights, t[None, :-1], t[None, 1:])
    np.testing.assert_allclose(loss, [1 / 3], rtol=1e-5)
    middle = (np.arange(n) + 0.5) / n
    expected = middle**2 + (1 - middle) ** 2  # 2 (A + B) = 2 (m^2 / 2 + (1 - m)^2 / 2)
    np.testing.assert_allclose(tape.gradient(loss, weights)[0], expected, rtol=1e-4)


@settings(max_examples=40, deadline=None)
@given(counts=st.lists(st.integers(0, 40), max_size=20), seed=st.integers(0, 99))
def test_any_packing(counts, seed):
    case = in_order(make(counts, seed))
    np.testing.assert_allclose(
        metal_ops.distortion_loss(**case), rays.distortion(**case), rtol=TOLERANCE, atol=1e-9
    )


@pytest.mark.parametrize("count", [5, 40])
def test_nan_stays_in_its_ray(count):
    for name in ("weights", "t_starts"):
        case = in_order(make([count] * 3))
        clean = metal_ops.distortion_loss(**case).numpy()
        case[name][count + count // 2] = np.nan
        spoilt = metal_ops.distortion_loss(**case).numpy()
        np.testing.assert_array_equal(spoilt[[0, 2]], clean[[0, 2]])
        assert np.isnan(spoilt[1])


@pytest.mark.parametrize("early", [1, 7, 8, 9, 17, 20])
def test_a_sample_before_its_forerunner(early):
    t = np.arange(21, dtype=np.float32)
    t[early] = t[early - 1] - 0.5
    with pytest.raises(tf.errors.InvalidArgumentError, match="must ascend along each ray.*ray 0"):
        metal_ops.distortion_loss(np.ones((1, 21), np.float32), t[None], t[None] + 0.25)


def test_bad_arguments():
    with pytest.raises(tf.errors.InvalidArgumentError, match="must ascend along each ray.*ray 1"):
        metal_ops.distortion_loss(
            [1.0, 1.0, 1.0], [0.0, 2.0, 1.0], [0.1, 2.1, 1.1], [[0, 1], [1, 2]]
        )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"t_ends must have shape \[samples\]"):
        metal_ops.distortion_loss([1.0], [0.0], [0.1, 0.2], [[0, 1]])
    with pytest.raises(TypeError, match="weights: expected dtype float32, got float16"):
        metal_ops.distortion_loss(tf.ones([1, 1], tf.float16), [[0.0]], [[1.0]])


# ---- what sweeps over all ops call ----------------------------------------------------------------------------------


def as_weights(dense: bool = False) -> dict[str, np.ndarray]:
    given = samples(dense)
    return given | {"weights": given.pop("sigmas")}


CALLS = {
    "distortion_loss": Call(
        lambda **a: metal_ops.distortion_loss(**a, t_gradients=True),
        as_weights,
        ("weights", "t_starts", "t_ends"),
    ),
    "distortion_loss, dense": Call(
        metal_ops.distortion_loss, lambda: as_weights(True), ("weights",)
    ),
}
