"""Running sums and products along rays against a plain loop in float64; their gradients against differences."""

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

SCANS = {
    "inclusive_sum": ("sum", False),
    "exclusive_sum": ("sum", True),
    "inclusive_prod": ("prod", False),
    "exclusive_prod": ("prod", True),
}
COUNTS = ([], [0], [1], [0, 3, 0, 0, 7, 1, 0], [300, 17])
# Accumulated in float64 and rounded once: half a unit in the last place, of numbers up to 2^-k times larger.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def inputs_of(counts, dtype="float32", seed=0):
    values = np.random.default_rng(seed).uniform(0.5, 1.5, int(np.sum(counts)))
    return values.astype(tf.as_dtype(dtype).as_numpy_dtype)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("name", SCANS)
def test_scan_is_a_loop(name, counts, reverse, dtype):
    inputs = inputs_of(counts, dtype)
    info = rays.pack(counts).astype(np.int32)
    actual = getattr(metal_ops, name)(inputs, info, reverse=reverse)
    assert actual.dtype == dtype
    expected = rays.scan(inputs, info, *SCANS[name], reverse)
    np.testing.assert_allclose(
        tf.cast(actual, tf.float64), expected, rtol=ROUNDING[dtype] * 1.001, atol=0
    )


@pytest.mark.parametrize("name", SCANS)
def test_packed_by_indices_and_dense_are_one(name):
    scan = getattr(metal_ops, name)
    inputs = inputs_of([5] * 4)
    packed = scan(inputs, rays.pack([5] * 4))
    indices = np.repeat(np.arange(4), 5)
    np.testing.assert_array_equal(packed, scan(inputs, ray_indices=indices, n_rays=4))
    dense = scan(inputs.reshape(4, 5))
    np.testing.assert_array_equal(packed, tf.reshape(dense, [-1]))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize(
    "counts", [[4, 0, 1, 6], [21, 16]], ids=str
)  # shorter than a vector, longer
@pytest.mark.parametrize("name", SCANS)
def test_gradient_is_exact_with_zeros_among_the_factors(name, counts, zeros, reverse):
    info = rays.pack(counts)
    inputs = inputs_of(counts, seed=1)
    inputs[[6, 8][:zeros]] = 0
    mix = np.random.default_rng(2).normal(size=len(inputs)) + 0.5
    x = tf.constant(inputs)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(
            getattr(metal_ops, name)(x, info, reverse=reverse) * tf.cast(mix, tf.float32)
        )
    expected = numeric.gradient(
        lambda x: np.sum(mix * rays.scan(x, info, *SCANS[name], reverse)), inputs
    )
    numeric.assert_gradient(tape.gradient(loss, x), expected, 1e-6, name)


def test_sums_differentiate_any_number_of_times():
    x = tf.constant([1.0, 2.0, 3.0])
    info = [[0, 3]]
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(metal_ops.inclusive_sum(x, info) ** 2)
        slope = tf.reduce_sum(inner.gradient(y, x) ** 2)
    total = np.tril(np.ones((3, 3)))
    hessian = 2 * total.T @ total
    np.testing.assert_allclose(outer.gradient(slope, x), 2 * hessian @ hessian @ x.numpy())


def test_transmittance_identity():
    """nerfacc's: the exclusive product of 1 - alpha is the transmittance of the same densities."""
    random = np.random.default_rng(0)
    sigmas = random.exponential(3, (7, 40)).astype(np.float32)
    t = np.sort(random.uniform(size=(7, 41)).astype(np.float32), axis=1)
    _, transmittance = metal_ops.render_weights(sigmas, t[:, :-1], t[:, 1:])
    passed = tf.exp(-sigmas * (t[:, 1:] - t[:, :-1]))
    # 40 factors, each rounded twice
    np.testing.assert_allclose(
        metal_ops.exclusive_prod(passed), transmittance, rtol=40 * 2 * 2.0**-23
    )


def test_a_hundred_thousand_samples():
    inputs = np.full(100_000, 0.1, np.float32)
    total = metal_ops.inclusive_sum(inputs, [[0, 100_000]])
    expected = np.arange(1, 100_001) * float(np.float32(0.1))
    np.testing.assert_allclose(total, expected, rtol=2.0**-23)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(("count", "at"), [(5, 2), (40, 12)])
@pytest.mark.parametrize("name", SCANS)
def test_nan_and_infinity_stay_in_their_ray_and_behind(name, count, at, bad):
    inputs = inputs_of([count, count])
    spoilt = inputs.copy()
    spoilt[at] = bad
    scan = getattr(metal_ops, name)
    info = rays.pack([count, count])
    clean, hit = scan(inputs, info).numpy(), scan(spoilt, info).numpy()
    first = at + 1 if name.startswith("exclusive") else at
    np.testing.assert_array_equal(hit[:first], clean[:first])
    np.testing.assert_array_equal(hit[count:], clean[count:])
    assert not np.any(np.isfinite(hit[first:count]))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["inclusive_prod", "exclusive_prod"])
def test_products_that_leave_floats_range_on_the_way(name, reverse):
    """2^1016 after 8 factors, 2^17 after 16."""
    inputs = np.float32([2.0**127] * 8 + [1.75 * 2.0**-126] * 8 + [2.0**10] * 2 + [0.5] * 9)
    if reverse:
        inputs = inputs[::-1].copy()
    info = rays.pack([len(inputs)])
    scan = getattr(metal_ops, name)
    with np.errstate(over="ignore"):
        expected = rays.scan(inputs, info, *SCANS[name], reverse).astype(np.float32)
    np.testing.assert_array_equal(scan(inputs, info, reverse=reverse), expected)
    # d last / d x_i is last / x_i.
    x = tf.constant(inputs)
    last, first = (0, -1) if reverse else (-1, 0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = metal_ops.inclusive_prod(x, info, reverse=reverse)[last]
    slope = tape.gradient(y, x).numpy()
    np.testing.assert_allclose(slope[last], expected_last(inputs, last), rtol=2.0**-23)
    np.testing.assert_allclose(slope[first], expected_last(inputs, first), rtol=2.0**-23)


def expected_last(inputs, without):
    """The product of all but one, in whole numbers and a power of two."""
    rest = np.delete(inputs, without % len(inputs)).astype(np.float64)
    mantissa, exponent = np.frexp(rest)
    return float(np.float32(np.ldexp(np.prod(mantissa), int(exponent.sum()))))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", SCANS)
def test_in_place_of_a_value_that_nobody_else_wants(name, reverse, dtype):
    scan = getattr(metal_ops, name)
    x = tf.constant(inputs_of([3 * 37], dtype).reshape(3, 37))

    def value_and_gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = scan(x + 1, reverse=reverse)
        return y, tape.gradient(y, x, output_gradients=tf.cos(x))

    for eager, graph in zip(value_and_gradient(x), tf.function(value_and_gradient)(x), strict=True):
        np.testing.assert_array_equal(eager, graph)


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(0, 9), max_size=30),
    gaps=st.lists(st.integers(0, 3), min_size=31, max_size=31),
    name=st.sampled_from(sorted(SCANS)),
    reverse=st.booleans(),
)
def test_any_packing_with_gaps(counts, gaps, name, reverse):
    info, at = [], 0
    for count, gap in zip(counts, gaps, strict=False):
        info.append((at + gap, count))
        at += gap + count
    info = np.array(info, np.int64).reshape(-1, 2)
    inputs = np.random.default_rng(0).uniform(0.5, 1.5, at + gaps[-1]).astype(np.float32)
    actual = getattr(metal_ops, name)(inputs, info, reverse=reverse)
    expected = rays.scan(inputs, info, *SCANS[name], reverse)
    np.testing.assert_allclose(actual, expected, rtol=2.0**-24 * 1.001, atol=0)


@settings(max_examples=50, deadline=None)
@given(counts=st.lists(st.integers(0, 5), max_size=40), dtype=st.sampled_from(["int32", "int64"]))
def test_pack_ray_indices_inverts_repeat(counts, dtype):
    indices = np.repeat(np.arange(len(counts)), counts).astype(dtype)
    info = metal_ops.pack_ray_indices(indices, len(counts))
    assert info.dtype == dtype
    np.testing.assert_array_equal(info, rays.pack(counts).reshape(-1, 2))


def test_shape_of_pack_ray_indices_is_known_in_a_graph():
    @tf.function
    def pack(indices):
        info = metal_ops.pack_ray_indices(indices, 5)
        assert info.shape == [5, 2]
        return info

    pack(tf.constant([0, 3]))


def test_rays_without_samples_take_no_time():
    """2^40 of them: a loop over the rays would not end."""
    nothing = tf.zeros([2**40, 0])
    assert metal_ops.inclusive_sum(nothing).shape == [2**40, 0]
    assert metal_ops.raw_ops.packed_prod_grad(
        nothing, nothing, tf.zeros([0, 2], tf.int32)
    ).shape == [2**40, 0]


def test_bad_arguments():
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"inclusive_sum: packed_info\[0\] must"
    ):
        metal_ops.inclusive_sum([1.0], [[0, 2]])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"pack_ray_indices: ray_indices must have shape"
    ):
        metal_ops.pack_ray_indices([[0]], 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="n_rays must be at least 0, got -1"):
        metal_ops.pack_ray_indices([0], -1)
    with pytest.raises(TypeError, match="ray_indices: expected dtype int32 or int64, got float32"):
        metal_ops.pack_ray_indices(tf.constant([0.0]), 1)
    with pytest.raises(TypeError, match="inputs: expected dtype float32, float16 or bfloat16"):
        metal_ops.inclusive_sum(tf.constant([1]), [[0, 1]])
    with pytest.raises(ValueError, match="unknown rank"):
        tf.function(
            metal_ops.inclusive_sum, input_signature=[tf.TensorSpec(None, tf.float32)]
        ).get_concrete_function()
    x = tf.constant([1.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = metal_ops.inclusive_prod(x, [[0, 1]])
        slope = inner.gradient(y, x)
    with pytest.raises(LookupError, match="PackedProdGrad.* second derivatives"):
        outer.gradient(slope, x)


# ---- what sweeps over all ops call ----------------------------------------------------------------------------------


def as_inputs() -> dict[str, np.ndarray]:
    given = samples()
    return {"inputs": np.exp(-given["sigmas"]), "packed_info": given["packed_info"]}


CALLS = {
    "inclusive_sum": Call(metal_ops.inclusive_sum, as_inputs, ("inputs",)),
    "exclusive_prod": Call(metal_ops.exclusive_prod, as_inputs, ("inputs",)),
}
