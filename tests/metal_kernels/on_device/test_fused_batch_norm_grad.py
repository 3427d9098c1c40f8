"""MetalFusedBatchNormGrad on the Metal device: the CPU's tests again, a channel a thread and many."""

from __future__ import annotations

import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests import test_fused_batch_norm_grad
from tests.metal_kernels.on_device import again

guard = again.guarding(("metal_fused_batch_norm_grad",), ("test_bad_calls",))


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_fused_batch_norm_grad)):
    pass


def test_both_ways_give_the_same_bits(monkeypatch):
    """And the right ones. The order of the sums follows from the shape alone."""
    given = test_fused_batch_norm_grad.make((5000, 33), "float32")
    found = []
    for way in ("threads", "columns"):
        monkeypatch.setenv("METAL_OPS_NORM_GRAD", way)
        again.assert_same_bits(lambda: test_fused_batch_norm_grad.call(given))
        with tf.device("GPU:0"):
            test_fused_batch_norm_grad.test_value("Relu", True, "float32")
            found.append(
                b"".join(v.numpy().tobytes() for v in test_fused_batch_norm_grad.call(given))
            )
    assert found[0] == found[1]


def test_same_sentence():
    x, channels = tf.ones([2, 4]), tf.ones([4])
    again.assert_same_sentence(
        lambda: raw_ops.metal_fused_batch_norm_grad(x, x, x, channels, channels, tf.ones([3]))
    )
