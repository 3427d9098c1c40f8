"""Adapters on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests import test_adapters
from tests.metal_kernels.on_device import again

same_weights = test_adapters.same_weights


LONG = "test_three_adapters_on_one_base_for_three_tasks"


class TestOnDevice(again.tests_of(test_adapters, ("test_public", LONG))):
    pass


@pytest.mark.full("trains three adapters for half a minute; on the CPU it is part of `make test`")
def test_long(tmp_path):
    getattr(test_adapters, LONG)(tmp_path)


@pytest.mark.parametrize("kind", test_adapters.KINDS)
def test_sums_are_made_there(kind):
    layer, x = test_adapters.KINDS[kind]()
    layer(x)
    test_adapters.adapters.add(layer)
    y = layer(x)
    assert y.device.endswith("GPU:0") and not tf.config.get_soft_device_placement()
