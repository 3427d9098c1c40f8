"""quantize_model and its report on the Metal device: the CPU's tests again."""

from __future__ import annotations

import pytest

from tests import test_quantization
from tests.metal_kernels.on_device import again

guard = again.guarding(
    ("metal_quantized_mat_mul", "metal_dequantize"),
    (
        "test_bad_arguments",
        "test_a_layer_in_a_model_and_beside_it_stays_one",
        "test_all_attributes_that_hold_a_layer_hold_the_new_one",
        "test_an_error_in_a_call_leaves_the_model_as_it_was",
        "test_kinds",
        "test_shared_layers_stay_shared",
        "test_specs",
        "test_the_best_cut_is_found",
    ),
)

same_weights = test_quantization.same_weights
# Keras asks for XLA for convolutions in groups.
LEFT_OUT = ("test_convolutions_calibrate_on_their_patches",)


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_quantization, LEFT_OUT)):
    pass
