"""layers.Attention on the Metal device: the CPU's tests again."""

from __future__ import annotations

from tests import test_attention_layer
from tests.metal_kernels.on_device import again

ops = test_attention_layer.ops


class TestOnDevice(again.tests_of(test_attention_layer)):
    pass
