"""Layers with quantized weights on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest

from tests import test_quantized_layers
from tests.metal_kernels.on_device import again

guard = again.guarding(
    ("metal_quantized_mat_mul", "metal_dequantize"),
    (
        "test_bad_arguments",
        "test_keras_quantized_layers_are_refused",
        "test_packed_weights_are_small",
    ),
)


same_weights = test_quantized_layers.same_weights
# Keras asks for XLA for convolutions in groups.
LEFT_OUT = ("test_convolutions_are_those_of_keras",)


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_quantized_layers, LEFT_OUT)):
    pass
