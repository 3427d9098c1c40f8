"""cache_rows and KVCache on the Metal device: the CPU's tests again."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests import test_cache_rows
from tests.metal_kernels.on_device import again

# Another process has no device, and calls that are refused write nothing.
LEFT_OUT = ("test_loops_copy_no_cache",)


# Lengths are the host's, and so are numbers computed from them.
@pytest.mark.usefixtures("soft_placement")
class TestOnDevice(again.tests_of(test_cache_rows, LEFT_OUT)):
    pass


@pytest.mark.usefixtures("soft_placement")
def test_a_cache_stays_where_it_was_made():
    with tf.device("GPU:0"):
        cache = metal_ops.KVCache(1, 2, 8, size=4)
        x = tf.random.stateless_normal([1, 2, 3, 4], [1, 2])
        y = cache.attend(x, x, x)
        handle = cache.k.handle
    assert y.device.endswith("GPU:0") and handle.device.endswith("GPU:0")
    assert cache.lengths.device.endswith("CPU:0")
    np.testing.assert_array_equal(cache.k.numpy()[:, :, :3], x)


def test_it_runs_on_the_device():
    with tf.device("GPU:0"):
        variable = tf.Variable(tf.zeros([1, 1, 4, 2]))
        metal_ops.cache_rows(variable, tf.ones([1, 1, 3, 2]), [1], [2])
        np.testing.assert_array_equal(variable[0, 0, :, 0], [0, 1, 1, 0])
        # With soft placement off: nothing else than the device can say so.
        with pytest.raises(tf.errors.InvalidArgumentError, match="cache has room for 4 rows"):
            metal_ops.cache_rows(variable, tf.ones([1, 1, 3, 2]), [2], [3])
