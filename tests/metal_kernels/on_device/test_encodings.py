"""sh_encode and frequency_encode on the Metal device: the CPU's tests again, and both devices side by side."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_frequency_encode, test_sh_encode
from tests.metal_kernels.on_device import again

pytestmark = pytest.mark.instrumented

OPS = ("sh_encode", "sh_encode_grad", "frequency_encode", "frequency_encode_grad")
# One step more or less in the last place of a sum of up to 64 terms.
TOLERANCE = 2e-6


guard = again.guarding(OPS, ["test_bad_arguments"])


@pytest.mark.usefixtures("guard")
class TestSh(again.tests_of(test_sh_encode)):
    pass


@pytest.mark.usefixtures("guard")
class TestFrequency(again.tests_of(test_frequency_encode)):
    pass


@pytest.mark.parametrize("dtype", again.DTYPES)
@pytest.mark.parametrize("degree", [1, 2, 4, 8])
@pytest.mark.parametrize("n", [0, 1, 7, 1031])
def test_sh_equals_the_cpu(n, degree, dtype):
    directions = test_sh_encode.directions_of(n)
    if n > 2:
        directions[1, 2] = np.nan
    g = np.random.default_rng(2).normal(size=(n, degree**2)).astype(_numpy(dtype))
    cpu, device = again.on_both(
        lambda g, x: (
            raw_ops.sh_encode(x, T=tf.as_dtype(dtype), degree=degree),
            raw_ops.sh_encode_grad(g, x, degree=degree),
        ),
        g,
        directions,
    )
    again.assert_agree(cpu[:1], device[:1], dtype, 0, TOLERANCE)
    again.assert_agree(cpu[1:], device[1:], "float32", 0, TOLERANCE * 8 * degree)


@pytest.mark.parametrize("dtype", again.DTYPES)
@pytest.mark.parametrize("include_input", [True, False])
@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (1, 1), (7, 3), (501, 5)], ids=str)
def test_frequencies_equal_the_cpu(shape, include_input, dtype):
    random = np.random.default_rng(3)
    x = random.normal(size=shape).astype(np.float32)
    if x.size > 2:
        x.flat[:2] = [np.nan, np.inf]
    options = dict(n_frequencies=6, include_input=include_input)
    g = random.normal(size=(shape[0], shape[1] * (12 + include_input))).astype(_numpy(dtype))
    cpu, device = again.on_both(
        lambda g, x: (
            raw_ops.frequency_encode(x, T=tf.as_dtype(dtype), **options),
            raw_ops.frequency_encode_grad(g, x, **options),
        ),
        g,
        x,
    )
    again.assert_agree(cpu[:1], device[:1], dtype, 0, 2e-7)
    # Octaves weigh up to 2^5 pi.
    again.assert_agree(cpu[1:], device[1:], "float32", 0, 2e-7 * 2**6 * np.pi * 4)


def test_same_bits_twice():
    x = test_sh_encode.directions_of(20011)
    again.assert_same_bits(lambda: raw_ops.sh_encode(x, degree=6))
    again.assert_same_bits(lambda: raw_ops.sh_encode_grad(np.ones((20011, 36), np.float32), x, 6))
    again.assert_same_bits(lambda: raw_ops.frequency_encode(x))
    again.assert_same_bits(lambda: raw_ops.frequency_encode_grad(np.ones((20011, 63), "f"), x))


def test_bad_arguments_in_one_voice():
    x, g = np.zeros((4, 3), np.float32), np.zeros((4, 16), np.float32)
    for call in (
        lambda: raw_ops.sh_encode(x, degree=0),
        lambda: raw_ops.sh_encode(x, degree=9),
        lambda: raw_ops.sh_encode(x[0]),
        lambda: raw_ops.sh_encode(x[:, :2]),
        lambda: raw_ops.sh_encode_grad(g[:3], x),
        lambda: raw_ops.sh_encode_grad(g[:, :9], x),
        lambda: raw_ops.frequency_encode(x, n_frequencies=33),
        lambda: raw_ops.frequency_encode(x[0]),
        lambda: raw_ops.frequency_encode_grad(g, x, n_frequencies=-1),
        lambda: raw_ops.frequency_encode_grad(g, x),
        lambda: raw_ops.frequency_encode_grad(g[:3], x),
    ):
        assert "Encode" in again.assert_same_sentence(call)


def _numpy(dtype):
    return tf.as_dtype(dtype).as_numpy_dtype
