"""Products with quantized weights on the Metal device: the CPU's tests again, by SIMD groups and by threads."""

from __future__ import annotations

import pytest
import tensorflow as tf

import metal_ops
from tests import test_quantized_matmul
from tests.metal_kernels.on_device import again

guard = again.guarding(
    ("metal_quantized_mat_mul", "metal_dequantize"),
    (
        "test_bad_quantize",
        "test_bad_calls",
        "test_bad_raw_calls",
        "test_bytes",
        "test_rounds_to_the_nearest_step",
    ),
)


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(test_quantized_matmul, ("test_in_functions_and_saved",))):
    pass


@pytest.mark.parametrize("way", ["groups", "threads"])
@pytest.mark.parametrize("gemm", ["tiles", "threads", "groups"])
@pytest.mark.parametrize(
    "size", [(1, 264, 9), (2, 96, 5), (3, 257, 9), (11, 64, 33), (20, 70, 33)], ids=str
)
@pytest.mark.parametrize("dtype", test_quantized_matmul.ROUNDING)
@pytest.mark.parametrize("bits", [4, 8])
def test_all_ways(bits, dtype, size, gemm, way, monkeypatch):
    monkeypatch.setenv("METAL_OPS_QUANTIZED", way)
    monkeypatch.setenv("METAL_OPS_GEMM", gemm)
    x, kernel = test_quantized_matmul.make(*size, dtype)
    weights = metal_ops.quantize(kernel, bits)
    with tf.device("GPU:0"):
        test_quantized_matmul.check_product(x, weights, dtype)


def test_same_sentence():
    weights = metal_ops.quantize(test_quantized_matmul.KERNEL)
    again.assert_same_sentence(
        lambda: metal_ops.raw_ops.metal_dequantize(
            weights.codes, weights.scales[:, :1], weights.minima, inputs=40, T=tf.float32
        )
    )
