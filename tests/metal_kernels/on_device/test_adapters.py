"""Adapters on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests import test_adapters
from tests.metal_kernels.on_device import again

same_weights = test_adapters.same_weights


class TestOnDevice(again.tests_of(test_adapters, ("test_public",))):
    pass


@pytest.mark.parametrize("kind", test_adapters.KINDS)
def test_sums_are_made_there(kind):
    layer, x = test_adapters.KINDS[kind]()
    layer(x)
    test_adapters.adapters.add(layer)
    y = layer(x)
    assert y.device.endswith("GPU:0") and not tf.config.get_soft_device_placement()
