"""The op tests rely on the `device` fixture: soft placement must be off inside, and the ops on the device."""

import pytest
import tensorflow as tf

from metal_ops import raw_ops

pytestmark = [pytest.mark.ops, pytest.mark.any_simd]


def test_control_soft_placement_is_off(device):
    # With soft placement on, TensorFlow would quietly put this on the CPU.
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)device"):
        with tf.device("/GPU:7"):
            tf.zeros([2]) + 1


def test_control_of_the_control():
    tf.config.set_soft_device_placement(True)
    try:
        with tf.device("/GPU:7"):
            assert (tf.zeros([2]) + 1).numpy().tolist() == [1, 1]
    finally:
        tf.config.set_soft_device_placement(False)
        tf.config.set_soft_device_placement(True)


def test_ops_run_where_they_are_put(device):
    assert raw_ops.zero_out(tf.constant([1.0, 2.0])).device.endswith(device.lstrip("/"))
