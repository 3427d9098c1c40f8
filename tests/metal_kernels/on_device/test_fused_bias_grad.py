"""MetalFusedBiasGrad on the Metal device: the CPU's tests again, a column a thread and many."""

from __future__ import annotations

import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_fused_bias_grad
from tests.metal_kernels.on_device import again

guard = again.guarding(("metal_fused_bias_grad",), ("test_bad_calls",))


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_fused_bias_grad)):
    pass


@pytest.mark.parametrize("way", ["threads", "columns"])
@pytest.mark.parametrize("activation", ["Relu", "Tanh"])
def test_both_ways(activation, way, monkeypatch):
    monkeypatch.setenv("METAL_OPS_BIAS_GRAD", way)
    with tf.device("GPU:0"):
        test_fused_bias_grad.test_value(activation, "float32")


def test_both_ways_give_the_same_bits(monkeypatch):
    """The order of the sums follows from the shape alone."""
    given = [tf.constant(v) for v in test_fused_bias_grad.make((5000, 33), "float32")]
    sums = []
    for way in ("threads", "columns"):
        monkeypatch.setenv("METAL_OPS_BIAS_GRAD", way)
        again.assert_same_bits(lambda: raw_ops.metal_fused_bias_grad(*given))
        with tf.device("GPU:0"):
            sums.append(raw_ops.metal_fused_bias_grad(*given)[1].numpy().tobytes())
    assert sums[0] == sums[1]


def test_same_sentence():
    again.assert_same_sentence(
        lambda: raw_ops.metal_fused_bias_grad(tf.ones([2, 3]), tf.ones([2, 4]))
    )
