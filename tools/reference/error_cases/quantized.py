"""Products with quantized weights, and the values of their codes."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests import test_dynamic_matmul, test_lookup_weights, test_quantized_matmul
from tools.reference.error_cases import DTYPES, Case


def cases() -> Iterator[Case]:
    for dtype in DTYPES:
        for bits in (4, 8):
            for rows in (1, 40):
                x, kernel = test_quantized_matmul.make(rows, 300, 65, dtype)
                weights = metal_ops.quantize(kernel, bits)
                right = test_quantized_matmul.meant(weights)
                parts = weights.codes, weights.scales, weights.minima

                def product(x=x, parts=parts, bits=bits):
                    return raw_ops.metal_quantized_mat_mul(tf.constant(x), *parts, bits=bits)

                def unpacked(dtype=dtype, parts=parts, bits=bits):
                    return raw_ops.metal_dequantize(*parts, inputs=300, T=dtype, bits=bits)

                def of_integers(x=x, parts=parts, bits=bits):
                    return raw_ops.metal_dynamic_mat_mul(tf.constant(x), *parts, bits=bits)

                yield (
                    "MetalDynamicMatMul",
                    dtype,
                    of_integers,
                    test_dynamic_matmul.rounded(x) @ right,
                )
                yield "MetalQuantizedMatMul", dtype, product, x.astype("float64") @ right
                yield "MetalDequantize", dtype, unpacked, right.T
        for bits in test_lookup_weights.BITS:
            for rows in (1, 40):
                x, kernel = test_lookup_weights.make(rows, 300, 65, dtype)
                weights = metal_ops.quantize(kernel, bits, lookup=16)
                right = test_lookup_weights.meant(weights)
                parts = weights.codes, weights.tables

                def by_tables(x=x, parts=parts, bits=bits):
                    return raw_ops.metal_lookup_mat_mul(tf.constant(x), *parts, bits=bits)

                def looked_up(dtype=dtype, parts=parts, bits=bits):
                    return raw_ops.metal_lookup_weights(*parts, inputs=300, T=dtype, bits=bits)

                yield "MetalLookupMatMul", dtype, by_tables, x.astype("float64") @ right
                yield "MetalLookupWeights", dtype, looked_up, right.T
