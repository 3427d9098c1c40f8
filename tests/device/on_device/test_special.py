"""Incomplete gamma and beta functions, zeta, polygamma on the device against the CPU in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_elementwise import SOME, twice
from tests.device.on_device.test_ops import check, on_device, put

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
