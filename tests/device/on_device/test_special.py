"""Gamma and beta functions, incomplete, too, their derivatives and zeta on the device against the CPU in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_elementwise import FLOATS, SOME, twice, wide
from tests.device.on_device.test_ops import SHAPES, ULP, check, numpy_type, on_device, put

raw = tf.raw_ops
# Names of the operands, where each is taken from, units in the last place and how far from zero they count.
GAMMA = (("a", "x"), (0.05, 60.0), (0.05, 60.0))
FUNCTIONS = {
    "Igamma": (raw.Igamma, *GAMMA),
    "Igammac": (raw.Igammac, *GAMMA),
    "Zeta": (raw.Zeta, ("x", "q"), (1.1, 20.0), (0.1, 40.0)),
    "Polygamma": (raw.Polygamma, ("a", "x"), (0.0, 7.0), (0.3, 30.0)),
}


def operands(name: str, shapes) -> dict[str, np.ndarray]:
    _, names, *ranges = FUNCTIONS[name]
    rng = np.random.default_rng(9)
    found = {
        key: np.asarray(rng.uniform(*span, shape)).astype("float32")
        for key, span, shape in zip(names, ranges, shapes, strict=True)
    }
    if name == "Polygamma":
        found["a"] = np.floor(found["a"])
    return found


def oracle(name: str, values: dict[str, np.ndarray]) -> np.ndarray:
    with tf.device("CPU:0"):
        return FUNCTIONS[name][0](
            **{key: tf.constant(value.astype("float64")) for key, value in values.items()}
        ).numpy()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name):
    for shapes in [*SOME, ((33, 65), (33, 65))]:
        values = operands(name, shapes)
        got = twice(FUNCTIONS[name][0], **values)
        want = oracle(name, values)
        # Powers of float: their exponents' rounding is the result's as many times over.
        np.testing.assert_allclose(on_device(got), want, rtol=4e-5, atol=2e-6)
        check(got, got.numpy(), "float32")


@pytest.mark.parametrize("name", ["Igamma", "Igammac"])
def test_large_and_near(name):
    a = np.repeat(np.float32([8, 50, 400, 3000]), 41)
    x = (a * np.tile(np.linspace(0.8, 1.2, 41), 4)).astype("float32")
    got = on_device(FUNCTIONS[name][0](a=put(a), x=put(x)))
    np.testing.assert_allclose(got, oracle(name, {"a": a, "x": x}), rtol=2e-4, atol=2e-5)


SPECIAL = {
    "Igamma": [(1, 0), (1, np.inf), (-1, 1), (1, -1), (0, 1), (np.nan, 1), (2, np.nan)],
    "Igammac": [(1, 0), (1, np.inf), (-1, 1), (1, -1), (np.nan, 1), (2, np.nan)],
    "Zeta": [(1, 2), (0.5, 2), (2, 0), (2, -3), (2.5, -0.5), (3, -0.5), (2, -7.25), (2, 1)],
    "Polygamma": [(-1, 2), (0.5, 2), (0, 1), (0, -1.5), (1, -0.5), (2, 0.25), (3, 1000)],
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name):
    pairs = np.array(SPECIAL[name], "float32").T
    values = dict(zip(FUNCTIONS[name][1], pairs, strict=True))
    got = on_device(FUNCTIONS[name][0](**{key: put(value) for key, value in values.items()}))
    np.testing.assert_allclose(got, oracle(name, values), rtol=2e-5)


OF_ONE = {"Lgamma": raw.Lgamma, "Digamma": raw.Digamma}
# Where they have no value, and the two roots of Lgamma, around which it has all of its digits.
POLES = [0.0, -1.0, -2.0, -7.0, np.inf, np.nan, 1e30, 1e-30, -1e-30]
AROUND = np.concatenate(
    [
        root + np.float32([0, 2**-20, -(2**-20), 1e-4, -1e-4, 0.3, -0.3, 0.5, -0.5])
        for root in (1, 2)
    ]
)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one(name, dtype):
    rng = np.random.default_rng(3)
    # On an integer's left gamma's poles are steep; points between them are not.
    between = -rng.integers(1, 9, (33, 65)) + rng.uniform(0.1, 0.9, (33, 65))
    for x in [*(rng.uniform(0.01, 60, shape) for shape in SHAPES), AROUND, between]:
        x = np.asarray(x).astype(numpy_type(dtype))
        got = on_device(twice(OF_ONE[name], x=x))
        with tf.device("CPU:0"):
            want = OF_ONE[name](x=tf.constant(wide(x))).numpy()
        assert got.dtype == numpy_type(dtype) and got.shape == x.shape
        # Sums that cancel: at their roots, except those two, and a little between 2.5 and 8.
        near = 0 if name == "Lgamma" and x.min(initial=1) > 0 else 4e-6
        rtol = max(6e-6, ULP[dtype])
        np.testing.assert_allclose(wide(got), want, rtol=rtol, atol=near)


def test_poles():
    x = np.array(POLES, "float32")
    for name, op in OF_ONE.items():
        with tf.device("CPU:0"):
            want = op(x=tf.constant(x)).numpy()
        got = on_device(op(x=put(x)))
        np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64"])
def test_xlog1py(dtype):
    for shapes in SOME:
        rng = np.random.default_rng(5)
        x, y = (np.asarray(rng.uniform(-0.9, 4, shape)) for shape in shapes)
        if dtype == "complex64":
            x, y = x + 1j, y - 2j * y
        x, y = x.astype(numpy_type(dtype)), y.astype(numpy_type(dtype))
        got = on_device(twice(raw.Xlog1py, x=x, y=y))
        exact = [v.astype("complex128" if dtype == "complex64" else "float64") for v in (x, y)]
        rtol = max(4e-6, ULP.get(dtype, 0))
        np.testing.assert_allclose(
            got.astype(exact[0].dtype), exact[0] * np.log1p(exact[1]), rtol=rtol, atol=1e-7
        )
    x, y = np.float32([0, 0, 0, 1, 1, 3, 2]), np.float32([-1, np.nan, np.inf, -1, -2, 1e-10, 0])
    got = on_device(raw.Xlog1py(x=put(x), y=put(y)))
    np.testing.assert_allclose(got, [0, 0, 0, -np.inf, np.nan, 3e-10, 0], rtol=1e-6)


def beta_oracle(*values):
    with tf.device("CPU:0"):
        return tf.math.betainc(*[tf.constant(np.asarray(v, "float64")) for v in values]).numpy()


def test_incomplete_beta():
    rng = np.random.default_rng(2)
    for shapes in [
        ((), (), ()),
        ((5,), (5,), (5,)),
        ((), (3, 4), ()),
        ((2, 3), (), (2, 3)),
        ((0,), (0,), ()),
        ((2000,),) * 3,
    ]:
        for most, error in [(3.0, 1e-4), (50.0, 1e-4), (2000.0, 1e-3)]:
            a, b = (rng.uniform(0.05, most, s).astype("f") for s in shapes[:2])
            x = rng.uniform(0, 1, shapes[2]).astype("f")
            if most > 50.0:  # around where it rises
                x = np.clip(a / (a + b) + 0.03 * (x - 0.5), 0, 1).astype("f")
            got = on_device(tf.raw_ops.Betainc(a=put(a), b=put(b), x=put(x)))
            np.testing.assert_allclose(got, beta_oracle(a, b, x), rtol=error, atol=error * 0.1)
    a, b, x = np.array(
        [(1, 1, 0), (2, 3, 1), (0, 1, 0.5), (-1, 1, 0.5), (1, 1, 1.5), (1, 1, -0.5), (np.nan, 1, 0.5), (1e-3, 5, 1e-6),
         (0.5, 0.5, 0.5), (1, 1, 0.25)], "f").T  # fmt: skip
    got = on_device(tf.raw_ops.Betainc(a=put(a), b=put(b), x=put(x)))
    np.testing.assert_allclose(got, beta_oracle(a, b, x), rtol=2e-5)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.raw_ops.Betainc(a=put(a), b=put(b[:3]), x=put(x))


def test_bad_shapes():
    for name, (op, names, *_) in FUNCTIONS.items():
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{name}.*\[3\] vs. \[4\]"):
            op(**{key: put(np.ones(3 + i, "f")) for i, key in enumerate(names)})
