"""The standard library's functions keep the specification's bounds, and fast math does the same as Apple's."""

from __future__ import annotations

import numpy as np
import pytest

from tools.reference import records

from .numbers import FUNCTIONS, TYPES, bound, distance, measure
from .shaders import library

NAMES = [function.name for function in FUNCTIONS]


@pytest.fixture(scope="module")
def some():
    """All halves, 20,000 floats over all exponents and as many of usual size."""
    return {type_: measure(type_, 20_000) for type_ in TYPES}


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=NAMES)
def test_within_the_specification(function, type_, some):
    apart, arguments = some[type_][function.name]
    assert apart <= bound(function, type_), f"{function.name}{arguments}: {apart} ulp"


@pytest.mark.slow("a million arguments of each function")
def test_a_million_keep_what_the_page_says():
    documented = records.read(records.NUMBERS)
    for type_ in TYPES:
        found = measure(type_, 1_000_000)
        assert set(found) == set(documented)
        for function in FUNCTIONS:
            apart, arguments = found[function.name]
            where = f"{type_} {function.name}{arguments}: {apart} ulp"
            assert apart <= bound(function, type_), where
            # Another processor has another C library's code.
            assert apart <= 2 * documented[function.name][type_] + 0.1, where


def test_distance():
    """The yardstick itself."""
    one = np.float32([1, 1 + 2**-23, np.inf, np.nan, np.nan, 0, 3e38])
    other = np.array([1 + 2**-24, 1, 2.0**129, np.nan, 1, 2.0**-149, np.inf])
    np.testing.assert_allclose(
        distance(one, other, "float"), [0.5, 1, 0, 0, np.inf, 1, 1986074], rtol=1e-3
    )


def test_fast_math():
    """Contraction and reassociation; infinities and NaNs stay."""
    source = """
kernel void k(device const float* in, device float* out) {
  float a = in[0], b = in[1];
  out[0] = a * a - b;          // with a fused product: what the rounding of a * a took
  out[1] = (a + 1e9f) - 1e9f;  // with reassociation: a
  out[2] = isnan(in[2] * 0.0f);
  out[3] = isinf(in[2] + a);
  out[4] = powr(in[3], 2.0f);
}
"""
    a = np.float32(1 + 2**-12)
    given = np.float32([a, a * a, np.inf, -3])
    rest = np.float32(float(a) * float(a) - float(a * a))
    assert rest != 0
    made = {}
    for fast in (False, True):
        out = np.zeros(5, np.float32)
        library(source, fast_math=fast)["k"].run(1, 1, {0: given, 1: out})
        made[fast] = out
    np.testing.assert_array_equal(made[False], np.float32([0, 0, 1, 1, np.nan]))
    np.testing.assert_array_equal(made[True], [rest, a, 1, 1, 9])
