"""Norms of rows on the Metal device: the CPU's tests again, by SIMD groups and by threads."""

from __future__ import annotations

import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_row_norm
from tests.metal_kernels.on_device import again

guard = again.guarding(("row_norm", "row_norm_grad"), ("test_bad_calls", "test_bad_gradients"))


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_row_norm, ("test_is_that_of_keras",))):
    pass


@pytest.mark.parametrize("way", ["groups", "threads"])
@pytest.mark.parametrize("shape", test_row_norm.SHAPES, ids=str)
def test_both_ways(shape, way, monkeypatch):
    monkeypatch.setenv("METAL_OPS_ROW_NORM", way)
    x, scale, offset, incoming = test_row_norm.make(shape, "float32")
    with tf.device("GPU:0"):
        test_row_norm.check(x, scale, offset, incoming, "float32", 1e-6)
        test_row_norm.check(x, scale, None, incoming, "float32", 1e-6)


def test_same_bits_from_run_to_run():
    x, scale, _, incoming = (tf.constant(v) for v in test_row_norm.make((5000, 33), "float32"))
    mean, factor = tf.zeros([5000]), tf.ones([5000])
    again.assert_same_bits(lambda: raw_ops.row_norm_grad(incoming, x, scale, mean, factor))


def test_same_sentence():
    x = tf.ones([2, 3])
    again.assert_same_sentence(lambda: raw_ops.row_norm(x, tf.ones([4]), tf.zeros([0])))
