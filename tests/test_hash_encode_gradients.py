"""Registered gradients of the HashEncode ops: every input of every op, first and second order, eager and in graphs."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests import cases
from tests.oracles import hash_encode as oracle

pytestmark = pytest.mark.ops

CASES = [
    cases.Case(29, 3, 2, 3, "float32", "smoothstep", "hash"),
    cases.Case(29, 3, 2, 3, "float32", "linear", "hash"),
    cases.Case(16, 2, 4, 2, "float16", "smoothstep", "dense"),
    cases.Case(7, 4, 1, 4, "bfloat16", "smoothstep", "hash"),
]

# op: its inputs, the shape of its upstream gradient, and the expected gradient of each input (None: zero). x points, t
# table, g like the encoding, v like the points, u like the table, w like the encoding.
GRADIENTS = {
    "hash_encode": (
        "xt",
        "w",
        {"x": lambda o, a: o.point_grad(a.w, a.x, a.t), "t": lambda o, a: o.grad(a.w, a.x, a.t)},
    ),
    "hash_encode_grad": (
        "gxt",
        "u",
        {
            "g": lambda o, a: o.encode(a.x, a.u),
            "x": lambda o, a: o.point_grad(a.g, a.x, a.u),
            "t": None,
        },
    ),
    "hash_encode_point_grad": (
        "gxt",
        "v",
        {
            "g": lambda o, a: o.jvp(a.v, a.x, a.t),
            "x": lambda o, a: o.jvp_point_grad(a.v, a.g, a.x, a.t),
            "t": lambda o, a: o.jvp_grad(a.v, a.g, a.x, a.t),
        },
    ),
    "hash_encode_jvp": (
        "vxt",
        "w",
        {
            "v": lambda o, a: o.point_grad(a.w, a.x, a.t),
            "x": lambda o, a: o.jvp_point_grad(a.v, a.w, a.x, a.t),
            "t": lambda o, a: o.jvp_grad(a.v, a.w, a.x, a.t),
        },
    ),
    "hash_encode_jvp_grad": (
        "vgxt",
        "u",
        {
            "v": lambda o, a: o.point_grad(a.g, a.x, a.u),
            "g": lambda o, a: o.jvp(a.v, a.x, a.u),
            "x": lambda o, a: o.jvp_point_grad(a.v, a.g, a.x, a.u),
            "t": None,
        },
    ),
}


class Values:
    """The named arrays of a case."""

    def __init__(self, case: cases.Case) -> None:
        random = np.random.default_rng(11)
        arrays = case.arrays
        dtype = arrays["table"].dtype
        self.x, self.t, self.g, self.v = (arrays[name] for name in ("points", "table", "g", "v"))
        self.u = random.uniform(-1, 2, self.t.shape).astype(dtype)
        self.w = (random.normal(size=self.g.shape) - 0.5).astype(dtype)


class Bound:
    """The oracle with the grid filled in."""

    def __init__(self, grid: oracle.Grid) -> None:
        self.grid = grid

    def __getattr__(self, name):
        return lambda *arguments: getattr(oracle, name)(*arguments, self.grid)


def assert_gradient(actual, expected, bound, dtype, context):
    """Mistakes that closeness alone admits are refused by name: all zeros, a wrong sign, a wrong
    factor."""
    assert actual is not None, f"{context}: no gradient"
    assert not isinstance(actual, tf.IndexedSlices), f"{context}: not dense"
    assert actual.dtype == dtype, context
    cases.assert_close(actual, expected, bound, dtype, context)
    actual = np.asarray(actual).astype(np.float64)
    large = np.abs(expected) > 0.1 * np.abs(expected).max()
    assert np.any(actual), f"{context}: all zero"
    assert np.all(np.sign(actual[large]) == np.sign(expected[large])), f"{context}: signs"
    factor = np.sum(actual * expected) / np.sum(expected**2)
    assert abs(factor - 1) < 1e-2, f"{context}: {factor:.4f} times what is expected"


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("op", GRADIENTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_input_of_every_op(device, case, op, compiled):
    names, upstream, formulas = GRADIENTS[op]
    values, grid = Values(case), case.grid

    def gradients(upstream, *inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            result = getattr(raw_ops, op)(*inputs, tf.constant(grid.offsets), **grid.op_attributes)
        return tape.gradient(result, inputs, upstream)

    inputs = [tf.constant(getattr(values, name)) for name in names]
    call = tf.function(gradients) if compiled else gradients
    results = call(tf.constant(getattr(values, upstream)), *inputs)
    for name, tensor, result in zip(names, inputs, results, strict=True):
        context = f"{op} by {name}"
        if formulas[name] is None:
            assert result is None, f"{context}: the result does not depend on its values"
            continue
        expected, bound = formulas[name](Bound(case.oracle_grid), values)
        assert_gradient(result, expected, bound, tensor.dtype.name, context)


def test_third_derivatives_are_refused_by_name():
    case = CASES[0]
    values, grid = Values(case), case.grid
    x = tf.constant(values.x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = raw_ops.hash_encode_jvp_point_grad(
            values.v, values.g, x, values.t, grid.offsets, **grid.op_attributes
        )
    with pytest.raises(LookupError, match="third derivatives are not provided"):
        tape.gradient(result, x)


@pytest.mark.parametrize(
    "wanted, unwanted",
    [("table", "hash_encode_point_grad"), ("points", "hash_encode_grad")],
)
def test_eager_tapes_compute_only_what_is_asked_for(monkeypatch, wanted, unwanted):
    case = CASES[0]

    def fail(*_, **__):
        raise AssertionError(f"{unwanted} ran for nothing")

    monkeypatch.setattr(raw_ops, unwanted, fail, raising=False)
    points, table = tf.constant(case.arrays["points"]), tf.constant(case.arrays["table"])
    with tf.GradientTape() as tape:
        tape.watch({"points": points, "table": table}[wanted])
        loss = tf.reduce_sum(metal_ops.hash_encode(points, table, case.grid))
    assert tape.gradient(loss, {"points": points, "table": table}[wanted]) is not None
    with tf.GradientTape() as tape:  # the control: asked for, it does run
        tape.watch([points, table])
        loss = tf.reduce_sum(metal_ops.hash_encode(points, table, case.grid))
    with pytest.raises(AssertionError, match="ran for nothing"):
        tape.gradient(loss, [points, table])


def eikonal(points, table, weights, grid):
    """mean((|grad_x f| - 1)^2) for f = features . weights: Gropp et al. 2020, equation 2."""
    with tf.GradientTape() as tape:
        tape.watch(points)
        distance = tf.linalg.matvec(metal_ops.hash_encode(points, table, grid), weights)
    slope = tape.gradient(distance, points)
    return tf.reduce_mean((tf.norm(slope, axis=-1) - 1) ** 2)


def eikonal_in_float64(points, table, weights, grid):
    g = np.tile(weights.astype(np.float64), (len(points), 1))
    slope, _ = oracle.point_grad(g, points, table, grid)
    return np.mean((np.linalg.norm(slope, axis=-1) - 1) ** 2)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_eikonal_loss_against_differences(case, compiled):
    """Second order through the public function: the slope along random directions, by float64 differences."""
    grid, step = case.grid, 1e-5
    points, table = case.arrays["points"], case.arrays["table"]
    points = np.where(np.abs(points * 4 % 1 - 0.5) > 0.45, 0.3, points).astype(np.float32)
    random = np.random.default_rng(12)
    weights = random.uniform(-1, 1, grid.output_dim).astype(np.float32)

    def loss_and_gradients(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = eikonal(*inputs, grid)
        return loss, tape.gradient(loss, inputs)

    call = tf.function(loss_and_gradients) if compiled else loss_and_gradients
    loss, gradients = call(*map(tf.constant, (points, table, weights)))
    inputs = [np.asarray(values, np.float64) for values in (points, table, weights)]
    np.testing.assert_allclose(
        loss, eikonal_in_float64(points, table, weights, case.oracle_grid), rtol=1e-5
    )
    for i, gradient in enumerate(gradients):
        if i == 0:
            continue  # the oracle rounds positions to float32: points are checked by the formulas above
        direction = random.normal(size=inputs[i].shape)
        ends = []
        for sign in (1, -1):
            moved = list(inputs)
            moved[i] = inputs[i] + sign * step * direction
            ends.append(eikonal_in_float64(*moved, case.oracle_grid))
        expected = (ends[0] - ends[1]) / (2 * step)
        assert expected != 0
        np.testing.assert_allclose(np.sum(gradient.numpy() * direction), expected, rtol=1e-4)


@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_tensorflows_own_numerical_gradients(case):
    """The encoding is linear in the table, and within a cell a polynomial of the points."""
    grid = metal_ops.HashGrid(
        n_dims=3, n_levels=2, log2_hashmap_size=6, base_resolution=2, per_level_scale=1.5,
        interpolation=case.interpolation,
    )  # fmt: skip
    random = np.random.default_rng(13)
    table = tf.constant(random.uniform(-1, 1, grid.table_shape).astype(np.float32))
    # pos = x * scale + 0.5 with scales 1 and 2: these stay away from the borders of their cells.
    points = tf.constant(random.uniform(0.05, 0.2, (3, 3)).astype(np.float32))
    by_formula, by_difference = tf.test.compute_gradient(
        lambda p, t: metal_ops.hash_encode(p, t, grid), [points, table], delta=2.0**-8
    )
    np.testing.assert_allclose(by_formula[0], by_difference[0], atol=2e-3)
    np.testing.assert_allclose(by_formula[1], by_difference[1], atol=1e-4)
    assert np.abs(by_formula[0]).max() > 0.1 and np.abs(by_formula[1]).max() > 0.1


def test_tf_gradients_and_keras_style_variables():
    """tf.gradients inside tf.function, and a table that is a tf.Variable."""
    case = CASES[0]
    table = tf.Variable(case.arrays["table"])

    @tf.function
    def gradients(points):
        features = metal_ops.hash_encode(points, table, case.grid)
        return tf.gradients(features, [points, table], grad_ys=tf.constant(case.arrays["g"]))

    points = tf.constant(case.arrays["points"])
    by_points, by_table = gradients(points)
    expected = oracle.point_grad(
        case.arrays["g"], points.numpy(), case.arrays["table"], case.oracle_grid
    )
    assert_gradient(by_points, *expected, "float32", "points")
    expected = oracle.grad(case.arrays["g"], points.numpy(), case.arrays["table"], case.oracle_grid)
    assert_gradient(by_table, *expected, "float32", "table")
