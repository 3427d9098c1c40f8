"""The other tests of this folder mean nothing unless ops that name the device run there, or fail."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops


def test_soft_placement_is_off() -> None:
    # float64 is the one real number type that Metal does not have.
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError), match="GPU"):
        with tf.device("GPU:0"):
            metal_ops.zero_out(tf.constant([1.0, 2.0], tf.float64))


def test_soft_placement_would_hide_it() -> None:
    tf.config.set_soft_device_placement(True)
    try:
        with tf.device("GPU:0"):
            y = metal_ops.zero_out(tf.constant([1.0, 2.0], tf.float64))
        assert y.device.endswith("CPU:0")
    finally:
        tf.config.set_soft_device_placement(False)


def test_the_device_is_chosen_without_being_named() -> None:
    y = metal_ops.zero_out(tf.constant([5.0, 4.0]))
    assert y.device.endswith("GPU:0")
    np.testing.assert_array_equal(y, [5, 0])
