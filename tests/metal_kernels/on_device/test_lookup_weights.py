"""Products with weights by lookup tables on the Metal device: the CPU's tests again, by SIMD groups and by threads."""

from __future__ import annotations

import pytest
import tensorflow as tf

import metal_ops
from tests import test_lookup_weights
from tests.metal_kernels.on_device import again

guard = again.guarding(
    ("metal_lookup_mat_mul", "metal_lookup_weights"),
    (
        "test_bad_quantize",
        "test_bad_raw_calls",
        "test_codes_are_of_the_nearest_value",
        "test_graphs_have_no_numbers_to_search",
        "test_old_layers_know_no_tables",
        "test_tables_are_those_of_their_outputs",
    ),
)
# Keras asks for XLA for convolutions in groups.
LEFT_OUT = ("test_in_functions_and_saved", "test_calibrated_tables_are_better_for_the_data")


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_lookup_weights, LEFT_OUT)):
    pass


@pytest.mark.parametrize("way", ["groups", "threads"])
@pytest.mark.parametrize("size", [(1, 264, 9), (2, 96, 5), (7, 257, 9), (20, 70, 33)], ids=str)
@pytest.mark.parametrize("dtype", test_lookup_weights.ROUNDING)
@pytest.mark.parametrize("bits", test_lookup_weights.BITS)
def test_all_ways(bits, dtype, size, way, monkeypatch):
    monkeypatch.setenv("METAL_OPS_QUANTIZED", way)
    x, kernel = test_lookup_weights.make(*size, dtype)
    weights = metal_ops.quantize(kernel, bits, lookup=4)
    with tf.device("GPU:0"):
        test_lookup_weights.check_product(x, weights, dtype)


def test_same_sentence():
    weights = metal_ops.quantize(test_lookup_weights.KERNEL, 3, lookup=2)
    again.assert_same_sentence(
        lambda: metal_ops.raw_ops.metal_lookup_weights(
            weights.codes, weights.tables, inputs=32, T=tf.float32, bits=3, group=2
        )
    )
