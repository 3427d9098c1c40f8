"""max_pool_with_global_indices and max_unpool on the Metal device: the CPU's tests again."""

from __future__ import annotations

import tensorflow as tf

import metal_ops
from tests import test_max_pool
from tests.metal_kernels.on_device import again


class TestOnDevice(again.tests_of(test_max_pool)):
    pass


def test_is_computed_there():
    values, indices = metal_ops.max_pool_with_global_indices(tf.ones([1, 4, 4, 1]))
    assert not tf.config.get_soft_device_placement()
    for tensor in (values, metal_ops.max_unpool(values, indices, [1, 4, 4, 1])):
        assert tensor.device.endswith("GPU:0")
