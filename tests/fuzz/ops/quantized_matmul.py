"""Right calls of the ops of kernels/quantized_matmul."""

import numpy as np

from tests.fuzz.values import F4, POINTS, Special

SCALES = np.ones((2, 1), np.float16)
GIVEN = dict(codes=np.full((2, 2), 33, np.uint8), scales=SCALES, minima=SCALES, bits=4, block=32)
WEIGHTS = Special("quantized", {**GIVEN, "inputs": 3})
TABLES = dict(
    codes=np.full((2, 2), 33, np.uint8), tables=np.ones((1, 8), np.float16), bits=3, group=2
)
PUBLIC = {
    "quantize": dict(
        weights=np.ones((3, 2), F4),
        bits=4,
        block=32,
        symmetric=False,
        per_tensor=False,
        lookup=None,
    ),
    "dequantize": dict(weights=WEIGHTS, dtype="float32"),
    "quantized_matmul": dict(x=POINTS, weights=WEIGHTS, dynamic=False),
}
RAW = {
    "metal_quantized_mat_mul": dict(x=POINTS, **GIVEN),
    "metal_dynamic_mat_mul": dict(x=POINTS, **GIVEN),
    "metal_dequantize": dict(inputs=3, **GIVEN),
    "metal_lookup_mat_mul": dict(x=POINTS, **TABLES),
    "metal_lookup_weights": dict(inputs=3, **TABLES),
}
